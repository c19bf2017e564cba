"""Decodes text files whose encoding is not stated: UTF-8, UTF-16, or Windows-1252 in a western language.

Nearly every other encoding decodes nearly every file, to wrong letters. So a file that is none of the three is not
read, unless the user names its encoding.
"""

import re

from common.errors import UserError
from data_prep.text import ENGLISH, closest

BINARY = "not a text file"
UNKNOWN = "in no known encoding (see --encoding and --language)"
_STRAY = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, decoded with "surrogateescape"
_BEYOND_ASCII = re.compile("[^\x00-\x7f\udc80-\udcff]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_BYTES_OF_JAPANESE = b"\x1b$"  # begins kanji in ISO-2022-JP, all of whose bytes are ASCII
_WESTERN = frozenset(["af", "ca", "da", "de", "en", "es", "eu", "fi", "fr", "ga", "gl", "it", "nb", "nl", "pt", "sv"])
"""Languages whose texts are in Windows-1252, or Latin-1, if they are not in UTF-8."""
_MIN_SHARE = 0.9  # of the characters beyond ASCII that must stand where letters and punctuation of these languages do
_MAX_LETTERS = 0.1  # of the characters of a text that may be letters with accents
_LETTERS, _CAPITALS = "àáâãäåæçèéêëìíîïñòóôõöøùúûüœß", "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜŒ"
_PUNCTUATION = "“”„‚‘’‹›«»–—…·•°§¿¡£€©®™†×±½¼¾²³ªº´\xa0\xad"
# No capital follows a small letter or a sign without a blank (in another encoding it would be a quotation mark), and no
# punctuation but an apostrophe is inside a word.
_FITTING = re.compile(
    rf"[{_LETTERS}]|(?<![a-z{_LETTERS}.,!?;:])[{_CAPITALS}]"
    rf"|(?<!\w)[{_PUNCTUATION}]|[{_PUNCTUATION}](?!\w)|(?<=\w)[’·](?=\w)"
)


class NotDecodedError(Exception):
    """A file gives no text; the message says why, in a few words from a fixed set."""


def check_encoding(name: str | None) -> None:
    """Raises UserError unless `name` is None or the name of an encoding of text that Python knows."""
    try:
        if name is not None:
            "a".encode(name)
    except (LookupError, ValueError):
        remedy = "give one such as cp1251 or big5"
        raise UserError(f"--encoding {name} is no encoding that Python knows; {remedy}") from None


def decode(content: bytes, language: str = ENGLISH, encoding: str | None = None) -> str:
    """Returns the text of a file; its lines end with "\\n". NotDecodedError: it is no text, or in no known encoding.

    UTF-8 may contain a few bytes of Windows-1252 or Latin-1.
    """
    if encoding is not None:
        try:
            text = content.decode(encoding)
        except UnicodeError:
            raise NotDecodedError(f"not in {encoding}") from None
    elif content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", errors="replace")
    elif (decoded := _of_utf_8(content)) is not None or (decoded := _of_windows_1252(content, language)) is not None:
        text = decoded
    else:
        raise NotDecodedError(BINARY if content.count(0) > max(1, len(content) // 100) else UNKNOWN)
    if len(_CONTROL.findall(text)) > max(1, len(text) // 100):
        raise NotDecodedError(BINARY)
    return text.replace("\0", " ").replace("\r\n", "\n").replace("\r", "\n")


def _of_utf_8(content: bytes) -> str | None:
    """The text if the content is UTF-8 but for a few bytes; None otherwise."""
    if _BYTES_OF_JAPANESE in content:
        return None
    text = content.decode("utf-8-sig", errors="surrogateescape")
    # In a text of another encoding, hardly any bytes form a character of UTF-8.
    if len(_BEYOND_ASCII.findall(text)) >= max(1, len(_STRAY.findall(text))):
        return _STRAY.sub(_of_stray, text)
    return text if not _STRAY.search(text) else None


def _of_stray(match: re.Match[str]) -> str:
    byte = match[0].encode(errors="surrogateescape")
    try:
        return byte.decode("cp1252")
    except UnicodeDecodeError:  # cp1252 leaves five bytes undefined
        return byte.decode("latin-1")


def _of_windows_1252(content: bytes, language: str) -> str | None:
    """The text in Windows-1252 if it looks like one of a western language; None otherwise."""
    try:
        text = content.decode("cp1252")
    except UnicodeDecodeError:
        return None
    beyond, letters = len(re.findall(r"[^\x00-\x7f]", text)), len(re.findall(r"[^\W\x00-\x7f]", text))
    is_likely = letters <= max(2, _MAX_LETTERS * len(text)) and len(_FITTING.findall(text)) >= _MIN_SHARE * beyond
    is_western = closest(language, _WESTERN) in _WESTERN and _BYTES_OF_JAPANESE not in content
    return text if is_western and is_likely else None
