"""What one wiki calls things: namespaces, redirects, lists of meanings, sections without prose, numbers.

`languages.toml` has the words of each language, and `mediawiki.toml` those of MediaWiki's own message files. An
export's header adds the names of its namespaces. The English wiki's names are understood everywhere, as MediaWiki does.
"""

import functools
import html
import itertools
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from data_prep.text import ENGLISH, closest

# Keys of the namespaces whose links show nothing: media, special pages, users, files, templates, categories.
HIDDEN_NAMESPACES = (-2, -1, 2, 6, 10, 14)
_DISAMBIGUATION = r"[^{}|\n]*\bdisambig(?:uation)?(?: page| cleanup)?"  # a template; languages.toml has other names
# A file whatever its namespace is called. English pages know their namespaces, and need no guess.
_FILE_NAME = r"|[^\[\]{}|\n:]+:[^\[\]{}|\n]+\.(?:jpe?g|png|svg|gif|tiff?|webp|webm|og[agv]|mp[34]|wav|pdf|djvu)\s*$"

_HEADER_LANGUAGE = re.compile(r"<mediawiki\b[^<>]*\sxml:lang=[\"']([A-Za-z][\w-]{1,30})[\"']")
_HEADER_DATABASE = re.compile(r"<dbname>\s*([a-z][a-z_]*?)wik(?:i|tionary|ibooks|iquote|isource|inews|iversity)\b")
_HEADER_NAMESPACE = re.compile(r"<namespace\s[^<>]*?\bkey=[\"'](-?\d+)[\"'][^<>]*>([^<>]*)</namespace\s*>")
_PROSE_LINE = re.compile(r"^(?:[^\W\d_]|'').*", re.MULTILINE)
_MAX_PROSE_OF_LIST = 2000  # characters of wikitext; the introduction of a list of meanings has some hundreds
_POINT = re.compile(r"([-+−–]?)(\d+)((?:\.\d+)?)")
_COMMA = re.compile(r"([-+−–]?)(\d+)((?:,\d+)?)")


@dataclass(frozen=True)
class NumberStyle:
    """How a language writes numbers: 1,234.5 in English."""

    thousands: str = ","
    decimal: str = "."
    grouped_from: int = 4  # digits of the smallest number that is written in groups
    groups_of: int = 3  # digits of a group; the last group has 3


def grouped(number: str, style: NumberStyle = NumberStyle()) -> str:
    """Writes a number as a language does: "1234567.5" is "1.234.567,5" in German. Other text is unchanged."""
    number = number.strip()
    match = _POINT.fullmatch(number.replace(",", "") if style.thousands == "," else number)
    match = match or (_COMMA.fullmatch(number) if style.decimal == "," else None)
    if not match:
        return number
    sign, digits, decimals = match.groups()
    if len(digits) >= style.grouped_from and digits[0] != "0":
        groups, left = [digits[-3:]], digits[:-3]
        while left:
            groups.append(left[-style.groups_of :])
            left = left[: -style.groups_of]
        digits = style.thousands.join(reversed(groups))
    return f"{'-' if sign in ('−', '–') else sign}{digits}{style.decimal + decimals[1:] if decimals else ''}"


@dataclass(frozen=True)
class Site:
    """The words of one wiki that have a meaning in its markup. `site_of` makes one."""

    language: str  # its code, such as "de"
    hidden_link: re.Pattern[str]  # matches the targets of links that show nothing, such as files and categories
    redirect: re.Pattern[str]  # matches the beginning of the text of a redirect
    disambiguation: re.Pattern[str]  # finds a template that marks a page as a list of meanings
    meanings: tuple[str, ...]  # ends of the titles of such pages
    sections: frozenset[str]  # normalised headings of sections that are no prose, see `heading`
    numbers: NumberStyle = NumberStyle()
    variants: tuple[str, ...] = ()  # preferred ones of "-{zh-hans:..;zh-hant:..}-"; empty if the language has none
    months: tuple[str, ...] = ()  # their names; empty if they are not known
    named: re.Pattern[str] | None = None  # matches the names of templates that show their own name
    templates: Mapping[str, str] = field(default_factory=dict, hash=False)  # name -> its pattern in `languages.toml`
    namespaces: frozenset[str] = frozenset()  # normalised names of all but that of articles, of the export's header

    def has_article(self, title: str, namespace: str) -> bool:
        """Whether a page is in the namespace of articles, "0". Old exports (schema 0.3 and 0.4) do not name it: ""."""
        name, colon, _ = title.partition(":")
        is_old_article = not colon or (bool(self.namespaces) and template_name(name) not in self.namespaces)
        return namespace == "0" or (not namespace and is_old_article)

    def lists_meanings(self, title: str, wikitext: str) -> bool:
        """Whether a page is a list of the meanings of its title.

        A page with much prose outside list items is an article: some wikis have a note with such a template above it.
        """
        if title.endswith(self.meanings) or not self.disambiguation.search(wikitext):
            return title.endswith(self.meanings)
        return sum(map(len, _PROSE_LINE.findall(wikitext))) < _MAX_PROSE_OF_LIST

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
def read_table(name: str) -> dict[str, Any]:
    """Returns the content of a table beside this module, such as "languages.toml"."""
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


