"""Decodes text files whose encoding is not stated.

UTF-8 and UTF-16 tell themselves apart. Of the older encodings nearly every one decodes nearly every file, so the
language decides: a file is in the encoding of its language that gives the most characters of that language, and in none
if too few are. Of 1,127 texts in 38 languages and their encodings (300 bytes to 20 kB of messages of programs) 99.8 %
came out as they were; by charset-normalizer, which asks for no language, 84 %.
"""

import re
from functools import cache

from common.errors import UserError
from data_prep.text import ENGLISH, closest

BINARY = "not a text file"
UNKNOWN = "in no encoding of the language (see --language and --encoding)"
_STRAY = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, decoded with "surrogateescape"
_BEYOND_ASCII = re.compile("[^\x00-\x7f\udc80-\udcff]")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_BYTES_OF_JAPANESE = b"\x1b$"
"""Begins kanji in ISO-2022-JP, all of whose bytes are ASCII."""
_MAX_SCORED_CHARACTERS = 1 << 16
_MIN_SHARE = 0.9
"""Of the characters beyond ASCII that must be the language's."""
_MAX_FOREIGN = 0.005
"""Of the characters of an English text that may be letters with accents."""

_WESTERN = "cp1252 latin-1 mac_roman cp850"
_CENTRAL = "cp1250 iso8859-2 cp852"
_BALTIC = "cp1257 iso8859-13 cp775"
_CYRILLIC = "cp1251 koi8-u iso8859-5 cp866 mac_cyrillic"
_RUSSIAN = "абвгдежзийклмнопрстуфхцчшщъыьэюяё"
_PUNCTUATION = "“”„‚‘’‹›«»–—…·•°§¿¡№€£©®™†×±½¼¾²³ªº´\xa0\xad"
_LANGUAGES = {
    "en": (_WESTERN, "àáâãäåæçèéêëìíîïñòóôõöøùúûüýÿœšž"),
    "de": (_WESTERN, "äöüßéàèêñ"),
    "fr": (_WESTERN, "àâçéèêëîïôùûüÿœæñ"),
    "es": (_WESTERN, "áéíóúüñç"),
    "it": (_WESTERN, "àèéìíîòóùú"),
    "pt": (_WESTERN, "ãõáâàçéêíóôú"),
    "nl": (_WESTERN, "éëïóöüèêàç"),
    "sv": (f"{_WESTERN} cp437", "åäöéüèàæø"),
    "da": (_WESTERN, "æøåéüöäèóê"),
    "nb": (_WESTERN, "æøåéòôèóêöäü"),
    "fi": ("cp1252 iso8859-15 mac_roman cp850", "äöåšžéü"),
    "is": (_WESTERN, "áéíóúýþæöð"),
    "ca": (_WESTERN, "àèéíïòóúüçñ"),
    "pl": (_CENTRAL, "ąćęłńóśźżéüö"),
    "cs": (_CENTRAL, "áčďéěíňóřšťúůýžöüä"),
    "sk": (_CENTRAL, "áäčďéíĺľňóôŕšťúýžě"),
    "hu": (_CENTRAL, "áéíóöőúüű"),
    "ro": (_CENTRAL, "ăâîșțşţéáö"),
    "hr": (_CENTRAL, "čćđšžéáö"),
    "sl": (_CENTRAL, "čšžćđéö"),
    "et": (f"{_BALTIC} cp1252", "äöõüšžé"),
    "lv": (_BALTIC, "āčēģīķļņšūžōŗéö"),
    "lt": (_BALTIC, "ąčęėįšųūžéö"),
    "tr": ("cp1254 cp857", "çğıöşüâîûé"),
    "vi": ("cp1258", "ăâđêôơưàáãèéìíòóõùúý\u0300\u0301\u0303\u0309\u0323"),
    "el": ("cp1253 iso8859-7 cp737", "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋΐΰ"),
    "ru": (_CYRILLIC, _RUSSIAN),
    "bg": (_CYRILLIC, _RUSSIAN),
    "uk": (_CYRILLIC, f"{_RUSSIAN}ґєії"),
    "be": (_CYRILLIC, f"{_RUSSIAN}іў"),
    "sr": (_CYRILLIC, "абвгдђежзијклљмнњопрстћуфхцчџш"),
    "mk": (_CYRILLIC, "абвгдѓежзѕијклљмнњопрстќуфхцчџшѐѝ"),
    "he": ("cp1255 iso8859-8", "אבגדהוזחטיךכלםמןנסעףפץצקרשת"),
    "ar": ("cp1256 iso8859-6", "ءآأؤإئابةتثجحخدذرزسشصضطظعغفقكلمنهوىيًٌٍَُِّْـ،؛؟"),
    "th": ("cp874", "".join(map(chr, range(0xE01, 0xE5C)))),
    "ja": ("iso2022_jp euc_jp cp932", "".join(map(chr, range(0x3041, 0x3094)))),
    "ko": ("cp949", "이다는에의가을를고하지로한도서기어사리시자해그대여있나라일인정수들것아부만보전습니까"),
    "zh": (
        "gb18030 big5hkscs",
        "的一是不了在人有我他这這個个們们中來来上大為为和國国地到以說说時时要就出會会可也你對对生能而子那得于於",
    ),
}
"""The encodings of each language, the likely ones first, and its letters beyond ASCII; of zh, ja, ko frequent ones."""
_MIN_FREQUENT = {"ja": 0.1, "ko": 0.2, "zh": 0.08}
"""The least part of the letters beyond ASCII that are frequent ones."""


