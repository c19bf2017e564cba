"""Repairs punctuation around removed things: empty parentheses, doubled commas, blanks before a full stop."""

import re

from data_prep.wikitext.markers import PRONUNCIATION, PRONUNCIATION_END, REMOVED, UNKNOWN_AMOUNT

_OPEN, _CLOSED = "\ue005", "\ue006"  # parentheses that are done
_MARKER = re.compile(f"[{REMOVED}{PRONUNCIATION}{UNKNOWN_AMOUNT}]")
_GROUP = re.compile(r"\(([^()]*)\)")
_SEPARATOR = re.compile(rf"\s*([;,])(?=\s|$|[{REMOVED}{PRONUNCIATION}])\s*")
_PRONUNCIATION = re.compile(rf"\s*{PRONUNCIATION}([^{PRONUNCIATION_END}]*){PRONUNCIATION_END}")
# Words that only introduce a pronunciation or a removed template, and mean nothing without it.
_LEADING = (
    r"(?:pronounced|pronunciation|pron\.?|ipa|locally|also|or|and|in|is|listen|local|native|as|traditionally|usually"
    r"|sometimes|commonly|rarely|the|u\.?s\.?|u\.?k\.?|rp|ga|american|british|australian|canadian|english|years|ago|born"
    r"|age|aged|respectively|see|stress|on|first|second|third|syllable|with)"
)
_EMPTY_PART = re.compile(rf"(?:{REMOVED}|\s|[/:,'\"“”–-]|\b{_LEADING}\b\.?:?)*", re.IGNORECASE)
# A sentence about the sound itself needs the pronunciation: "the vowel /a/", "pronounced /a/".
_SPEAKS_OF_SOUND = re.compile(rf"(?:(?:^|\s)[a-z]+[:,]?|[/{PRONUNCIATION_END}],?)$")
_SOUND_WORD = re.compile(
    r"(?:^|\s)(?:vowels?|consonants?|phonemes?|sounds?|named|as|like|to|of|is|and|or|than|with|by)$"
)
_QUOTING = ("⟨", '"', "“", "‘", "'", "[", "/")
_ELLIPSIS = re.compile(r"\. \. \.(?: \.)?")
# A blank before a full stop or comma: typed, or left by a reference that was removed.
_LOOSE_STOP = re.compile(r"(?<=[\w)\]%\"'”’]) ([.,;]|(?<=\w\w ):)(?= [^.,;(]|$)")
_AT_START = re.compile(rf"^(?:{REMOVED}[\s{REMOVED}]*[.,;:]*\s*)+")
_BEFORE_SEPARATOR = re.compile(rf"\s*[,;:]\s*{REMOVED}[\s{REMOVED}]*(?=[,;:.)])")  # "a, ⌀, b": the later comma stays
_BEFORE_STOP = re.compile(rf"\s*{REMOVED}[\s{REMOVED}]*(?=[.,;:!?)\]’”](?:\s|$|[{REMOVED}\"'”’)\]]))")
_AFTER_BLANK = re.compile(rf"(?<=[\s(\[“‘]){REMOVED}[\s{REMOVED}]*")


def repair(text: str) -> str:
    """Repairs one paragraph around the markers REMOVED and PRONUNCIATION, and blanks before a full stop or comma.

    An ellipsis typed as ". . ." becomes "...".
    """
    if _MARKER.search(text):
        text = _repair_around_markers(text)
    return _LOOSE_STOP.sub(r"\1", _ELLIPSIS.sub("...", text).strip())


def _repair_around_markers(text: str) -> str:
    before = None
    while before != text:  # from the innermost parentheses outwards
        before = text
        text = _GROUP.sub(_repair_group, text)
    text = text.replace(_OPEN, "(").replace(_CLOSED, ")")
    text = _PRONUNCIATION.sub(lambda match: _keep_pronunciation(match, _SPEAKS_OF_SOUND), text)
    text = _AT_START.sub("", text)
    text = _BEFORE_SEPARATOR.sub("", text)
    text = _BEFORE_STOP.sub("", text)
    return _AFTER_BLANK.sub("", text).replace(REMOVED, "")


def _keep_pronunciation(match: re.Match[str], reason: re.Pattern[str]) -> str:
    """Returns a pronunciation in running text, or "" if it only accompanies a name."""
    before = match.string[max(0, match.start() - 40) : match.start()]
    if match[0].startswith(PRONUNCIATION) and before.endswith(_QUOTING):
        return match[1]  # in quotation marks or brackets: the sentence is about it
    return f" {match[1]}" if reason.search(before) else ""


def _repair_group(match: re.Match[str]) -> str:
    """Removes the empty parts of a pair of parentheses without nested ones, and the pair if nothing is left."""
    content = match[1]
    if not _MARKER.search(content):
        return f"{_OPEN}{content}{_CLOSED}"
    parts = _SEPARATOR.split(content)  # part, separator, part, ...
    text = ""
    for index in range(0, len(parts), 2):
        part = parts[index]
        if UNKNOWN_AMOUNT in part:
            continue
        is_marked = _MARKER.search(part)
        if not part.strip() or (is_marked and _EMPTY_PART.fullmatch(_PRONUNCIATION.sub(REMOVED, part))):
            continue
        part = _PRONUNCIATION.sub(lambda said: _keep_pronunciation(said, _SOUND_WORD), part)
        text += f"{parts[index - 1]} {part}" if text else part
    text = re.sub(rf"(?<=\s){REMOVED}\s*|\s*{REMOVED}$|{REMOVED}", "", text).strip()
    return f"{_OPEN}{text}{_CLOSED}" if text else REMOVED
