"""Private-use characters that the stages of `to_prose` put into the text as markers. Its result contains none of them.

Escaping uses other characters of the same range: an escaped character of markup stands for itself until
`unescape_markup`.
"""

import re

# Stands where something without words was removed, such as a footnote. `repair` mends the punctuation around it.
REMOVED = "\ue000"
PRONUNCIATION, PRONUNCIATION_END = "\ue001", "\ue002"  # stand around one; `repair` keeps it outside of parentheses
PIPE, EQUALS = "\ue003", "\ue004"  # stand for a "|" or "=" that does not separate the arguments of a template
# Stands for an amount that only the wiki's data could tell, or a symbol that is not known. Its sentence is removed.
UNKNOWN_AMOUNT = "\ue007"
HEADING = "\ue008"  # stands where a heading was, for tables without an end

# The characters of markup, which escape_markup (for <nowiki> and formulas) replaces.
_MARKUP = "[]{}|='<>*#:;!_~-&"
_ESCAPED = {ord(character): chr(0xE010 + index) for index, character in enumerate(_MARKUP)}
_UNESCAPED = {ord(escaped): chr(character) for character, escaped in _ESCAPED.items()}
_UNESCAPED |= {ord(PIPE): "|", ord(EQUALS): "="}
_UNESCAPED |= {ord(marker): "" for marker in (REMOVED, PRONUNCIATION, PRONUNCIATION_END)}
_ANY = re.compile("[\ue000-\ue0ff]")


def escape_markup(text: str) -> str:
    """Replaces the characters of markup by others that no stage reads as markup."""
    return text.translate(_ESCAPED)


def unescape_markup(text: str) -> str:
    """Undoes `escape_markup`, and removes all markers but UNKNOWN_AMOUNT."""
    return text.translate(_UNESCAPED) if _ANY.search(text) else text


def strip_markers(text: str) -> str:
    """Removes characters from a page's text that would be taken for markers."""
    return _ANY.sub("", text)
