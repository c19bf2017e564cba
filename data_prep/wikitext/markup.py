"""Renders nested MediaWiki markup ({{templates}}, [[links]], {| tables |}) in one pass from left to right."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from functools import partial

from data_prep.wikitext.markers import PIPE, REMOVED
from data_prep.wikitext.site import ENGLISH_SITE, Site
from data_prep.wikitext.templates.registry import render_template

# A token is a link or template without anything nested, or the beginning or end of a construct.
_TOKEN = re.compile(
    r"""\[\[([^\[\]{}|\n<]+)(?:\|([^\[\]{}|\n]*))?\]\]   # 1, 2: simple link
    |\{\{(?!\{)([^\[\]{}]+)\}\}                          # 3: simple template
    |(\{\{|\}\}|\[\[|\]\]                                # 4: an end
    |^[:\ \t]*\{\||^[\ \t]*\|\}(?!\})|</?table\b[^<>]*>)
    """,
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
# [[fr:Titre]] is the same article in another language, which the wiki shows in the margin.
_LANGUAGE_LINK = re.compile(r"\s*(?:[a-z]{2,3}|simple|zh-[a-z-]+|be-x-old|roa-[a-z]+|bat-smg|fiu-vro)\s*:\s*\S")


@dataclass
class _Frame:
    """An open construct. opener: "{{", "[[" or "{|". pieces: its content that is rendered already."""

    opener: str
    pieces: list[str] = field(default_factory=list)


_RenderTemplate = Callable[[str, str], str]


def flatten(text: str, written: date | None = None, site: Site = ENGLISH_SITE) -> str:
    """Replaces templates, links and tables by the words that a reader sees in their place.

    Tables, files and categories are removed. `templates` tells what templates become. An end without a beginning is
    removed. So is a beginning without an end, but not the text after it.

    Args:
        text: the wikitext without extension tags.
        written: when the page was saved.
        site: the wiki that it is from.
    """
    render = partial(render_template, written=written, site=site)
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
            pieces.append(render_link(target, label, site))
        elif template is not None:
            pieces.append(_inner(render(template, pieces[-1] if pieces else "")))
        elif token in ("{{", "[["):
            stack.append(_Frame(token))
        elif token in ("}}", "]]"):
            _close(stack, "{{" if token == "}}" else "[[", render, site)
        elif token[-1] == "|" or token[1] in "tT":
            stack.append(_Frame("{|"))
        else:
            _close(stack, "{|", render, site)
        pieces = stack[-1].pieces
    pieces.append(text[position:])
    while len(stack) > 1:
        _unwrap(stack)
    return "".join(stack[0].pieces)


def _close(stack: list[_Frame], opener: str, render: _RenderTemplate, site: Site) -> None:
    """Ends the innermost construct that `opener` began. Constructs that are open inside it become plain text."""
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
        outer.append(render_link(target, label if bar else None, site))
    else:
        outer.append("\n\n")


def _unwrap(stack: list[_Frame]) -> None:
    inner = stack.pop()
    if inner.opener != "{|":  # a table without an end reaches to the end of the page
        stack[-1].pieces += inner.pieces


def _inner(text: str) -> str:
    """Replaces each "|" of rendered text, because inside an outer template or link it would begin an argument."""
    return text.replace("|", PIPE)


def render_link(target: str, label: str | None, site: Site = ENGLISH_SITE) -> str:
    """Returns what a reader sees of [[target|label]], or of [[target]] if `label` is None."""
    if ":" in target:
        if site.hidden_link.match(target):
            return REMOVED
        if label is None and _LANGUAGE_LINK.match(target):
            return ""
        if target.lstrip().startswith(":"):
            target = target.lstrip()[1:]
    if label is None:
        return target.partition("#")[0] or target[1:]
    if label.strip():
        return _inner(label)
    # The pipe trick: [[Pipe (computing)|]] and [[Boston, Massachusetts|]] show the target without its qualifier.
    return re.sub(r"^[^:]*:|\s*\([^()]*\)$|,.*$", "", target)
