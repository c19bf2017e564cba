"""The header of a MediaWiki export -> its `Site`: the language, and what the wiki calls its namespaces."""

import html
import re

from data_prep.text.languages import ENGLISH
from data_prep.wikitext.site import HIDDEN_NAMESPACES, Site, known_languages, site_of

_LANGUAGE = re.compile(r"<mediawiki\b[^<>]*\sxml:lang=[\"']([A-Za-z][\w-]{1,30})[\"']")
_NAME_OF_DATABASE = re.compile(r"<dbname>\s*([a-z][a-z_]*?)wik(?:i|tionary|ibooks|iquote|isource|inews|iversity)\b")
_NAMESPACE = re.compile(r"<namespace\s[^<>]*?\bkey=[\"'](-?\d+)[\"'][^<>]*>([^<>]*)</namespace\s*>")


def read_site(head: bytes, language: str | None = None) -> Site:
    """Returns the wiki that an export's header describes.

    Args:
        head: the export up to its first page.
        language: code of its language, if the user gives one. By default it is that of the header: the attribute
            xml:lang, or else the beginning of the database's name if that is a known language. Without both it is
            English.
    """
    text = head.decode(errors="replace")
    hidden = [html.unescape(name) for key, name in _NAMESPACE.findall(text) if int(key) in HIDDEN_NAMESPACES]
    return site_of(language or language_of(text), tuple(hidden))


def language_of(header: str) -> str:
    """Returns the code of the language that a header names."""
    if found := _LANGUAGE.search(header):
        return found[1].lower().partition("-")[0]
    found = _NAME_OF_DATABASE.search(header)
    return found[1] if found and found[1] in known_languages() else ENGLISH
