"""Templates of words and signs: formatting, punctuation, quotations, links and names."""

import re
from collections.abc import Callable

from data_prep.wikitext.arguments import Arguments, names
from data_prep.wikitext.marks import EQUALS, HOLE, PIPE

Renderer = Callable[[Arguments], str]


def first(arguments: Arguments) -> str:
    """{{nowrap|words}}: the words."""
    return arguments[0]


def _second(arguments: Arguments) -> str:
    """{{lang|fr|mot}}: the second argument, or the only one."""
    return arguments.get(1) or arguments[0]


def _last(arguments: Arguments) -> str:
    """{{transl|ar|ALA|al-Jazāʾir}}: whatever stands last."""
    return arguments.positional[-1]


def _constant(text: str) -> Renderer:
    return lambda arguments: text


def _around(before: str, after: str = "") -> Renderer:
    return lambda arguments: f"{before}{arguments[0]}{after}"


def _joined(separator: str) -> Renderer:
    return lambda arguments: separator.join(filter(None, arguments.positional)) or HOLE


def _ship(arguments: Arguments) -> str:
    """{{USS|Hornet|CV-12}} "USS Hornet"; {{ship|HMS|Ajax}} "HMS Ajax"; {{sclass|Iowa|ship}} "Iowa-class ship"."""
    if arguments.template == "ship":
        return f"{arguments[0]} {arguments[1]}"
    if arguments.template.startswith("sclass"):
        return f"{arguments[0]}-class {arguments.get(1)}".strip()
    return arguments[0] if arguments.get(2) == "2" else f"{arguments.template.upper()} {arguments[0]}"


def _interlanguage_link(arguments: Arguments) -> str:
    """{{ill|Title|de|Titel|lt=words}}, or the older {{ill|de|Titel|Title}}."""
    if shown := arguments.get("lt"):
        return shown
    is_old_order = re.fullmatch(r"[a-z]{2,3}", arguments[0])
    return (arguments.get(2) or arguments[1]) if is_old_order else arguments[0]


def _sic(arguments: Arguments) -> str:
    """{{sic|teh}} shows the slip; without words of its own it is only a remark."""
    return " ".join(part for part in arguments.positional[:2] if part and part != "hide") or HOLE


def _quotation(arguments: Arguments) -> str:
    """{{quote|text|speaker}}: a paragraph of its own, without its attribution."""
    return f"\n\n{arguments.get('text') or arguments.get('quote') or arguments[0]}\n\n"


def _verse(arguments: Arguments) -> str:
    """{{bibleverse|Mark|3:25|NIV}} "Mark 3:25"; {{bibleverse|1|Kings|2:3}} "1 Kings 2:3"."""
    count = 3 if arguments[0].isdecimal() else 2
    return " ".join(filter(None, arguments.positional[:count]))


def _atoms(arguments: Arguments) -> str:
    """{{chem|C|2|H|6|O}} "C2H6O": symbols and counts run together."""
    return "".join(arguments.positional).replace("_", "")


def _nuclide(arguments: Arguments) -> str:
    """{{nuclide|einsteinium|254}} "einsteinium-254"."""
    return f"{arguments[0]}-{arguments[1]}"


def _flag(arguments: Arguments) -> str:
    """{{flag|France|name=words}}: the country's name beside its flag."""
    return arguments.get("name") or arguments[0]


def _dental_formula(arguments: Arguments) -> str:
    """{{DentalFormula|upper=0.0.2.3|lower=0.0.2.3}}: one over the other."""
    return f"{arguments.get('upper')} / {arguments.get('lower')}"


def _nihongo(arguments: Arguments) -> str:
    """{{nihongo|words|kanji|romaji|extra}} "words (kanji, romaji, extra)"."""
    shown, *others = filter(None, (arguments.get(index) for index in range(4)))
    return f"{shown} ({', '.join(others)})" if others else shown


def _music(arguments: Arguments) -> str:
    """{{music|flat}} "♭", {{music|time|3|4}} "3/4"."""
    if arguments[0] == "time":
        return f"{arguments[1]}/{arguments[2]}"
    signs = {"flat": "♭", "b": "♭", "sharp": "♯", "#": "♯", "natural": "♮", "n": "♮"}
    return signs.get(arguments[0], arguments[0])


