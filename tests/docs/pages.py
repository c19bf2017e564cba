"""Reads the Markdown pages of the repository: blocks and commands."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt

REPOSITORY = Path(__file__).resolve().parents[2]

PAGES = [REPOSITORY / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
PAGES += sorted((REPOSITORY / "docs").glob("*.md"))

KINDS = {"fence": "code", "code_block": "code", "heading_open": "heading", "table_open": "table"}
"""Of the blocks that tests read, by markdown-it's type."""


class Block(NamedTuple):
    """Lines of a page that belong together."""

    kind: str  # code, heading or table
    line: int  # number of the first line, from 1
    language: str  # of fenced code; "" for indented code
    lines: list[str]  # without the indentation of code


def blocks_of(page: Path) -> Iterator[Block]:
    """The blocks of code, the headings and the tables of a page in order."""
    text = page.read_text(encoding="utf-8")
    for token in MarkdownIt().enable("table").parse(text):
        if token.type not in KINDS:
            continue
        first, behind = token.map
        if KINDS[token.type] == "code":
            language = "" if token.type == "code_block" else token.info or "text"
            yield Block("code", first + 1, language, token.content.splitlines())
        else:
            yield Block(KINDS[token.type], first + 1, "", text.splitlines()[first:behind])


def commands_of(page: Path, section: str = "") -> Iterator[tuple[int, str]]:
    """(line, command) of the shell commands in a page's indented or `bash` code, continued lines joined.

    section: the line of a heading; only the code between it and the next heading counts.
    """
    heading = ""
    for block in blocks_of(page):
        if block.kind == "heading":
            heading = block.lines[0]
        if section and heading != section:
            continue
        if block.kind != "code" or block.language not in ("", "bash"):
            continue
        text = "\n".join(block.lines).replace("\\\n", " ")
        for line in text.splitlines():
            line = re.sub(r"\s+#.*$", "", line).strip()
            if line:
                yield block.line, re.sub(r"\s+", " ", line)


def module_command(command: str) -> tuple[str, list[str]] | None:
    """(module, arguments) of a command that starts one of the project's modules, also by `albert`; else None."""
    try:
        words = shlex.split(command.partition(" > ")[0])
    except ValueError:
        return None
    if words[0] == "albert" and len(words) > 2:
        return ("data_prep" if words[1] == "data" else f"pipeline.{words[1]}"), words[2:]
    for flag in ("-m", "--module"):
        if flag in words[:-1]:
            at = words.index(flag) + 1
            if words[at].split(".")[0] in ("data_prep", "model", "pipeline", "benchmarks"):
                return words[at], words[at + 1 :]
    return None