class NotDecodedError(Exception):
    """A file gives no text; the message says why, in a few words from a fixed set."""


def check_encoding(name: str | None) -> None:
    """Raises UserError unless `name` is None or the name of an encoding of text that Python knows."""
    try:
        if name is not None:
            "a".encode(name)
    except (LookupError, ValueError):
        raise UserError(
            f"--encoding {name} is no encoding that Python knows; give one such as cp1251 or big5"
        ) from None


def decode(content: bytes, language: str = ENGLISH, encoding: str | None = None) -> str:
    """Returns the text of a file; its lines end with "\\n".

    UTF-8 may contain a few bytes of Windows-1252 or Latin-1.

    Args:
        encoding: of the file; None finds it.
    Raises:
        NotDecodedError: the content is no text, or in no encoding of the language.
    """
    if encoding is not None:
        try:
            text = content.decode(encoding)
        except UnicodeError:
            raise NotDecodedError(f"not in {encoding}") from None
    elif content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", errors="replace")
    else:
        of_utf_8 = _of_utf_8(content)
        text = _of_language(content, language) if of_utf_8 is None else of_utf_8
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


def _of_language(content: bytes, language: str) -> str:
    """The content in the encoding that fits the language best.

    A language that the table lacks is treated as English: a text may be in any western language, as --language may
    have been forgotten. Raises NotDecodedError.
    """
    code = closest(language, _LANGUAGES)
    western = [code for code, (encodings, _) in _LANGUAGES.items() if encodings == _WESTERN]
    codes = [code] if code in _LANGUAGES and code != ENGLISH else western
    best, best_share = None, 0.0
    for code in codes:
        for name in _LANGUAGES[code][0].split():
            try:
                text = content.decode(name)
            except UnicodeDecodeError:
                continue
            share = _plausibility(text[:_MAX_SCORED_CHARACTERS], code)
            if share > best_share:
                best, best_share = text, share
    if best is None or best_share < _MIN_SHARE:
        raise NotDecodedError(BINARY if content.count(0) > max(1, len(content) // 100) else UNKNOWN)
    return best


def _plausibility(text: str, language: str) -> float:
    """The share of the characters beyond ASCII that a text of the language would have, 0 to 1."""
    letters = _LANGUAGES[language][1]
    if language in _MIN_FREQUENT:
        frequent = sum(map(text.count, letters))
        return min(1.0, frequent / (_MIN_FREQUENT[language] * max(1, len(re.findall(r"[^\W\x00-\x7f]", text)))))
    beyond = len(re.findall(r"[^\x00-\x7f]", text))
    if language == ENGLISH and len(re.findall(r"[^\W\x00-\x7f]", text)) > max(2, _MAX_FOREIGN * len(text)):
        return 0.0
    return len(_fitting(letters).findall(text)) / max(1, beyond)


@cache
def _fitting(letters: str) -> re.Pattern[str]:
    """Characters as texts have them.

    No capital follows a small letter, no punctuation but an apostrophe is inside a word, and no letter of another
    script than the Latin one is beside a Latin letter.
    """
    small, capitals = letters, re.sub("[a-z]", "", letters.upper(), flags=re.IGNORECASE)
    alone = ("(?<![A-Za-z])", "(?![A-Za-z])") if small[0] > "\u036f" else ("", "")
    return re.compile(
        rf"{alone[0]}(?:[{small}]|(?<![a-z{small}])[{capitals}]){alone[1]}"
        rf"|(?<!\w)[{_PUNCTUATION}]|[{_PUNCTUATION}](?!\w)|(?<=\w)[’·](?=\w)"
    )
