"""Private-use characters that stand in the text between the stages of `to_prose`; its result has none of them."""

import re

HOLE = "\ue000"  # something without words of the sentence was dropped here
SAID, SAID_END = "\ue001", "\ue002"  # around a pronunciation: kept in running text, dropped between parentheses
UNKNOWN = "\ue007"  # an amount that nobody can tell without the wiki's own data: its sentence goes
PIPE, EQUALS = "\ue003", "\ue004"  # a "|" or "=" that does not separate the arguments of a template

# What <nowiki> shields from being read as markup.
_MARKUP = "[]{}|='<>*#:;!_~-&"
_SHIELD = {ord(character): chr(0xE010 + index) for index, character in enumerate(_MARKUP)}
_UNSHIELD = {ord(shielded): chr(character) for character, shielded in _SHIELD.items()}
_UNSHIELD |= {ord(PIPE): "|", ord(EQUALS): "=", ord(HOLE): "", ord(SAID): "", ord(SAID_END): "", ord(UNKNOWN): ""}
_ANY = re.compile("[\ue000-\ue0ff]")


def shield(text: str) -> str:
    """Text whose markup characters mean themselves until `reveal`."""
    return text.translate(_SHIELD)


def reveal(text: str) -> str:
    """Undoes `shield` and takes every other mark away."""
    return text.translate(_UNSHIELD) if _ANY.search(text) else text


def without_marks(text: str) -> str:
    """Text of the outside world, without characters that would be taken for ours."""
    return _ANY.sub("", text)
