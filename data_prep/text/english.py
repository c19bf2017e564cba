"""Finds where English sentences end.

A sentence ends at a full stop, question mark, exclamation mark or ellipsis, with the quotation marks and brackets that
close after it, if white space and no small letter follow. So sentences inside quotations end, too. Exceptions:

- abbreviations and initials ("Mr. Will", "J. R. Jones", "U.S. Army", "No. 2"),
- a quotation whose speaker follows ('"Stop!" Alice cried.'),
- the number, the name of a speaker or the like that begins a paragraph ("IX. The Gods", "HAMLET. To be").

Colons, semicolons and dashes end no sentence.
"""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_BINDING, _NUMBERED, _EITHER, _STARTERS, _EXCLAIMED, _SAID = (
    frozenset(_TABLE[key].split()) for key in ("binding", "numbered", "either", "starters", "exclaimed", "said")
)
_TAILS = frozenset(word[-4:] for word in _BINDING | _NUMBERED | _EITHER | _EXCLAIMED)
_CANDIDATE = re.compile(
    r"""
    [.!?…] (?:
        (?<=[a-z]{4}[.!?]) \ (?=["“‘']?[A-Z]) ()  # most ends, found fast
        | (?<![.!?…]{2}) [.!?…]*+ (?: ["'”’»)\]}_*] | \ ["”](?=\s|$) )*  # a lone mark closes, too
        \s++ (?! (?<=\S\ )["”](?:\s|$) | [\sa-z.,;:!?)\]}”»&=/<>|–—-] | [(\[{][^A-Z"“‘'\d] | [‘'`][a-z] )
    )
    """,
    re.VERBOSE,
)
_CLOSING = " \"'”’»)]}_*"
_QUOTES = re.compile("[\"'”’»]")
_NEXT_WORD = re.compile(r"""["'“‘«(\[{`*_]*([A-Z]\.|[\w’'-]*)""")  # with its stop if it is an initial
_NUMBER = re.compile(r"[(\[{]*\d|[(\[{][IVXLC]+[)\]}]")
_LAST_PART = re.compile(r"[^-–—/(]*$")
_ACRONYM = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]")

_STARTER = rf"(?:{'|'.join(sorted(_STARTERS))})\b"
_NAME = r"[A-Z][a-z’'A-Z-]+"
_SPEAKER = re.compile(
    rf"(?:I|(?!{_STARTER})(?:(?:Mrs?|Ms|Dr|St)\.?\ )?{_NAME}(?:\ (?:de\ |of\ |the\ )?{_NAME}){{0,3}})"
    rf"\ (?:\w+ly\ |had\ |was\ |then\ )?(?:{'|'.join(sorted(_SAID))}|went\ on|burst\ out|broke\ in|put\ in)\b"
)
_LABEL = re.compile(  # "1. CAR.", "PRINCE OF Morocco.", "Bursal (aside).", "Friar Lawrence."; "1.2.", "IX.", "A."
    rf"""\s*(?:
        (?:\d{{1,3}}\.?\ )? (?:[A-Z][A-Z’'&-]+ (?:\.?\ [A-Z][\w’'&-]*){{0,4}} | [A-Z][a-z]+) (?:\ ?\([^()]{{1,60}}\))?
        | (?!{_STARTER}) [A-Z][a-z]+ \ [A-Z][a-z]+
        | \d{{1,3}}(?:\.\d{{1,3}}){{0,4}} | [IVXLC]{{1,7}} | [A-Z]
    )\.(?=\s)""",
    re.VERBOSE,
)
_LONGEST_LABEL = 150


def english_sentences(paragraph: str) -> Iterator[str]:
    """Yields the sentences of a paragraph, stripped. The paragraph must not be empty, or of white space alone."""
    length = len(paragraph)
    begin = 0  # of the sentence
    for match in _CANDIDATE.finditer(paragraph):
        first, after = match.span()
        if after == length:
            break
        if first < _LONGEST_LABEL and (label := _LABEL.match(paragraph)) and first < label.end():
            continue
        clear = match.lastindex and paragraph[first - 4 : first] not in _TAILS
        if clear or _ends(paragraph, begin, first, after, match[0].rstrip()):
            yield paragraph[begin:after].strip()
            begin = after
    yield paragraph[begin:].strip()


def _ends(paragraph: str, begin: int, first: int, after: int, stop: str) -> bool:
    """Whether the sentence that begins at `begin` ends at the mark at `first`.

    stop: the mark with the quotation marks and brackets that close after it. What follows them begins at `after`.
    """
    following = paragraph[after]
    if not following.isascii() and following.islower():
        return False
    closes_quotation = _QUOTES.search(stop) is not None
    # What stands before the mark, up to a blank: "Sept" in tokenised "Sept ." too; "" before ". . .".
    start = max(paragraph.rfind(" ", begin, first) + 1, begin)
    word = paragraph[start:first].lstrip("\"'“‘«([{`*_")
    word = word or (_word_before(paragraph, begin, first, " ") if stop[0] == "." else "")
    if stop.rstrip(_CLOSING)[-1] in "!?":  # it ends none before a speaker ('"Stop!" Alice cried.'), nor after "Oh"
        if closes_quotation:
            return _SPEAKER.match(paragraph, after) is None
        goes_on = following in '"“' and paragraph[after + 1 : after + 2].islower()
        return not goes_on and word not in _EXCLAIMED
    next_word = _NEXT_WORD.match(paragraph, after)[1]  # type: ignore[index]
    if stop.startswith(("..", "…")) or word.endswith("."):  # "well... I think", but not four points
        return stop.startswith("....") or next_word != "I"
    if not word.isalpha():
        word = _LAST_PART.search(word)[0]  # type: ignore[index]  # "Det.-Sgt", "thing?--Mr"
    if word in _BINDING or (word in _NUMBERED and _NUMBER.match(paragraph, after)):
        return False
    if word == "I" and not _word_before(paragraph, begin, first, "I ")[:1].isupper():
        return True  # "so say I. Draw", and not "World War I. Smith"
    if word in _EITHER or _ACRONYM.fullmatch(word) or (len(word) == 1 and word.isupper()):  # it may end a sentence
        is_quoted = closes_quotation or (len(word) > 2 and following in '"“')
        return is_quoted or next_word in _STARTERS or next_word == "I"
    return True


def _word_before(paragraph: str, begin: int, first: int, skipped: str) -> str:
    """The last word before the mark at `first`, without the signs of `skipped` at its end."""
    return paragraph[max(begin, first - 50) : first].rstrip(skipped).rpartition(" ")[2]
