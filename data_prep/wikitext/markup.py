"""Turns the wikitext of a page into prose. It runs all stages in order, and renders nested markup and flat markup.

Nested markup ({{templates}}, [[links]], {| tables |}) is rendered in one pass from left to right.
"""

import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from data_prep.wikitext.markers import PIPE, REMOVED, strip_markers
from data_prep.wikitext.paragraphs import paragraphs
from data_prep.wikitext.site import ENGLISH_SITE, Site, heading
from data_prep.wikitext.tags import choose_variants, render_scripts, render_tags
from data_prep.wikitext.templates import render_template
from data_prep.wikitext.templates.arguments import names

_HEADING = re.compile(r"^(={1,6})[ \t]*(.+?)[ \t]*\1[ \t]*$", re.MULTILINE)
_LINK = re.compile(
    r"\[(?:(?:https?|ftp|ftps|irc|news|gopher|sftp):(?://)?|//|mailto:)[^\s\[\]]*[ \t]*([^\[\]\n]*)\]", re.I
)
# A line in bold type that is no sentence: it stands in the place of a heading.
_BOLD_HEADING = re.compile(r"^[ \t]*'''(?!')[^'\n]*[^'\n.!?…](?<!')'''[ \t]*:?[ \t]*$", re.MULTILINE)
_QUOTES = re.compile(r"('{2,})")
# ''Eagle'''s: of two in a line, MediaWiki would drop the apostrophes.
_ITALIC_POSSESSIVE = re.compile(r"(?<!')''(?!')([^'\n]+?\w)'''(?=s\b)")
# The text after a tag's name must look like attributes: "x<small y and z>2" contains no tag.
_TAG = re.compile(
    r"</?(abbr|b|bdi|bdo|big|blockquote|br|center|cite|code|data|dd|del|dfn|div|dl|dt|em|font|h[1-6]|hr|i|includeonly|ins"
    r"|kbd|li|mark|noinclude|nobr|nowiki|ol|onlyinclude|p|poem|pre|q|ref|references|rb|rp|rt|rtc|ruby|s|samp|section|small"
    r"|source|span|strike|strong|sub|sup|table|tbody|td|templatestyles|th|tr|time|tt|u|ul|var|wbr)"
    r"(?:\s*/?\s*|\s+(?:nowrap\s+)?[a-z-]+\s*=[^<>]*|\s+(?:clear|nowrap|compact|reversed|hidden)\s*/?\s*|(?<=<br)[^<>\w]{0,5})>",
    re.IGNORECASE,
)
_BREAKING_TAGS = frozenset(names("blockquote|dd|div|dl|dt|h1|h2|h3|h4|h5|h6|hr|li|ol|p|poem|pre|td|th|tr|ul"))
_SWITCH = re.compile(r"__[A-Z]{3,}__")
_SPACES = re.compile(r"[ \t\u00a0\u2000-\u200a\u202f\u205f\u3000]{2,}|[\t\u00a0\u2000-\u200a\u202f\u205f\u3000]")
# Joiners (200c, 200d) decide how words of Indian and Arabic scripts are written.
_MEANINGLESS = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060\ufeff\u00ad]")
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060\ufeff\u00ad]")
# A token is a link or template without anything nested, or the beginning or end of a construct.
_NESTED = re.compile(
    r"""\[\[([^\[\]{}|\n<]+)(?:\|([^\[\]{}|\n]*))?\]\]   # 1, 2: simple link
    |\{\{(?!\{)([^\[\]{}]+)\}\}                          # 3: simple template
    |(\{\{|\}\}|\[\[|\]\]                                # 4: an end
    |^[:\ \t]*\{\||^[\ \t]*\|\}(?!\})|</?table\b[^<>]*>)
    """,
    re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
# [[fr:Titre]] is the same article in another language, which the wiki shows in the margin.
_LANGUAGE_LINK = re.compile(r"\s*(?:[a-z]{2,3}|simple|zh-[a-z-]+|be-x-old|roa-[a-z]+|bat-smg|fiu-vro)\s*:\s*\S")


def to_prose(wikitext: str, site: Site = ENGLISH_SITE) -> str:
    """Returns the running text of a page: paragraphs separated by one "\n"; "" if there is none.

    Tables, boxes, files, references, headings and the sections after the text are left out. So are list items that are
    not sentences. BERT uses the same rule for Wikipedia (section 3.1 of its paper): text passages, no lists, tables or
    headers.

    site: the wiki that the page is from.
    """
    text = render_tags(strip_markers(wikitext))
    if site.variants:
        text = choose_variants(text, site.variants)
    text = flatten(drop_sections(text, site), site)
    text = _LINK.sub(lambda match: match[1] or REMOVED, text)
    if "''" in text:
        text = _BOLD_HEADING.sub("\n", text)
        if "'''s" in text:
            text = _ITALIC_POSSESSIVE.sub(r"\1'", text)
        text = "\n".join(drop_quotes(line) if "''" in line else line for line in text.split("\n"))
    text = _TAG.sub(_replace_tag, render_scripts(text))
    if "&" in text:
        text = html.unescape(text)
    invisible = _INVISIBLE if site.is_english else _MEANINGLESS
    text = invisible.sub("", _SPACES.sub(" ", _SWITCH.sub("", text)))
    return "\n".join(paragraphs(text, site.language))


def _replace_tag(match: re.Match[str]) -> str:
    name = match[1].lower()
    return "\n\n" if name in _BREAKING_TAGS else " " if name == "br" else ""


def drop_quotes(line: str) -> str:
    """Removes the marks of italic (2 apostrophes), bold (3) and both (5) from a line; other apostrophes are text.

    The rule is that of MediaWiki (`Parser::doQuotes`). Of 4, the first is text; of more than 5, all but the last 5. If
    the line has an odd number of both kinds, one bold mark is an apostrophe before an italic mark: the first after a
    word of one letter, else the first after another word, else the first after a blank.
    """
    parts = _QUOTES.split(line)  # text, mark, text, mark, ..., text
    sizes = []
    for at in range(1, len(parts), 2):
        count = len(parts[at])
        sizes.append(3 if count == 4 else min(count, 5))
        parts[at - 1] += "'" * (count - sizes[-1])
    bold = [index for index, size in enumerate(sizes) if size == 3]
    both = sizes.count(5)
    if bold and (len(bold) + both) % 2 and (sizes.count(2) + both) % 2:
        parts[2 * min(bold, key=lambda index: _rank_of_apostrophe(parts[2 * index]))] += "'"
    return "".join(parts[::2])


def _rank_of_apostrophe(before: str) -> int:
    """Returns how late the mark after `before` is taken for an apostrophe; é counts as two letters, as in MediaWiki."""
    if before.endswith(" "):
        return 2
    return 0 if before[-2:-1] == " " and before[-1].isascii() else 1


def drop_sections(text: str, site: Site = ENGLISH_SITE) -> str:
    """Removes headings, and sections of references, links and notes with their subsections."""
    kept, position, dropping = [], 0, 0  # dropping: level of the section being dropped, 0 when none is
    for match in _HEADING.finditer(text):
        level = len(match[1])
        if not dropping:
            kept.append(text[position : match.start()])
        position = match.end()
        if not dropping or level <= dropping:
            title = re.sub(r"['\[\]:]|\{\{[^{}]*\}\}|<[^<>]*>", "", match[2])
            dropping = level if heading(title) in site.sections else 0
    if not dropping:
        kept.append(text[position:])
    return "\n\n".join(kept)


@dataclass
class _Frame:
    """An open construct. opener: "{{", "[[" or "{|". parts: its content that is rendered already."""

    opener: str
    parts: list[str] = field(default_factory=list)


_RenderTemplate = Callable[[str, str], str]


def flatten(text: str, site: Site = ENGLISH_SITE) -> str:
    """Replaces templates, links and tables by the words that a reader sees in their place.

    Tables, files and categories are removed. `templates` tells what templates become. An end without a beginning is
    removed. So is a beginning without an end, but not the text after it.

    Args:
        text: the wikitext without extension tags.
        site: the wiki that it is from.
    """
    render = partial(render_template, site=site)
    stack = [_Frame("")]
    parts = stack[0].parts
    position = 0
    for match in _NESTED.finditer(text):
        start = match.start()
        if start > position:
            parts.append(text[position:start])
        position = match.end()
        target, label, template, token = match.groups()
        if target is not None:
            parts.append(render_link(target, label, site))
        elif template is not None:
            parts.append(_inner(render(template, "".join(parts[-3:])[-20:])))
        elif token in ("{{", "[["):
            stack.append(_Frame(token))
        elif token in ("}}", "]]"):
            _close(stack, "{{" if token == "}}" else "[[", render, site)
        elif token[-1] == "|" or token[1] in "tT":
            stack.append(_Frame("{|"))
        else:
            _close(stack, "{|", render, site)
        parts = stack[-1].parts
    parts.append(text[position:])
    while len(stack) > 1:
        _unwrap(stack)
    return "".join(stack[0].parts)


def _close(stack: list[_Frame], opener: str, render: _RenderTemplate, site: Site) -> None:
    """Ends the innermost construct that `opener` began. Constructs that are open inside it become plain text."""
    if all(frame.opener != opener for frame in stack):
        return
    while stack[-1].opener != opener:
        _unwrap(stack)
    content = "".join(stack.pop().parts)
    outer = stack[-1].parts
    if opener == "{{":
        outer.append(_inner(render(content, "".join(outer[-3:])[-20:])))
    elif opener == "[[":
        target, bar, label = content.partition("|")
        outer.append(render_link(target, label if bar else None, site))
    else:
        outer.append("\n\n")


def _unwrap(stack: list[_Frame]) -> None:
    inner = stack.pop()
    if inner.opener != "{|":  # a table without an end reaches to the end of the page
        stack[-1].parts += inner.parts


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
