"""From a page's wikitext to its paragraphs."""

import html
import re
from datetime import date

from data_prep.wikitext.arguments import names
from data_prep.wikitext.marks import HOLE, without_marks
from data_prep.wikitext.markup import flatten
from data_prep.wikitext.paragraphs import paragraphs
from data_prep.wikitext.scripts import render_scripts
from data_prep.wikitext.tags import render_tags

_HEADING = re.compile(r"^(={1,6})[ \t]*(.+?)[ \t]*\1[ \t]*$", re.MULTILINE)
# Sections that list instead of telling.
_DROPPED_SECTIONS = frozenset(
    names(
        """
        see also|references|external links|further reading|notes|bibliography|footnotes|citations
        works cited|notes and references|references and notes|notes and sources|sources and notes
        references and further reading|references and sources|sources and references|notes and citations
        citations and notes|literature cited|bibliography and references|references and bibliography
        further reading and references|external references|external sources|external links and references
        references and external links|general references|cited references|cited sources|cited works
        specific references|primary sources|secondary sources|explanatory notes|endnotes
        notes and bibliography|bibliography and further reading|selected bibliography
        select bibliography|gallery|galleries|image gallery|photo gallery
        external link|reference|weblinks|web links|related pages|references in popular culture and notes
        """
    )
)
_LINK = re.compile(
    r"\[(?:(?:https?|ftp|ftps|irc|news|gopher|sftp):(?://)?|//|mailto:)[^\s\[\]]*[ \t]*([^\[\]\n]*)\]", re.I
)
_ITALIC_POSSESSIVE = re.compile(r"(?<!')''(?!')([^'\n]+?\w)'''(?=s?\b|\s)(?!')")
_QUOTES = re.compile(r"'{2,}")
# What follows a tag's name has the form of attributes: "x<small y and z>2" holds no tag.
_TAG = re.compile(
    r"</?(abbr|b|bdi|bdo|big|blockquote|br|center|cite|code|data|dd|del|dfn|div|dl|dt|em|font|h[1-6]|hr|i|includeonly|ins"
    r"|kbd|li|mark|noinclude|nobr|nowiki|ol|onlyinclude|p|poem|pre|q|ref|references|rb|rp|rt|rtc|ruby|s|samp|section|small"
    r"|source|span|strike|strong|sub|sup|table|tbody|td|templatestyles|th|tr|time|tt|u|ul|var|wbr)"
    r"(?:\s*/?\s*|\s+(?:nowrap\s+)?[a-z-]+\s*=[^<>]*|\s+(?:clear|nowrap|compact|reversed|hidden)\s*/?\s*|(?<=<br)[^<>\w]{0,5})>",
    re.IGNORECASE,
)
_BREAKING_TAGS = frozenset(names("blockquote|dd|div|dl|dt|h1|h2|h3|h4|h5|h6|hr|li|ol|p|poem|pre|td|th|tr|ul"))
_SWITCH = re.compile(r"__[A-Z]{3,}__")
_SPACES = re.compile(r"[ \t\u00a0\u2000-\u200a\u202f\u205f\u3000]+")
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060\ufeff\u00ad]")


def to_prose(wikitext: str, written: date | None = None) -> str:
    """The running text of a page: paragraphs separated by one "\n", "" where there is none.

    Tables, boxes, files, references, headings and the sections after the text are left out; so are list items that
    are not sentences (BERT's rule for Wikipedia, section 3.1 of its paper: text passages, no lists, tables or headers).
    written: when the page was saved, which {{CURRENTYEAR}} and {{age|...}} show.
    """
    text = render_tags(without_marks(wikitext))
    text = flatten(drop_sections(text), written)
    text = _LINK.sub(lambda match: match[1] or HOLE, text)
    if "''" in text:
        text = _QUOTES.sub("", _ITALIC_POSSESSIVE.sub(r"\1'", text))
    text = _TAG.sub(_replace_tag, render_scripts(text))
    if "&" in text:
        text = html.unescape(text)
    text = _INVISIBLE.sub("", _SPACES.sub(" ", _SWITCH.sub("", text)))
    return "\n".join(paragraphs(text))


def _replace_tag(match: re.Match[str]) -> str:
    name = match[1].lower()
    return "\n\n" if name in _BREAKING_TAGS else " " if name == "br" else ""


def drop_sections(text: str) -> str:
    """Text without its headings, and without the sections of references, links and notes and what is below them."""
    kept, position, dropping = [], 0, 0  # dropping: level of the section being dropped, 0 when none is
    for match in _HEADING.finditer(text):
        level = len(match[1])
        if not dropping:
            kept.append(text[position : match.start()])
        position = match.end()
        if not dropping or level <= dropping:
            title = re.sub(r"['\[\]:]|\{\{[^{}]*\}\}|<[^<>]*>", "", match[2]).strip().lower()
            dropping = level if title in _DROPPED_SECTIONS else 0
    if not dropping:
        kept.append(text[position:])
    return "\n\n".join(kept)
