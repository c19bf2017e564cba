"""Renders nested markup, {{templates}}, [[links]] and {| tables |}, in one pass from left to right."""

import functools
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from data_prep.wikitext.markers import HEADING, PIPE, REMOVED
from data_prep.wikitext.site import Site, read_table
from data_prep.wikitext.templates import render_template
from data_prep.wikitext.templates.arguments import names

_BRACES, _LINK, _TABLE = "{{", "[[", "{|"  # the constructs that can be open
# A token is a link or template without anything nested, or the beginning or end of a construct. Its first character
# is looked at first, which takes a third of the time.
_TOKEN = re.compile(
    rf"""(?=[\[\]{{}}<|:\ \t{HEADING}])(?:
    \[\[(?P<target>[^\[\]{{}}|\n<]+)(?:\|(?P<label>[^\[\]{{}}|\n]*))?\]\]
    |\{{\{{(?!\{{)(?P<template>[^\[\]{{}}{HEADING}]+)\}}\}}
    |(?P<open_braces>\{{\{{+)|(?P<close_braces>\}}\}}+)|(?P<open_link>\[\[)|(?P<close_link>\]\])
    |^[\ \t]*\|(?P<close_cell>\}}+)|(?P<open_table>^[:\ \t]*\{{\||<table\b[^<>]*>)|(?P<close_table></table\b[^<>]*>)
    |(?P<heading>{HEADING}))
    """,
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
# Inside the arguments of templates, {{!}} is a "|", and so "{" and {{!}} begin a table.
_SPELLED_TABLE = re.compile(r"(?P<begin>\{\{(?:\{!|\(!)\}\})|\{\{!(?:\}\}\}(?!\})|\)\}\})")
# [[fr:Titre]] is the same article in another language, which the wiki shows in the margin.
_LANGUAGE_LINK = re.compile(r"\s*(?:[a-z]{2,3}|simple|zh-[a-z-]+|be-x-old|roa-[a-z]+|bat-smg|fiu-vro)\s*:\s*\S")
_MAX_TABLE_NAME = 40
UNCLOSED_TABLE = "unclosed table"  # what `flatten` reports if text was lost with a table that has no end


def _names_of_tables(key: str) -> re.Pattern[str]:
    words, tables = ("|".join(map(re.escape, names(read_table("templates.toml")["tables"][k]))) for k in (key, "words"))
    return re.compile(rf"(?:(?:{tables})[ _/-]*)*(?:{words})(?:[ _/-]*(?:{tables}))*", re.IGNORECASE)


_BEGINS_TABLE, _ENDS_TABLE = _names_of_tables("begin"), _names_of_tables("end")


@functools.lru_cache(maxsize=1 << 14)
def _table_mark(name: str) -> re.Pattern[str] | None:
    """Returns which of the two patterns the name of a template matches."""
    if len(name) > _MAX_TABLE_NAME:
        return None
    return next((pattern for pattern in (_BEGINS_TABLE, _ENDS_TABLE) if pattern.fullmatch(name.strip())), None)


@dataclass
class _Frame:
    """An open construct."""

    opener: str  # what it begins with; "" for the page itself
    parts: list[str] = field(default_factory=list)  # its content that is rendered already
    braces: int = 0  # how many braces of "{{" are not closed yet
    is_shown: bool = False  # whether its content is kept, as that of columns is
    heading: int | None = None  # index of the part that follows the first heading in it; None if there is none

    def add(self, other: "_Frame", start: int = 0) -> None:
        """Appends the parts of another construct from `start` on."""
        if self.heading is None and other.heading is not None:
            self.heading = len(self.parts) + other.heading - start
        self.parts += other.parts[start:]


def flatten(text: str, site: Site, losses: list[str]) -> str:
    """Replaces templates, links and tables by the words that a reader sees in their place.

    Tables, files and categories are removed. `templates` tells what templates become. An end without a beginning is
    removed. So is a beginning without an end, but not the text after it, with two exceptions: a table without an end
    reaches to the next heading, and a file without one to the end of its line. What is lost is appended to `losses`.
    """
    if "!}}" in text:
        text = _SPELLED_TABLE.sub(lambda match: "{|" if match["begin"] else "|}", text)
    page = _Page(site)
    position = 0
    for match in _TOKEN.finditer(text):
        if match.start() > position:
            page.put(text[position : match.start()])
        position = match.end()
        page.read(match)
    page.put(text[position:])
    flat = page.joined(page.stack)
    if page.has_lost_text:
        losses.append(UNCLOSED_TABLE)
    return "".join(flat.parts)


class _Page:
    """A page that is read up to some place."""

    def __init__(self, site: Site) -> None:
        self.stack = [_Frame("")]  # the constructs that are open there, from the page itself to the innermost one
        self.has_lost_text = False  # whether a table without an end was removed
        self._site = site
        self._open: Counter[str] = Counter()  # constructs by opener

    def put(self, text: str) -> None:
        """Appends text to the innermost construct."""
        self.stack[-1].parts.append(text)

    def read(self, match: re.Match[str]) -> None:
        """Reads a token."""
        kind = match.lastgroup
        if kind == "template":
            self._put_template(match[kind])
        elif kind == "target" or kind == "label":
            self.put(render_link(match["target"], match["label"], self._site))
        elif kind == "open_braces":
            self._begin(_Frame(_BRACES, braces=len(match[kind])))
        elif kind == "close_braces":
            self._close_braces(len(match[kind]))
        elif kind == "open_link":
            self._begin(_Frame(_LINK))
        elif kind == "close_link":
            if frame := self._end(_LINK):
                target, bar, label = "".join(frame.parts).partition("|")
                self.put(render_link(target, label if bar else None, self._site))
        elif kind == "open_table":
            self._begin(_Frame(_TABLE))
        elif kind == "close_table":
            self._close_table()
        elif kind == "close_cell":
            self._close_cell(len(match[kind]))
        elif self.stack[-1].heading is None:  # it is a heading
            self.stack[-1].heading = len(self.stack[-1].parts)

    def _begin(self, frame: _Frame) -> None:
        self.stack.append(frame)
        self._open[frame.opener] += 1

    def _end(self, opener: str) -> _Frame | None:
        """Ends the innermost construct that `opener` began. Constructs that are open inside it become plain text."""
        if not self._open[opener]:
            return None
        first = len(self.stack) - 1
        while self.stack[first].opener != opener:
            first -= 1
        frame, inner = self.stack[first], self.stack[first + 1 :]
        del self.stack[first:]
        self._open.subtract([frame.opener for frame in (frame, *inner)])
        frame.add(self.joined(inner))
        return frame

    def joined(self, frames: Iterable[_Frame]) -> _Frame:
        """Returns the text of constructs without an end, of which each contains the next one."""
        text = _Frame("")
        is_hidden = False
        for frame in frames:
            if frame.opener == _LINK:
                self._drop_file(frame)
            elif frame.opener == _TABLE and not frame.is_shown:
                text.parts.append("\n\n")
                is_hidden = self.has_lost_text = True
            if not is_hidden:
                text.add(frame)
            elif frame.heading is not None:
                text.add(frame, frame.heading)
                is_hidden = False
        return text

    def _drop_file(self, link: _Frame) -> None:
        """Removes the first line of a link without an end, if it shows nothing."""
        if not self._site.hidden_link.match("".join(link.parts[:3]).partition("|")[0]):
            return
        for index, part in enumerate(link.parts):
            if "\n" in part:
                link.parts[: index + 1] = [part[part.index("\n") :]]
                link.heading = link.heading and link.heading - index
                return
        link.parts = []

    def _close_braces(self, count: int) -> None:
        """Reads so many closing braces: three end a parameter, {{{name|default}}}, and two a template."""
        while count >= 2 and (frame := self._end(_BRACES)):
            size = min(count, frame.braces, 3)
            count -= size
            if frame.braces - size >= 2:
                self._begin(_Frame(_BRACES, braces=frame.braces - size))
            content = "".join(frame.parts)
            if size == 2:
                self._put_template(content)
            else:  # on the page of an article no parameter has a value
                _, bar, default = content.partition("|")
                default = default.partition("|")[0]
                self._put_rendered("" if bar and not default.strip() else default or REMOVED)

    def _put_template(self, content: str) -> None:
        name, bar, _ = content.partition("|")
        mark = _table_mark(name)
        if mark is _ENDS_TABLE and not bar and self._open[_TABLE]:
            self._close_table()
            return
        before = "".join(self.stack[-1].parts[-3:])[-20:]
        self._put_rendered(render_template(content, before, self._site))
        if mark is _BEGINS_TABLE:
            self._begin(_Frame(_TABLE, is_shown=True))

    def _put_rendered(self, text: str) -> None:
        """Appends what a template shows. If that is nothing, inside a template it is a blank argument."""
        self.put(_inner(text) if text or len(self.stack) > 1 else REMOVED)

    def _close_cell(self, braces: int) -> None:
        """Reads a "|" at the beginning of a line and the braces behind it: the end of a table, a template, or both."""
        is_in_table = self.stack[-1].opener == _TABLE and (braces % 2 == 1 or not self._open[_BRACES])
        if braces == 1 or is_in_table:
            self._close_table()
            braces -= 1
        else:
            self.put("|")  # an empty argument
        self._close_braces(braces)

    def _close_table(self) -> None:
        if frame := self._end(_TABLE):
            if frame.is_shown:
                self.stack[-1].add(frame)
            self.put("\n\n")


def _inner(text: str) -> str:
    """Replaces each "|" of rendered text, because inside an outer template or link it would begin an argument."""
    return text.replace("|", PIPE)


def render_link(target: str, label: str | None, site: Site) -> str:
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