_FAMILIES: dict[Renderer, str] = {
    first: """
        nowrap|nobr|nowraplinks|small|smaller|big|large|larger|huge|midsize|center|centre|sc|small caps|smallcaps|aut
        nq|pre2
        not a typo|not typo|typo|proper name|as written|abbr|tooltip|h:title|kbd|key press|keypress|key|code|mono|var
        mvar
        math|strong|em|italics|italic|bold|b|i|u|underline|overline|unicode|polytonic|hebrew|mxt|xt|!xt|tq|year|fy|avyear
        nfly|mlby|wy|scy|baseball year|nhly|nbay|cfb year|mlb year|nfl year|nba year|nhl year|by|noitalic|noitalics
        roman
        player|fb|fbw|delink|serif|sans-serif|gr|vr|nastaliq|gene|vanchor|visible anchor|birth-date|death-date
        start-date
        end-date|birth year and age|death year and age|spell|chem name|chemname|transcript|crossreference|nobold
        native name
        linktext-1|rtl-para|hidden text|marriage|contentious|currency|circle|sup|sub|uncial|tt
        """,
    _second: """
        lang|rtl-lang|wikt-lang|wt-lang|resize|font|color|colour|sort|nts|hs|audio|font color|fontcolor|size
        text color|script
        colored link|pronunciation|native name|wikt|stylize
        """,
    _last: "transl|transliteration|translit|tlit|xlit|semxlit|hebrew transliteration",
    _joined(""): "linktext|chem2|h2|gap fill",
    _joined(", "): "hlist|flatlist|ubl|unbulleted list|comma separated entries|cslist|plain list|enum",
    _joined(" "): "postnominals|post-nominals|post nominals|ordered name",
    _atoms: "chem|chem/disp|chem/link",
    _nuclide: "nuclide|nuclide2|simplenuclide|simplenuclide2",
    _ship: """
        ship|sclass|sclass-|sclass2|uss|hms|hmas|hmcs|hmnzs|rms|ss|mv|ms|ins|usns|uscgc|sms|hnlms|hdms|hswms|rfa|gts|sv|ps|ov
        mts|usat|usrc|orp|css|uscg|hmy|rv|tss
        """,
    _interlanguage_link: "ill|interlanguage link|link-interwiki|iw|interlanguage link multi",
    _sic: "sic",
    _quotation: """
        quote|blockquote|quotation|cquote|bquote|rquote|poemquote|poem quote|verse translation|centered pull quote
        pull quote
        long quote|quoteblock|block quote|block quotation
        """,
    _around('"', '"'): 'inline quote|""|quote inline',
    _verse: "bibleref|bibleref2|bibleverse|bible verse|bibleverse-nb|bverse|bibleref2-nb|bibleverse-lb|bibleref2c",
    _flag: """
        flag|flagcountry|flagu|flagteam|flagathlete|country|noflag|flag country|army|navy|air force|flag+link
        """,
    _nihongo: "nihongo|nihongo3|nihongo foot|nihongo krt|nihongo2",
    _music: "music",
    _dental_formula: "dentalformula|dental formula",
    _around("⟨", "⟩"): "angbr|angle bracket|grapheme|angbr ipa|angle",
    _around("Quran "): "quran|qref|quran-usc",
    _around("√"): "sqrt|radic|square root",
    _around("|", "|"): "abs|absolute value",
    _around("née "): "nee|née|born as",
    _around("ISBN "): "isbn",
    _around("ISSN "): "issn",
    _around("OCLC "): "oclc",
    _around("doi:"): "doi",
    _around("arXiv:"): "arxiv",
    _around("PMID "): "pmid",
    _constant("'s"): "'s|s'|apostrophe s",
    _constant("'"): "'|`|’|-'|apostrophe|'-",
    _constant("' \""): "' \"|'\"|\"'",
    _constant('"'): '-"|"-|"|double quote',
    _constant(PIPE): "!|pipe|bar|vertical bar",
    _constant(EQUALS): "=|equals",
    _constant("{"): "(",
    _constant("}"): ")",
    _constant(" "): """
        nbsp|spaces|thinsp|thin space|hair space|hsp|spc|ensp|emsp|pad|in5|nb5|nb10|gap|figure space|br|break|nnbsp
        tab|indent
        long space|paragraph break|pb
        """,
    _constant(
        " – "
    ): "snd|snds|spaced ndash|spaced en dash|spnd|sndash|spndash|spaced endash|dash|spaced en dash space|–s",
    _constant("–"): "ndash|en dash|endash|--|–",
    _constant("—"): "mdash|em dash|emdash|mdashb|spaced mdash|---|—|smd",
    _constant(" · "): "·|dot|middot|•|bullet|\\|spaced dot|bold middot|sdot|bull",
    _constant("…"): "...|ellipsis|…",
    _constant("ʻ"): "okina|ʻokina|'okina|ayin|ayn",
    _constant("ʼ"): "hamza|hamzah|alif|saltillo",
    _constant("×"): "x|times|×",
    _constant("−"): "minus|−",
    _constant("±"): "+-|±|plus-minus|pm",
    _constant("⇌"): "eqm|equilibrium",
    _constant("→"): "yields|rarr",
    _constant("π"): "pi",
    _constant("°"): "degree|deg",
    _constant("♭"): "flat|music flat",
    _constant("♯"): "sharp|music sharp",
    _constant("current"): "currentyear|currentmonthname",
    _constant("C"): "carbon",
    _constant("H"): "hydrogen",
    _constant("N"): "nitrogen",
    _constant("O"): "oxygen",
}
RENDERERS: dict[str, Renderer] = {name: renderer for renderer, listed in _FAMILIES.items() for name in names(listed)}
RENDERERS["cite quran"] = lambda arguments: f"Quran {arguments[0]}:{arguments[1]}"
