"""The API reference of Amazon Web Services, as the Python package botocore carries it -> documents of English prose.

botocore describes each service in one JSON file. Its operations and their fields have descriptions in simple HTML. An
operation becomes one document: its own description, then those of the fields that it takes and returns.
"""

import gzip
import html
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_prep.corpus.documents import Document

MIN_CHARACTERS = 200
"""Documents with less text are left out."""

_MIN_PARAGRAPH, _MIN_WORDS = 40, 6  # shorter paragraphs are names and values
_MEMBER = re.compile(r"botocore/data/([^/]+)/([^/]+)/service-2\.json\.gz")
# Headings, code and tables, with their content; then what divides paragraphs; then what stands inside a paragraph.
_DROPPED = re.compile(r"<(pre|fullname|title|table|examples?|h[1-6])\b.*?</\1>", re.DOTALL)
_BREAK = re.compile(r"</?(?:p|li|ul|ol|dl|dt|dd|div|br|note|important|caution|section|para)\b[^>]*>")
_INLINE = re.compile(r"<[^>]*>")


def read_documents(wheel: Path) -> Iterator[Document]:
    """Yields a document for each operation of each service in botocore's wheel, newest version of the service only.

    No paragraph is yielded twice. Services repeat descriptions of common fields word for word, and a held-out document
    must not hold what a training document holds.
    """
    read: set[str] = set()  # descriptions, most of which come many times
    seen: set[str] = set()  # their paragraphs
    with zipfile.ZipFile(wheel) as archive:
        for service, member in sorted(_newest(archive.namelist()).items()):
            model = json.loads(gzip.decompress(archive.read(member)))
            for name, descriptions in _sections(model):
                new = [description for description in dict.fromkeys(descriptions) if description not in read]
                read.update(new)
                paragraphs = []
                for paragraph in (found for description in new for found in prose(description)):
                    if paragraph not in seen:
                        seen.add(paragraph)
                        paragraphs.append(paragraph)
                if sum(map(len, paragraphs)) >= MIN_CHARACTERS:
                    title = f"{service} {name}".rstrip()
                    yield Document(title, title, "\n".join(paragraphs))


def prose(description: str) -> Iterator[str]:
    """Yields the paragraphs of an HTML description that are sentences: no headings, code, tables, links or names."""
    for part in _BREAK.split(_DROPPED.sub("<p>", description)):
        paragraph = " ".join(html.unescape(_INLINE.sub("", part)).split())
        is_sentence = paragraph.endswith((".", "!", "?")) and paragraph.count(" ") >= _MIN_WORDS - 1
        if is_sentence and len(paragraph) >= _MIN_PARAGRAPH and "http" not in paragraph and "{" not in paragraph:
            yield paragraph


def _newest(names: list[str]) -> dict[str, str]:
    """By service, the member with its newest version; versions are dates."""
    found = sorted(match.group(1, 2, 0) for name in names if (match := _MEMBER.fullmatch(name)))
    return {service: member for service, _, member in found}


def _sections(model: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yields the service itself, named "", and its operations by name: (name, HTML descriptions)."""
    yield "", [model.get("documentation", "")]
    shapes: dict[str, dict[str, Any]] = model["shapes"]
    for name, operation in sorted(model["operations"].items()):
        descriptions = [operation.get("documentation", "")]
        ends = [operation[end]["shape"] for end in ("input", "output") if end in operation]
        for shape in _reached(shapes, ends):
            members = shapes[shape].get("members", {}).values()
            descriptions += [part.get("documentation", "") for part in (shapes[shape], *members)]
        yield name, descriptions


def _reached(shapes: dict[str, dict[str, Any]], starts: list[str]) -> list[str]:
    """The names of the shapes that `starts` consist of, themselves included, each once, a shape before its parts."""
    found: dict[str, None] = {}
    waiting = starts[::-1]
    while waiting:
        name = waiting.pop()
        if name in found or name not in shapes:
            continue
        found[name] = None
        shape = shapes[name]
        parts = [
            *shape.get("members", {}).values(),
            *(shape[part] for part in ("member", "key", "value") if part in shape),
        ]
        waiting += [part["shape"] for part in reversed(parts)]
    return list(found)
