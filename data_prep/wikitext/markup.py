"""The nested part of MediaWiki markup: {{templates}}, [[links]] and {| tables |}, in one pass from left to right."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from functools import partial

from data_prep.wikitext.marks import HOLE, PIPE
from data_prep.wikitext.templates import render_template

# A link or template with nothing inside is one token; the rest are the ends of nested ones.
_TOKEN = re.compile(
    r"""\[\[([^\[\]{}|\n<]+)(?:\|([^\[\]{}|\n]*))?\]\]   # 1, 2: simple link
    |\{\{(?!\{)([^\[\]{}]+)\}\}                          # 3: simple template
    |(\{\{|\}\}|\[\[|\]\]                                # 4: an end
    |^[:\ \t]*\{\||^[\ \t]*\|\}(?!\})|</?table\b[^<>]*>)
    """,
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
_DROPPED_LINK = re.compile(r"\s*(?:file|image|media|category|special|template|user)\s*:", re.IGNORECASE)
# [[fr:Titre]]: the same article in another language, shown in the margin.
_LANGUAGE_LINK = re.compile(r"\s*(?:[a-z]{2,3}|simple|zh-[a-z-]+|be-x-old|roa-[a-z]+|bat-smg|fiu-vro)\s*:\s*\S")


@dataclass
class _Frame:
    """An open construct. opener: "{{", "[[" or "{|"; pieces: what has been rendered inside it so far."""

    opener: str
    pieces: list[str] = field(default_factory=list)


_RenderTemplate = Callable[[str, str], str]


def flatten(text: str, written: date | None = None) -> str:
    """Wikitext with its templates, links and tables replaced by the words that a reader sees in their place.

    Tables, files and categories go; what the templates become is told in `templates`. An end that was never opened is
    dropped and so is a beginning that is never closed, with what follows it kept.
    """
    render = partial(render_template, written=written)
    stack = [_Frame("")]
    pieces = stack[0].pieces
    position = 0
    for match in _TOKEN.finditer(text):
        start = match.start()
        if start > position:
            pieces.append(text[position:start])
        position = match.end()
        target, label, template, token = match.groups()
        if target is not None:
            pieces.append(render_link(target, label))
        elif template is not None:
            pieces.append(_inner(render(template, pieces[-1] if pieces else "")))
        elif token in ("{{", "[["):
            stack.append(_Frame(token))
        elif token in ("}}", "]]"):
            _close(stack, "{{" if token == "}}" else "[[", render)
        elif token[-1] == "|" or token[1] in "tT":
            stack.append(_Frame("{|"))
        else:
            _close(stack, "{|", render)
        pieces = stack[-1].pieces
    pieces.append(text[position:])
    while len(stack) > 1:
        _unwrap(stack)
    return "".join(stack[0].pieces)


def _close(stack: list[_Frame], opener: str, render: _RenderTemplate) -> None:
    """Ends the innermost construct that `opener` began, and takes those left open inside it for plain text."""
    if all(frame.opener != opener for frame in stack):
        return
    while stack[-1].opener != opener:
        _unwrap(stack)
    content = "".join(stack.pop().pieces)
    outer = stack[-1].pieces
    if opener == "{{":
        outer.append(_inner(render(content, outer[-1] if outer else "")))
    elif opener == "[[":
        target, bar, label = content.partition("|")
        outer.append(render_link(target, label if bar else None))
    else:
        outer.append("\n\n")


def _unwrap(stack: list[_Frame]) -> None:
    inner = stack.pop()
    if inner.opener != "{|":  # a table that is never closed reaches to the end of the page
        stack[-1].pieces += inner.pieces


def _inner(text: str) -> str:
    """Rendered text as it may stand inside an outer template or link, where a bare "|" would begin an argument."""
    return text.replace("|", PIPE)


def render_link(target: str, label: str | None) -> str:
    """What a reader sees of [[target|label]]; `label` None where there is no bar."""
    if ":" in target:
        if _DROPPED_LINK.match(target):
            return HOLE
        if label is None and _LANGUAGE_LINK.match(target):
            return ""
        if target.lstrip().startswith(":"):
            target = target.lstrip()[1:]
    if label is None:
        return target.partition("#")[0] or target[1:]
    if label.strip():
        return _inner(label)
    # The pipe trick: [[Pipe (computing)|]] and [[Boston, Massachusetts|]] show what stands before the qualifier.
    return re.sub(r"^[^:]*:|\s*\([^()]*\)$|,.*$", "", target)
