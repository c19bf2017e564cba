"""Finds where English sentences end.

A sentence ends at a full stop, question mark, exclamation mark or ellipsis, with the quotation marks and brackets that
close after it, if white space and no small letter follow. So sentences inside quotations end, too. Exceptions:

- abbreviations and initials ("Mr. Will", "J. R. Jones", "U.S. Army", "No. 2"),
- a quotation whose speaker follows ('"Stop!" Alice cried.'),
- the number, the name of a speaker or the like that begins a paragraph ("IX. The Gods", "HAMLET. To be").

Colons, semicolons and dashes end no sentence.
"""

import re
from collections.abc import Iterator

_CANDIDATE = re.compile(
    r"""
    [.!?…]+ (?: ["'”’»)\]}_*]+ | \ ["”](?=\s) )*  # a lone quotation mark belongs to what it closes
    \s+ (?! [a-z.,;:!?)\]}”»&=/–—-] | [(\[{][^A-Z"“‘'\d] | [‘'`][a-z] )
    """,
    re.VERBOSE,
)
# Before a name, hence never at the end of a sentence.
_TITLES = frozenset(
    "Mr Mrs Ms Messrs Mmes Mme Mlle Dr Drs Prof Profs Rev Revd Fr Sr. St Ste Mt Ft Hon Rt Gen Brig Col Lt Maj Capt Cpt"
    " Sgt Cpl Pvt Adm Cmdr Comdr Cdr Gov Sen Rep Reps Sens Pres Supt Insp Det Amb Mgr Msgr Bp Abp Esqr Gens Cols Capts"
    " Lieut Serg Sergt Dept".split()
)
# Before what they abbreviate, refer to or compare.
_BINDING = frozenset("vs v viz cf e.g i.e eg ie ca approx c.f b d fl r i.q resp incl esp op".split())
# Before a number.
_NUMBERED = frozenset(
    "No Nos no nos Vol Vols vol vols p pp P PP Pp ch Ch chap Chap sec Sec Sect sect fig Fig figs Figs Art art Op op"
    " ver Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec c ff l ll v vv Ps eq Eq Eqs eqs Ref Refs par Par Bd bk Bk"
    " pt Pt pl Pl n A.D AD".split()
)
# At the end of a sentence or inside one.
_EITHER = frozenset(
    "Jr Sr Inc Ltd Co Cos Corp Bros Esq Assn Assoc Univ Inst Dist Ave Blvd Rd Hwy Jan Feb Aug Sept Oct Nov Dec Ph.D Bn"
    " Bde Regt Calif Mass Conn Penn Wis Ill Fla Ga Va Md Ala Ariz Ark Colo Ind Kan Mich Minn Miss Mo Mont Neb Nev Okla"
    " Ore Tenn Tex Vt Wash Wyo lit trans ed eds est Phys Rev Proc Acad Soc Int Natl Am".split()
)
# A capital after an abbreviation tells nothing, because a name has one, too. These words hardly occur in names.
_STARTERS = frozenset(
    "The A An In It He She They We You I This That These Those There Here His Her Their Its Our My Your But And Or So"
    " However Although Though As At After Before Between Among When While Where Whether On For From By With Without To"
    " Into Under Over If Since Some Many Most Much Both Each Every Either Neither During One Two Three Several Other"
    " Others Another Because Despite Thus Then Therefore Hence Also Once Today Later Now According All Any No Not"
    " Nevertheless Moreover Furthermore Additionally Finally First Only Such What Who Whose Why How Which Through"
    " Throughout Until Unlike Upon Within Instead Indeed Perhaps Even Yet Still Meanwhile Like Various Currently".split()
)
_OPENING = "\"'“‘«([{`*_"
_WORD = re.compile(r"[\w’'-]*")
_QUOTES = re.compile("[\"'”’»]")
_EXCLAIMED = frozenset(["Yahoo", "Jeopardy", "Wham"])  # names that end in a mark
_ACRONYM = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]")

