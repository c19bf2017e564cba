"""Reads the Markdown pages of the repository: blocks and commands."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

REPOSITORY = Path(__file__).resolve().parents[2]

PAGES = sorted(
    [
        *(REPOSITORY / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
        *(REPOSITORY / "docs").glob("*.md"),
    ]
)

Kind = Literal["prose", "code", "table", "heading"]


@dataclass
class Block:
    """Lines of a page that belong together.

    Attributes:
        kind: prose is a paragraph or one item of a list.
        line: number of the first line, from 1.
        language: of fenced code; "" for indented code.
        lines: without the indentation of code.
    """

    kind: Kind
    line: int
    language: str = ""
    lines: list[str] = field(default_factory=list)


def blocks_of(page: Path) -> Iterator[Block]:
    """The blocks of a page in order."""
    block: Block | None = None
    fence = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("```"):
            if block is not None:
                yield block
            fence = not fence
            block = Block("code", number + 1, line[3:].strip() or "text") if fence else None
            continue
        if fence:
            assert block is not None
            block.lines.append(line)
            continue
        inside_code = block is not None and block.kind == "code"
        kind, text = _kind_of(line, code_may_begin=block is None or inside_code)
        if kind is None:
            if inside_code:
                block.lines.append("")
            elif block is not None:
                yield block
                block = None
            continue
        starts_item = kind == "prose" and re.match(r"\s*([-*]|\d+\.) ", line)
        if block is not None and (block.kind != kind or starts_item or kind == "heading"):
            yield block
            block = None
        if block is None:
            block = Block(kind, number)
        block.lines.append(text)
    if block is not None:
        yield block


def _kind_of(line: str, code_may_begin: bool) -> tuple[Kind | None, str]:
    if not line.strip():
        return None, ""
    if line.startswith("    ") and code_may_begin:
        return "code", line[4:]
    if line.startswith("#"):
        return "heading", line
    if line.startswith("|"):
        return "table", line
    return "prose", line


def commands_of(page: Path) -> Iterator[tuple[int, str]]:
    """(line, command) of the shell commands in a page's indented or `bash` code, continued lines joined."""
    for block in blocks_of(page):
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
