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


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CANDIDATE = re.compile(
    r"""
    [.!?…] (?:
        (?<=[a-z]{4}[.!?]) \ (?=["“‘']?[A-Z]) ()  # most ends, found fast
        | (?<![.!?…]{2}) [.!?…]*+ (?: ["'”’»)\]}_*] | \ ["”](?=\s|$) )*+  # a lone mark closes, too
        \s++ (?! [\sa-z.,;:!?)\]}”»&=/<>|–—-] | [(\[{][^A-Z"“‘'\d] | [‘'`][a-z] )
    )
    """,
    re.VERBOSE,
)
_CLOSING = " \"'”’»)]}_*"
_QUOTES = re.compile("[\"'”’»]")
_NEXT_WORD = re.compile(r"""["'“‘«(\[{`*_]*([A-Z]\.|[\w’'-]*)""")  # with its stop if it is an initial
_LAST_PART = re.compile(r"[^-–—/(]*$")
_ACRONYM = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]")

# Abbreviations before a name or before what they refer to. They never end a sentence.
_BINDING = _words(
    """
    Mr Mrs Ms Messrs Mmes Mme Mlle Mdlle Dr Drs Prof Profs Rev Revd Fr St Ste Mt Ft Hon Rt Gen Gens Brig Col Cols Lt
    Lieut Maj Capt Capts Cpt Sgt Serg Sergt Cpl Pvt Adm Cmdr Comdr Cdr Gov Sen Sens Rep Reps Pres Supt Insp Det Amb
    Mgr Msgr Bp Abp Dept MR MRS DR
    vs v viz cf c.f e.g i.e eg ie ca approx b d fl r i.q resp incl esp op
    """
)
# Abbreviations before a number.
_NUMBERED = _words(
    """
    No Nos no nos Vol Vols vol vols p pp P PP Pp ch Ch chap Chap sec Sec Sect sect fig Fig figs Figs Art art Op ver Jan
    Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec c ff l ll vv Ps eq Eq Eqs eqs Ref Refs par Par Bd bk Bk pt Pt pl Pl n
    A.D AD para paras
    """
)
# Abbreviations at the end of a sentence or inside one.
_EITHER = _words(
    """
    Jr Sr Inc Ltd Co Cos Corp Bros Mfg Esq Assn Assoc Univ Inst Dist Ave Blvd Rd Hwy Jan Feb Aug Sept Oct Nov Dec Ph.D
    Bn Bde Regt Calif Mass Conn Penn Wis Ill Fla Ga Va Md Ala Ariz Ark Colo Ind Kan Mich Minn Miss Mo Mont Neb Nev Okla
    Ore Tenn Tex Vt Wash Wyo lit trans ed eds est Phys Rev Proc Acad Soc Int Natl Am
    """
)
_SHORT = _BINDING | _NUMBERED | _EITHER
# A capital after an abbreviation tells nothing, because a name has one, too. These words hardly occur in names.
_STARTERS = _words(
    """
    The A An In It He She They We You This That These Those There Here His Her Their Its Our My Your But And Or So
    However Although Though As At After Before Between Among When While Where Whether On For From By With Without To
    Into Under Over If Since Some Many Most Much Both Each Every Either Neither During One Two Three Several Other
    Others Another Because Despite Thus Then Therefore Hence Also Once Today Later Now According All Any No Not
    Nevertheless Moreover Furthermore Additionally Finally First Only Such What Who Whose Why How Which Through
    Throughout Until Unlike Upon Within Instead Indeed Perhaps Even Yet Still Meanwhile Like Various Currently
    """
)
_EXCLAIMED = _words("Yahoo Jeopardy Wham")  # names that end in a mark
_TAILS = frozenset(word[-4:] for word in _SHORT | _EXCLAIMED)
_SAID = _words(
    """
    said says cried asked replied answered exclaimed inquired enquired demanded returned shouted whispered murmured
    muttered called continued added thought screamed shrieked roared repeated remarked observed retorted began
    interrupted ejaculated responded gasped groaned growled sobbed snapped yelled sighed faltered stammered panted
    protested suggested insisted pleaded begged urged resumed rejoined remonstrated hazarded argued declared explained
    objected persisted echoed implored bawled bellowed drawled laughed beginning saying asking
    """
)
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
        if clear or _ends(paragraph, match, begin):
            yield paragraph[begin:after].strip()
            begin = after
    yield paragraph[begin:].strip()


def _ends(paragraph: str, match: re.Match[str], begin: int) -> bool:
    """Whether the sentence that begins at `begin` ends at the candidate."""
    first, after = match.span()
    following = paragraph[after]
    if not following.isascii() and following.islower():
        return False
    stop = match[0].rstrip()
    word = paragraph[max(paragraph.rfind(" ", begin, first) + 1, begin) : first].lstrip("\"'“‘«([{`*_")
    if stop.rstrip(_CLOSING)[-1] in "!?":
        if _QUOTES.search(stop):
            return _SPEAKER.match(paragraph, after) is None
        if following in '"“' and paragraph[after + 1 : after + 2].islower():
            return False
        return word not in _EXCLAIMED
    if not word and stop[0] == ".":  # "Sept ." in tokenised text, and ". . ."
        word = paragraph[max(begin, first - 50) : first].rstrip().rpartition(" ")[2]
    if stop.startswith(("..", "…")) or word.endswith("."):
        return stop.startswith("....") or _next_word(paragraph, after) != "I"
    if not word.isalpha():
        word = _LAST_PART.search(word)[0]  # type: ignore[index]  # "Det.-Sgt", "thing?--Mr"
    elif len(word) > 1 and word not in _SHORT:
        return True
    if word in _BINDING or (following.isdigit() and word in _NUMBERED):
        return False
    if word == "I":  # "so say I. Draw", and not "World War I. Smith"
        before = paragraph[max(begin, first - 50) : first].rstrip("I ").rpartition(" ")[2]
        if not before[:1].isupper():
            return True
    if word in _EITHER or _ACRONYM.fullmatch(word) or (len(word) == 1 and word.isupper()):
        next_word = _next_word(paragraph, after)
        quotation = bool(_QUOTES.search(stop)) or (len(word) > 2 and following in '"“')
        return quotation or next_word in _STARTERS or next_word == "I"
    return True


def _next_word(paragraph: str, start: int) -> str:
    return _NEXT_WORD.match(paragraph, start)[1]  # type: ignore[index]
