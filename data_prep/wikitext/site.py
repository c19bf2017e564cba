"""What one wiki calls things: namespaces, redirects, lists of meanings, sections without prose, numbers.

`languages.toml` has the words of each language. An export's header adds the names of its namespaces. The English wiki's
names are understood everywhere, as MediaWiki does.
"""

import functools
import html
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.text.languages import ENGLISH

# Keys of the namespaces whose links show nothing: media, special pages, users, files, templates, categories.
HIDDEN_NAMESPACES = (-2, -1, 2, 6, 10, 14)
_HIDDEN = ("file", "image", "media", "category", "special", "template", "user")
_DISAMBIGUATION = (
    r"[^{}|\n]*\bdisambig(?:uation)?(?: page| cleanup)?|dab|geodis|hndis|numberdis|letter-numbercombdis"
    r"|mil-unit-dis|letter disambig|schooldis|airport dis|call ?sign dis|roaddis|hospitaldis"
)
# Sections that are lists, not prose.
_SECTIONS = """
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
# A file whatever its namespace is called. English pages know their namespaces, and need no guess.
_FILE_NAME = r"|[^\[\]{}|\n:]+:[^\[\]{}|\n]+\.(?:jpe?g|png|svg|gif|tiff?|webp|webm|og[agv]|mp[34]|wav|pdf|djvu)\s*$"

_HEADER_LANGUAGE = re.compile(r"<mediawiki\b[^<>]*\sxml:lang=[\"']([A-Za-z][\w-]{1,30})[\"']")
_HEADER_DATABASE = re.compile(r"<dbname>\s*([a-z][a-z_]*?)wik(?:i|tionary|ibooks|iquote|isource|inews|iversity)\b")
_HEADER_NAMESPACE = re.compile(r"<namespace\s[^<>]*?\bkey=[\"'](-?\d+)[\"'][^<>]*>([^<>]*)</namespace\s*>")


@dataclass(frozen=True)
class NumberStyle:
    """How a language writes numbers: 1,234.5 in English.

    Attributes:
        thousands, decimal: the signs.
        grouped_from: digits of the smallest number that is written in groups.
        groups_of: digits of a group; the last group has 3.
    """

    thousands: str = ","
    decimal: str = "."
    grouped_from: int = 4
    groups_of: int = 3


@dataclass(frozen=True)
class Site:
    """The words of one wiki that have a meaning in its markup. `site_of` makes one.

    Attributes:
        language: code of the language, such as "de".
        hidden_link: matches the targets of links that show nothing, such as files and categories.
        redirect: matches the beginning of the text of a redirect.
        disambiguation: finds a template that marks a page as a list of meanings.
        meanings: ends of the titles of such pages.
        sections: normalised headings of sections that are no prose, see `heading`.
        numbers: how numbers are written.
        variants: preferred variants of "-{zh-hans:..;zh-hant:..}-"; empty if the language has none.
        templates: template name -> key of its family in `languages.toml`.
        shown: name of a template without arguments -> what it shows.
    """

    language: str
    hidden_link: re.Pattern[str]
    redirect: re.Pattern[str]
    disambiguation: re.Pattern[str]
    meanings: tuple[str, ...]
    sections: frozenset[str]
    numbers: NumberStyle = NumberStyle()
    variants: tuple[str, ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict, hash=False)
    shown: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_english(self) -> bool:
        """Whether its text is English."""
        return self.language == ENGLISH


def heading(title: str) -> str:
    """Normalises a heading for comparison: NFC, lower case, no apostrophes."""
    return unicodedata.normalize("NFC", title).replace("'", "").strip().lower()


def template_name(name: str) -> str:
    """Normalises the name of a template: NFC, lower case, single blanks."""
    return " ".join(unicodedata.normalize("NFC", name).replace("_", " ").lower().split())


@functools.cache
def _languages() -> dict[str, Any]:
    path = Path(__file__).with_name("languages.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def known_languages() -> list[str]:
    """Returns the codes of the languages whose words are known, English included, in order."""
    return sorted({ENGLISH, *_languages()})


@functools.cache
def site_of(language: str, hidden: Iterable[str] = ()) -> Site:
    """Returns the site of a language. A language without a table has the English words and the header's names.

    Args:
        language: code of the language.
        hidden: the names of the hidden namespaces, from the export's header.
    """
    words = _languages().get(language, {})
    names = list(dict.fromkeys(name.lower() for name in (*_HIDDEN, *words.get("hidden", ()), *hidden) if name.strip()))
    guessed = "" if language == ENGLISH else _FILE_NAME
    templates = [re.escape(unicodedata.normalize("NFC", name)) for name in words.get("disambiguation", ())]
    redirects = ["redirect", *words.get("redirect", ())]
    sections = [name for name in _SECTIONS.replace("\n", "|").split("|") if name.strip()]
    return Site(
        language=language,
        hidden_link=re.compile(rf"\s*(?:{_alternatives(names)})\s*:{guessed}", re.IGNORECASE),
        redirect=re.compile(rf"\s*[#＃](?:{_alternatives(redirects)})", re.IGNORECASE),
        disambiguation=re.compile(
            rf"\{{\{{\s*(?:{'|'.join([_DISAMBIGUATION, *templates])})\s*(?:\||\}}\}})|__DISAMBIG__", re.IGNORECASE
        ),
        meanings=("(disambiguation)", *words.get("meanings", ())),
        sections=frozenset(heading(name) for name in [*sections, *words.get("sections", ())]),
        numbers=NumberStyle(
            **{name: words[name] for name in ("thousands", "decimal", "grouped_from", "groups_of") if name in words}
        ),
        variants=tuple(words.get("variants", ())),
        templates={
            template_name(name): family for family, listed in words.get("templates", {}).items() for name in listed
        },
        shown={template_name(name): text for name, text in words.get("shown", {}).items()},
    )


def _alternatives(names: Iterable[str]) -> str:
    """Returns a pattern for any of the names. A blank is also an underscore, as in the titles of pages."""
    return "|".join(re.escape(name).replace(r"\ ", r"[ _]+") for name in names)


def read_site(head: bytes, language: str | None = None) -> Site:
    """Returns the wiki that an export's header describes.

    Args:
        head: the export up to its first page.
        language: code of its language, if the user gives one. By default it is that of the header: the attribute
            xml:lang, or else the beginning of the database's name if that is a known language. Without both it is
            English.
    """
    text = head.decode(errors="replace")
    hidden = [html.unescape(name) for key, name in _HEADER_NAMESPACE.findall(text) if int(key) in HIDDEN_NAMESPACES]
    return site_of(language or language_of(text), tuple(hidden))


def language_of(header: str) -> str:
    """Returns the code of the language that a header names."""
    if match := _HEADER_LANGUAGE.search(header):
        return match[1].lower().partition("-")[0]
    match = _HEADER_DATABASE.search(header)
    return match[1] if match and match[1] in known_languages() else ENGLISH


ENGLISH_SITE = site_of(ENGLISH)