_SAID = (
    r"(?:said|says|cried|asked|replied|answered|exclaimed|[ei]nquired|demanded|returned|shouted|whispered|murmured"
    r"|muttered|called|continued|added|thought|screamed|shrieked|roared|repeated|remarked|observed|retorted|began|went"
    r"|interrupted|ejaculated|responded|gasped|groaned|growled|sobbed|snapped|yelled|sighed|laughed|faltered|stammered"
    r"|panted|protested|suggested|insisted|pleaded|begged|urged|burst|broke|put|sang|wondered|told|wrote)"
)
_NAME = r"[A-Z][a-z’'A-Z-]+"
_SPEAKER = re.compile(
    rf"(?!(?:{'|'.join(sorted(_STARTERS - {'I'}))})\b)"
    rf"(?:I|(?:(?:Mrs?|Ms|Dr|St)\.?\ )?{_NAME}(?:\ (?:de\ |of\ |the\ )?{_NAME}){{0,3}})"
    rf"\ (?:\w+ly\ |had\ |was\ |then\ )?(?:{_SAID}|beginning|saying|asking)\b"
)
_LABEL = re.compile(  # "1. CAR.", "PRINCE OF Morocco.", "Friar Lawrence.", "Bursal (aside)."; "IX.", "1.2."
    r"""\s*(?:
        (?:\d+\.?\ )? (?: [A-Z][A-Z’'&-]+ (?: \.?\ [A-Z][\w’'&-]* ){0,4} | [A-Z][a-z]+(?:\ [A-Z][a-z]+)? )
            (?:\ ?\([^()]{1,60}\))?
        | \d{1,3}(?:\.\d{1,3})* | [IVXLC]{1,7} | [A-Z]
    )\.(?=\s)""",
    re.VERBOSE,
)


def sentence_ends(paragraph: str) -> Iterator[int]:
    """Yields the offsets behind each sentence but the last, in order, each behind the white space that follows it."""
    label: int | None = None
    begin = 0  # of the sentence
    for match in _CANDIDATE.finditer(paragraph):
        first, after = match.span()
        if after == len(paragraph):
            return
        if label is None:
            found = _LABEL.match(paragraph)
            label = found.end() if found else 0
        if first < label or not _ends(paragraph, match, begin):
            continue
        yield after
        begin = after


def _ends(paragraph: str, match: re.Match[str], begin: int) -> bool:
    """Whether a sentence that begins at `begin` ends at the candidate."""
    first, after = match.span()
    following = paragraph[after]
    if not following.isascii() and following.islower():
        return False
    stop = match[0].rstrip()
    mark = stop.rstrip(_CLOSING)[-1]
    if mark in "!?":
        if _QUOTES.search(stop):
            return _SPEAKER.match(paragraph, after) is None
        if following in '"“' and paragraph[after + 1 : after + 2].islower():
            return False
        return paragraph[paragraph.rfind(" ", begin, first) + 1 : first] not in _EXCLAIMED
    word = paragraph[max(paragraph.rfind(" ", begin, first) + 1, begin) : first].lstrip(_OPENING)
    if stop.startswith((".", "…")) and (stop.startswith(("..", "…")) or not word):  # "...", ". . ."
        return _next_word(paragraph, after) != "I" or stop.startswith("....")
    if word.isalpha() and len(word) > 1 and word not in _SHORT:
        return True
    if word in _TITLES or word in _BINDING:
        return False
    if following.isdigit() and word in _NUMBERED:
        return False
    if word in _EITHER or _ACRONYM.fullmatch(word) or (len(word) == 1 and word.isupper()):
        if _QUOTES.search(stop):
            return True
        return _next_word(paragraph, after) in _STARTERS or (len(word) > 2 and following in '"“')
    return True


def _next_word(paragraph: str, start: int) -> str:
    while start < len(paragraph) and paragraph[start] in _OPENING:
        start += 1
    found = _WORD.match(paragraph, start)
    return found[0] if found else ""


_CLOSING = " \"'”’»)]}_*"
_SHORT = _TITLES | _BINDING | _NUMBERED | _EITHER
