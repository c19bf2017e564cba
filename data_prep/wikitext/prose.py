"""From a page's wikitext to its paragraphs."""

import html
import re

from data_prep.wikitext.arguments import names
from data_prep.wikitext.marks import HOLE, reveal, without_marks
from data_prep.wikitext.markup import flatten
from data_prep.wikitext.repair import repair
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
_TAG = re.compile(
    r"</?(abbr|b|bdi|bdo|big|blockquote|br|center|cite|code|data|dd|del|dfn|div|dl|dt|em|font|h[1-6]|hr|i|includeonly|ins"
    r"|kbd|li|mark|noinclude|nobr|nowiki|ol|onlyinclude|p|poem|pre|q|ref|references|rb|rp|rt|rtc|ruby|s|samp|section|small"
    r"|source|span|strike|strong|sub|sup|table|tbody|td|templatestyles|th|tr|time|tt|u|ul|var|wbr)\b[^<>]*>",
    re.IGNORECASE,
)
_BREAKING_TAGS = frozenset(names("blockquote|dd|div|dl|dt|h1|h2|h3|h4|h5|h6|hr|li|ol|p|poem|pre|td|th|tr|ul"))
_SWITCH = re.compile(r"__[A-Z]{3,}__")
_SPACES = re.compile(r"[ \t\u00a0\u2000-\u200a\u202f\u205f\u3000]+")
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060\ufeff\u00ad]")
_SENTENCE_END = re.compile(r"[.!?…][\"')\]”’»]*$")
_WORD = re.compile(r"[^\W\d_]{2,}")
_LIST_ITEM_WORDS = 6
_PARAGRAPH_WORDS = 3


def to_prose(wikitext: str) -> str:
    """The running text of a page: paragraphs separated by one "\\n", "" where there is none.

    Tables, boxes, files, references, headings and the sections after the text are left out; so are list items that
    are not sentences (BERT's rule for Wikipedia, section 3.1 of its paper: text passages, no lists, tables or headers).
    """
    text = render_tags(without_marks(wikitext))
    text = flatten(drop_sections(text))
    text = _LINK.sub(lambda match: match[1] or HOLE, text)
    text = _TAG.sub(_replace_tag, text)
    if "''" in text:
        text = _QUOTES.sub("", _ITALIC_POSSESSIVE.sub(r"\1'", text))
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


def paragraphs(text: str) -> list[str]:
    """The paragraphs of flat text: lines up to an empty one are joined; list items stand for themselves."""
    result: list[str] = []
    lines: list[str] = []

    def close() -> None:
        if lines:
            paragraph = clean(" ".join(lines))
            if is_prose(paragraph):
                result.append(paragraph)
            lines.clear()

    for line in text.split("\n"):
        line = line.strip()
        if not line:
            close()
        elif line[0] in "*#:;":
            close()
            item = clean(line.lstrip("*#:; "))
            if is_sentence_item(item):
                result.append(item)
        elif line[0] not in "|!" and not line.startswith(("{|", "----")):
            lines.append(line)
    close()
    return result


def clean(text: str) -> str:
    """One paragraph without marks, with the punctuation mended where something was dropped."""
    return " ".join(reveal(repair(" ".join(text.split()))).split())


def is_prose(paragraph: str) -> bool:
    """Whether a paragraph says something: it ends as a sentence does, or has a few words."""
    words = len(_WORD.findall(paragraph))
    return words >= _PARAGRAPH_WORDS or (words > 0 and bool(_SENTENCE_END.search(paragraph)))


def is_sentence_item(item: str) -> bool:
    """Whether a list item is a sentence rather than an entry."""
    return bool(_SENTENCE_END.search(item)) and len(_WORD.findall(item)) >= _LIST_ITEM_WORDS
