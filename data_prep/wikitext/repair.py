"""Punctuation around what was dropped: no empty parentheses, doubled commas or blanks before a full stop."""

import re

from data_prep.wikitext.marks import HOLE, SAID, SAID_END, UNKNOWN

_OPEN, _CLOSED = "\ue005", "\ue006"  # parentheses that have been looked at
_MARK = re.compile(f"[{HOLE}{SAID}{UNKNOWN}]")
_GROUP = re.compile(r"\(([^()]*)\)")
_SEPARATOR = re.compile(rf"\s*([;,])(?=\s|$|[{HOLE}{SAID}])\s*")
_SAID = re.compile(rf"\s*{SAID}([^{SAID_END}]*){SAID_END}")
# What only leads up to a pronunciation or a dropped template, and says nothing without it.
_LEADING = (
    r"(?:pronounced|pronunciation|pron\.?|ipa|locally|also|or|and|in|is|listen|local|native|as|traditionally|usually"
    r"|sometimes|commonly|rarely|the|u\.?s\.?|u\.?k\.?|rp|ga|american|british|australian|canadian|english|years|ago|born"
    r"|age|aged|respectively|see|stress|on|first|second|third|syllable|with)"
)
_EMPTY_PART = re.compile(rf"(?:{HOLE}|\s|[/:,'\"“”–-]|\b{_LEADING}\b\.?:?)*", re.IGNORECASE)
# A sentence that speaks of the sound itself needs it: "the vowel /a/", "pronounced /a/".
_SPEAKS_OF_SOUND = re.compile(rf"(?:(?:^|\s)[a-z]+[:,]?|[/{SAID_END}],?)$")
_SOUND_WORD = re.compile(
    r"(?:^|\s)(?:vowels?|consonants?|phonemes?|sounds?|named|as|like|to|of|is|and|or|than|with|by)$"
)
_QUOTING = ("⟨", '"', "“", "‘", "'", "[", "/")
_ELLIPSIS = re.compile(r"\. \. \.(?: \.)?")
# A blank before a full stop or comma: left by a reference that stood between, or typed.
_LOOSE_STOP = re.compile(r"(?<=[\w)\]%\"'”’]) ([.,;]|(?<=\w\w ):)(?= [^.,;(]|$)")
_AT_START = re.compile(rf"^(?:{HOLE}[\s{HOLE}]*[.,;:]*\s*)+")
_BEFORE_SEPARATOR = re.compile(rf"\s*[,;:]\s*{HOLE}[\s{HOLE}]*(?=[,;:.)])")  # "a, ⌀, b": the later mark stays
_BEFORE_STOP = re.compile(rf"\s*{HOLE}[\s{HOLE}]*(?=[.,;:!?)\]’”](?:\s|$|[{HOLE}\"'”’)\]]))")
_AFTER_BLANK = re.compile(rf"(?<=[\s(\[“‘]){HOLE}[\s{HOLE}]*")


def repair(text: str) -> str:
    """Mends one paragraph: what is left around a HOLE or a pronunciation, and blanks before a full stop or a comma.

    An ellipsis typed as ". . ." becomes "...".
    """
    if _MARK.search(text):
        text = _repair_marked(text)
    return _LOOSE_STOP.sub(r"\1", _ELLIPSIS.sub("...", text).strip())


def _repair_marked(text: str) -> str:
    before = None
    while before != text:  # from the innermost parentheses outwards
        before = text
        text = _GROUP.sub(_repair_group, text)
    text = text.replace(_OPEN, "(").replace(_CLOSED, ")")
    text = _SAID.sub(lambda match: _keep_sound(match, _SPEAKS_OF_SOUND), text)
    text = _AT_START.sub("", text)
    text = _BEFORE_SEPARATOR.sub("", text)
    text = _BEFORE_STOP.sub("", text)
    return _AFTER_BLANK.sub("", text).replace(HOLE, "")


def _keep_sound(match: re.Match[str], reason: re.Pattern[str]) -> str:
    """A pronunciation in running text, or nothing where it only accompanies a name."""
    before = match.string[max(0, match.start() - 40) : match.start()]
    if match[0].startswith(SAID) and before.endswith(_QUOTING):
        return match[1]  # ⟨⌀⟩, "⌀": the sentence is about it
    return f" {match[1]}" if reason.search(before) else ""


def _repair_group(match: re.Match[str]) -> str:
    """A pair of parentheses with nothing nested: its empty parts go, and it goes itself when nothing is left."""
    content = match[1]
    if not _MARK.search(content):
        return f"{_OPEN}{content}{_CLOSED}"
    parts = _SEPARATOR.split(content)  # part, separator, part, ...
    text = ""
    for index in range(0, len(parts), 2):
        part = parts[index]
        if UNKNOWN in part:
            continue
        is_marked = _MARK.search(part)
        if not part.strip() or (is_marked and _EMPTY_PART.fullmatch(_SAID.sub(HOLE, part))):
            continue
        part = _SAID.sub(lambda said: _keep_sound(said, _SOUND_WORD), part)
        text += f"{parts[index - 1]} {part}" if text else part
    text = re.sub(rf"(?<=\s){HOLE}\s*|\s*{HOLE}$|{HOLE}", "", text).strip()
    return f"{_OPEN}{text}{_CLOSED}" if text else HOLE
