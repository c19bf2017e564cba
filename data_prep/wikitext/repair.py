"""Punctuation around what was dropped: no empty parentheses, doubled commas or blanks before a full stop."""

import re

from data_prep.wikitext.marks import HOLE, SAID, SAID_END

_ANY_MARK = re.compile(f"[{HOLE}{SAID}]")
_SAID = re.compile(f"{SAID}[^{SAID_END}]*{SAID_END}")
_OPEN, _CLOSED = "\ue005", "\ue006"  # parentheses that have been looked at
_GROUP = re.compile(r"\(([^()]*)\)")
# What only leads up to a pronunciation, and says nothing without it.
_LEADING = (
    r"(?:pronounced|pronunciation|pronounciation|pron\.?|ipa|locally|also|or|and|in|is|listen|local|native|as|traditionally"
    r"|usually|sometimes|commonly|rarely|the|u\.?s\.?|u\.?k\.?|rp|ga|american|british|australian|canadian|english|years|ago|born|age|aged"
    r"|respectively|see|stress|on|first|second|third|syllable|with)"
)
_EMPTY_PART = re.compile(rf"(?:{HOLE}|\s|[/:,'\"“”–-]|\b{_LEADING}\b\.?:?)*", re.IGNORECASE)
_SEPARATOR = re.compile(r"\s*([;,])(?=\s|$|[\ue000\ue001])\s*")


def repair(text: str) -> str:
    """Mends one paragraph where a HOLE or a pronunciation is marked; leaves any other untouched."""
    if not _ANY_MARK.search(text):
        return text
    before = None
    while before != text:  # from the innermost parentheses outwards
        before = text
        text = _GROUP.sub(_repair_group, text)
    text = text.translate({ord(_OPEN): "(", ord(_CLOSED): ")", ord(SAID): None, ord(SAID_END): None})
    if HOLE not in text:
        return text
    text = re.sub(rf"\s*([,;:])\s*{HOLE}[\s{HOLE}]*(?=[,;:.)])", "", text)  # "a, ⌀, b": the later mark stays
    text = re.sub(rf"\s*{HOLE}[\s{HOLE}]*(?=[.,;:!?)\]’”](?:\s|$|[{HOLE}\"'”’)\]]))", "", text)
    text = re.sub(rf"(?<=[(\[“‘]){HOLE}[\s{HOLE}]*", "", text)
    text = re.sub(rf"(?<=\s){HOLE}\s*|^{HOLE}\s*", "", text)
    return text.replace(HOLE, "")


def _repair_group(match: re.Match[str]) -> str:
    """A pair of parentheses with nothing nested: its empty parts go, and it goes itself when nothing is left."""
    content = match[1]
    if not _ANY_MARK.search(content):
        return f"{_OPEN}{content}{_CLOSED}"
    parts = _SEPARATOR.split(content)  # part, separator, part, ...
    kept: list[str] = []
    for index in range(0, len(parts), 2):
        part = parts[index]
        is_marked = _ANY_MARK.search(part)
        if is_marked and _EMPTY_PART.fullmatch(_SAID.sub(HOLE, part)):
            continue
        if not is_marked and not part.strip():
            continue
        if kept:
            kept.append(parts[index - 1])
        kept.append(part)
    if not kept:
        return HOLE
    text = kept[0]
    for separator, part in zip(kept[1::2], kept[2::2]):
        text += f"{separator} {part}"
    text = re.sub(rf"(?<=\s){HOLE}\s*|\s*{HOLE}$|{HOLE}|[{SAID}{SAID_END}]", "", text)
    return f"{_OPEN}{text.strip()}{_CLOSED}"
