"""Each message that docs/troubleshooting.md quotes is one that the sources can print."""

import ast
import difflib
import functools
import re
from collections.abc import Iterator

import pytest

from tests.docs.pages import REPOSITORY, blocks_of

PAGE = REPOSITORY / "docs" / "troubleshooting.md"
VALUE = "\x00"
"""Stands in a source's message for a value that is put in when it is printed."""
PLACEHOLDER = r"\b(?:N|DIR|FILE|RUN|NAME|HOST)\b"
FOREIGN_SECTIONS = ("The environment",)
"""Sections whose messages are other programs'."""


def quoted() -> Iterator[tuple[str, str]]:
    """(section, message) of each code span of several words in the bold start of an item."""
    section = ""
    for block in blocks_of(PAGE):
        if block.kind == "heading":
            section = block.lines[0].lstrip("# ")
        text = " ".join(line.strip() for line in block.lines)
        if block.kind == "prose":
            for bold in re.findall(r"^- \*\*(.*?)\*\*", text):
                yield from ((section, span) for span in re.findall(r"`([^`]+)`", bold) if " " in span)


def template(node: ast.expr) -> str:
    """The text of a string expression, VALUE for each part that is known only when it runs."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(template(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return template(node.left) + template(node.right)
    return VALUE


@functools.cache
def messages() -> list[str]:
    """Every string of the sources, docstrings left out."""
    found = []
    for package in ("common", "data_prep", "model", "pipeline"):
        for path in (REPOSITORY / package).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
            found += [
                template(node)
                for node in ast.walk(tree)
                if isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp) and id(node) not in docstrings
            ]
    return [message for message in found if len(message) > 10]


OURS = [message for section, message in quoted() if section not in FOREIGN_SECTIONS]


def can_be_printed(message: str) -> bool:
    """Whether some message of the sources has the words of this one, in order; placeholders stand for anything."""
    words = [re.escape(part) for part in re.split(PLACEHOLDER, message)]
    pattern = re.compile(".*?".join(words))
    return any(pattern.search(source) for source in messages())


def test_there_are_messages():
    assert len(OURS) > 30


@pytest.mark.parametrize("message", OURS)
def test_the_message_is_in_the_sources(message):
    if not can_be_printed(message):
        pytest.fail(f"{message!r} is in no source; nearest: {difflib.get_close_matches(message, messages(), 2, 0.3)}")


def test_a_message_that_is_in_no_source_is_seen():
    assert not can_be_printed("DIR holds N rows, which is a pity")
    assert can_be_printed("DIR holds N rows, fewer than N of N; lower train_batch_size")