@functools.cache
def site_of(language: str, hidden: Iterable[str] = (), namespaces: Iterable[str] = ()) -> Site:
    """Returns the site of a language. One without a table has the English words and the names of the export's header:
    of hidden namespaces, and of all but that of articles."""
    table, general = read_table("languages.toml"), read_table("mediawiki.toml")
    of_mediawiki = general.get(closest(language, general), {})
    words = of_mediawiki | table.get(closest(language, table), {})

    def listed(key: str) -> list[str]:
        names = (part.get(key, ()) for part in (table[ENGLISH], of_mediawiki, words))
        return list(dict.fromkeys(itertools.chain.from_iterable(names)))

    guessed = "" if language == ENGLISH else _FILE_NAME
    hidden_names = [name.lower() for name in (*listed("hidden"), *hidden) if name.strip()]
    named = (re.escape(unicodedata.normalize("NFC", name)) for name in listed("disambiguation"))
    marks, patterns = "|".join([_DISAMBIGUATION, *named]), words.get("templates", {}).items()
    return Site(
        language=language,
        hidden_link=re.compile(rf"\s*(?:{_alternatives(hidden_names)})\s*:{guessed}", re.IGNORECASE),
        redirect=re.compile(rf"\s*[#＃](?:{_alternatives(listed('redirect'))})\s*:?\s*\[\[", re.IGNORECASE),
        disambiguation=re.compile(rf"\{{\{{\s*+(?:{marks})\s*(?:\||\}}\}})|__DISAMBIG__", re.IGNORECASE),
        meanings=tuple(listed("meanings")),
        sections=frozenset(map(heading, listed("sections"))),
        numbers=NumberStyle(**{name: words[name] for name in vars(NumberStyle()) if name in words}),
        variants=tuple(words.get("variants", ())),
        months=tuple(words.get("months", ())),
        named=re.compile(words["named"]) if "named" in words else None,
        templates={template_name(name): pattern for pattern, names in patterns for name in names},
        namespaces=frozenset(map(template_name, namespaces)),
    )


def _alternatives(names: Iterable[str]) -> str:
    """Returns a pattern for any of the names. A blank is also an underscore, as in the titles of pages."""
    return "|".join(re.escape(name).replace(r"\ ", r"[ _]+") for name in names)


def read_site(head: bytes, language: str | None = None) -> Site:
    """Returns the wiki of an export, whose `head` is all up to its first page.

    language: by default that of xml:lang, or else of the database's name if it is a known one, or else English.
    """
    text = head.decode(errors="replace")
    names = {int(key): html.unescape(name) for key, name in _HEADER_NAMESPACE.findall(text) if int(key) != 0}
    hidden = tuple(name for key, name in names.items() if key in HIDDEN_NAMESPACES)
    if language is None and (named := _HEADER_LANGUAGE.search(text)):
        language = named[1].lower().partition("-")[0]
    elif language is None and (database := _HEADER_DATABASE.search(text)):
        language = database[1] if database[1] in read_table("languages.toml") | read_table("mediawiki.toml") else None
    return site_of(language or ENGLISH, hidden, tuple(names.values()))


ENGLISH_SITE = site_of(ENGLISH)
