"""{{Templates}} that stand inside sentences, rendered as the words that a reader sees.

Without the wiki's own template pages there is no general way, so the families that carry words are named here; the counts of
the English Wikipedia decided which. Every other template leaves a HOLE, or its first argument where the sentence is
plainly waiting for one ("a population of {{...}}").
"""

import re
from collections.abc import Callable

from data_prep.wikitext import dates, languages, measures
from data_prep.wikitext.arguments import Arguments
from data_prep.wikitext.marks import EQUALS, HOLE, PIPE

Renderer = Callable[[Arguments], str]


def render_template(content: str, before: str) -> str:
    """What {{content}} shows. `before`: the text that it follows, of which only the end matters.

    content: between the braces, with nothing nested left in it. Returns a HOLE for what is no part of a sentence.
    """
    name, bar, rest = content.partition("|")
    name = " ".join(name.replace("_", " ").lower().split())
    if name in _DROPPED or name.startswith(_DROPPED_PREFIXES):
        return HOLE
    renderer = _RENDERERS.get(name)
    if renderer is None:
        renderer = _family(name)
    arguments = Arguments.parse(name, rest if bar else "")
    if renderer is not None:
        try:
            return renderer(arguments)
        # Arguments that the template would complain about as well: it is then dropped like an unknown one.
        except (LookupError, ValueError, ZeroDivisionError, OverflowError):
            return HOLE
    if _WAITING.search(before) and "date" not in arguments.named and (word := arguments.get(0)):
        return word
    return HOLE


# A sentence cannot end here: the template held the next word.
_WAITING = re.compile(
    r"(?:^|[\s(“\"])(?:a|an|the|of|at|by|to|from|for|than|between|about|around|nearly|over|under|into|some)\s+\Z"
)

_DROPPED = frozenset(
    """!-- citation|sfn|sfnp|sfnm|sfnmp|efn|efn-ua|efn-lr|refn|notetag|note|ref|ref label|note label|r|rp|ran|reflist|notelist
    |citation needed|cn|fact|clarify|when|who|which|where|by whom|according to whom|page needed|failed verification|dubious
    |better source|better source needed|vague|full|full citation needed|pov|pov-inline|refimprove|unreliable source?
    |verify source|verification needed|disputed inline|weasel-inline|weasel inline|update inline|update after|qualify evidence
    |why|how|clear|-|clearleft|clearright|anchor|anchors|visible anchor|flagicon|flag icon|flagdeco|flagicon image|legend
    |infobox|taxobox|automatic taxobox|speciesbox|main|main article|see also|further|further information|details|about|for
    |redirect|redirect2|other uses|hatnote|portal|commons|commons category|wikiquote|wiktionary|sister project links
    |authority control|defaultsort|use dmy dates|use mdy dates|use british english|use american english|short description
    |pp|toc|toc limit|multiple image|multiple images|quote box|coord missing|inflation-fn|inflation/fn|subscription required
    |registration required|dead link|cbignore|webarchive|wayback|harvnb|harv|harvtxt|harvcol|listen|audio icon|sic?|hidden
    |clade|cladogram|graph|navbox|s-start|s-end|end|col-begin|col-end|col-break|col-2|col-3|div col|div col end|colbegin|colend
    |refbegin|refend|cot|cob|elucidate|specify|explain|pow|extinct|dagger|double dagger|asterisk|snf|cref|cref2|primary source inline
    |shy|wbr|zwj|zwnj|zwsp|lrm|rlm|space|0|rs|lang-en|#tag:ref|age|inconsistent|contradict-inline|or|synthesis inline|nowrap end
    |nowrap begin|importance inline|undue weight inline|speculation inline|tone inline|medcn|citation needed span|loc|usurped""".replace(
        "\n    ", ""
    ).split("|")
)
_DROPPED_PREFIXES = (
    *(
        "cite ",
        "citation",
        "infobox",
        "navbox",
        "use ",
        "#if",
        "#switch",
        "#tag",
        "#expr",
        "#invoke",
        "defaultsort:",
        "ref ",
    ),
    *("pp-", "about", "redirect", "commons", "wiki", "portal", "taxobox", "automatic taxobox", "campaignbox", "stack"),
    *("distinguish", "for ", "see ", "main ", "further ", "multiple ", "other uses", "location map", "chart", "graph:"),
)


def _first(arguments: Arguments) -> str:
    return arguments[0]


def _second(arguments: Arguments) -> str:
    return arguments.get(1) or arguments[0]


def _last(arguments: Arguments) -> str:
    return arguments.positional[-1]


def _constant(text: str) -> Renderer:
    return lambda arguments: text


def _around(before: str, after: str = "") -> Renderer:
    return lambda arguments: f"{before}{arguments[0]}{after}"


def _joined(separator: str) -> Renderer:
    return lambda arguments: separator.join(filter(None, arguments.positional)) or HOLE


def _ship(arguments: Arguments) -> str:
    """{{USS|Hornet|CV-12|6}}: prefix and name, whatever the chosen form is; {{ship|HMS|Ajax|...}} says its prefix itself."""
    if arguments.template == "ship":
        return f"{arguments[0]} {arguments[1]}".strip()
    if arguments.template.endswith("class"):
        return f"{arguments[0]}-class {arguments.get(1)}".strip()
    if arguments.get(2) == "2":
        return arguments[0]
    return f"{arguments.template.upper()} {arguments[0]}"


def _interlanguage_link(arguments: Arguments) -> str:
    """{{ill|Title|de|Titel|lt=words}}, or the older {{ill|de|Titel|Title}}."""
    shown = arguments.get("lt")
    old_order = re.fullmatch(r"[a-z]{2,3}", arguments[0]) is not None
    return shown or (arguments.get(2) or arguments[1] if old_order else arguments[0])


def _sic(arguments: Arguments) -> str:
    """{{sic|teh}} shows the slip; without words of its own it is only a remark."""
    return " ".join(part for part in (arguments.get(0), arguments.get(1)) if part and part != "hide") or HOLE


def _quotation(arguments: Arguments) -> str:
    """A block quotation: a paragraph of its own."""
    return f"\n\n{arguments.get('text') or arguments.get('quote') or arguments[0]}\n\n"


def _short_quote(arguments: Arguments) -> str:
    return f'"{arguments[0]}"'


def _verse(arguments: Arguments) -> str:
    return " ".join(part for part in arguments.positional[:2] if part).strip()


def _atoms(arguments: Arguments) -> str:
    """{{chem|C|2|H|6|O}}: symbols and counts run together."""
    return "".join(arguments.positional).replace("_", "")


def _nuclide(arguments: Arguments) -> str:
    return f"{arguments[0]}-{arguments[1]}"


def _upper(arguments: Arguments) -> str:
    return arguments.template.partition(":")[2].upper()


def _patent(arguments: Arguments) -> str:
    return f"U.S. Patent {measures.grouped(arguments[0])}"


def _flag(arguments: Arguments) -> str:
    return arguments.get("name") or arguments[0]


def _dental_formula(arguments: Arguments) -> str:
    return f"{arguments.get('upper')} / {arguments.get('lower')}"


def _nihongo(arguments: Arguments) -> str:
    """{{nihongo|words|kanji|romaji|extra}}: words (kanji, romaji, extra)."""
    words, *others = (arguments.get(index) for index in range(4))
    inside = ", ".join(filter(None, others))
    if not words:
        words, inside = arguments.get(2) or arguments.get(1), arguments.get(1) if arguments.get(2) else ""
    return f"{words} ({inside})" if inside else words or HOLE


_GROUPS: dict[Renderer, str] = {
    _first: """nowrap|nobr|nowraplinks|small|smaller|big|large|larger|huge|midsize|center|centre|sc|small caps|smallcaps
        |smallcaps all|aut|nq|not a typo|proper name|as written|abbr|tooltip|h:title|kbd|key press|keypress|key|code|mono|var
        |mvar|math|strong|em|strongbad|italics|italic|bold|b|i|u|underline|overline|ul|ol|bull|crossreference|cross reference
        |unicode|polytonic|hebrew|script|mxt|xt|!xt|tq|angle bracket|bracket|by|year|fy|avyear|nfly|mlby|wy|scy|baseball year
        |nhly|nbay|cfby|cfb year|mlb year|nfl year|nba year|nhl year|not typo|typo|transcript|visible|highlight|yellow|nihongo2
        |nihongo core|asiantitle|player|cricon|fb|fbw|rut|ru|hidden text|delink|noitalic|noitalics|roman|serif|sans-serif
        |music note|gutenberg author|gr|linkedin|wict|wt|wikt-lang-1|birth-date|death-date|start-date|end-date|isbnlink
        |uncial|fontcolour|lc|spell|chem name|chemname|gene|pmid link|allmusic|pb|nee1|family name|rfdate|vr|linktext-1
        |contentious|ordered|overset|snd text|nastaliq|hlist item|blockindent|pre2|bqm|efn text|rtl-para|big5|currency""",
    _second: """lang|rtl-lang|wikt-lang|wt-lang|resize|font|color|colour|sort|nts|hs|audio|font color|fontcolor|script/lang
        |langx-2|csl|size|text color|colored link|pronunciation|stylize|color box|lang-x|bible""",
    _last: "transl|transliteration|translit|tlit|xlit|semxlit|asl|hebrew transliteration",
    _joined(""): "linktext|chem2|radic text|h2|su|simple nuclide",
    _joined(", "): "hlist|plainlist item|flatlist|ubl|unbulleted list|comma separated entries|cslist|ubli|plain list",
    _atoms: "chem|chem/disp|chem/atom|chem/link",
    _nuclide: "nuclide|nuclide2|simplenuclide|simplenuclide2",
    _ship: "uss|hms|hmas|hmcs|rms|ss|mv|ms|ins|usns|uscgc|sms|hnlms|hdms|hswms|rfa|uscg|gts|sv|ps|ov|mts|usat|usrc|uscgcv"
    "|ship|sclass|sclass2|sclass-|hmnzs|orp|fs|rn|ran|usav",
    _interlanguage_link: "ill|interlanguage link|link-interwiki|iw",
    _sic: "sic",
    _quotation: "quote|blockquote|quotation|cquote|bquote|rquote|poemquote|poem quote|verse translation|centered pull quote|pull quote"
    "|long quote|quoteblock",
    _short_quote: "\"|inline quote|'|''|'\"",
    _verse: "bibleref|bibleref2|bibleverse|bible verse|bibleverse-nb|bverse|sourcetext|bibleref2-nb|bibleverse-lb|bibleref2c",
    _patent: "us patent|uspatent|patent|ref patent",
    _flag: "flag|flagcountry|flagu|flagteam|flagathlete|country|noflag|flag country|flagbig|army|navy|air force|flag+link|flagg|flagc",
    _nihongo: "nihongo|nihongo3|nihongo foot|nihongo krt",
    _dental_formula: "dentalformula|dental formula",
    _around("⟨", "⟩"): "angbr|angle|grapheme|grapheme link|angbr ipa|ang",
    _around("Quran "): "quran|qref|quran-usc|cite quran 2",
    _around("√"): "sqrt|radic|square root",
    _around("|", "|"): "abs|absolute value",
    _around("née "): "nee|née|born as|geb",
    _around("ISBN "): "isbn",
    _around("ISSN "): "issn",
    _around("OCLC "): "oclc",
    _around("doi:"): "doi",
    _around("arXiv:"): "arxiv",
    _around("PMID "): "pmid",
    _around("["): "bracket open",
    _constant("'s"): "'s|s'|apostrophe s",
    _constant("'"): "'|`|’|-'|apostrophe|'-|' |okina-",
    _constant("' \""): "' \"|'\"|\"'",
    _constant('"'): '-"|"-|double quote',
    _constant(PIPE): "!|pipe|bar|vertical bar",
    _constant(PIPE * 2): "!!",
    _constant(EQUALS): "=|equals",
    _constant("{"): "(",
    _constant("}"): ")",
    _constant(
        " "
    ): "nbsp|spaces|thinsp|thin space|hair space|hsp|spc|ensp|emsp|pad|in5|nb5|nb10|indent|gap|figure space|br|break"
    "|nnbsp|tab|long space|shim|paragraph break|pb2",
    _constant(
        " – "
    ): "snd|snds|spaced ndash|spaced en dash|spnd|sndash|spndash|spaced endash|dash|spaced en dash space|–s",
    _constant("–"): "ndash|en dash|endash|--|nsndns|–|endash2",
    _constant("—"): "mdash|em dash|emdash|mdashb|spaced mdash|---|—|mdash2|smd",
    _constant(" · "): "·|dot|middot|•|bullet|\\|dotsep|spaced dot|bold middot|sdot",
    _constant("…"): "...|ellipsis|…|nb...|...s",
    _constant("ʻ"): "okina|ʻokina|'okina|ayin|ayn",
    _constant("ʼ"): "hamza|hamzah|alif|saltillo",
    _constant("×"): "x|times|×|mult",
    _constant("−"): "minus|−",
    _constant("±"): "+-|±|plus-minus|pm",
    _constant("⇌"): "eqm|equilibrium",
    _constant("→"): "yields|rarr|right arrow",
    _constant("π"): "pi",
    _constant("°"): "degree|deg",
    _constant("♭"): "flat|music flat",
    _constant("♯"): "sharp|music sharp",
    _constant("current"): "currentyear|currentmonthname|currentday",
    _constant("C"): "carbon",
    _constant("H"): "hydrogen",
    _constant("O"): "oxygen",
    _constant("N"): "nitrogen",
}
_MUSIC = {
    "flat": "♭",
    "b": "♭",
    "sharp": "♯",
    "#": "♯",
    "natural": "♮",
    "time": "time",
    "doubleflat": "𝄫",
    "doublesharp": "𝄪",
}


def _music(arguments: Arguments) -> str:
    if arguments[0] == "time":
        return f"{arguments[1]}/{arguments[2]}"
    return _MUSIC.get(arguments[0], arguments[0])


_RENDERERS: dict[str, Renderer] = {
    name.strip(): renderer
    for renderer, names in _GROUPS.items()
    for name in names.replace("\n", "").split("|")
    if name.strip()
}
_RENDERERS |= {"music": _music, "cite quran": lambda a: f"Quran {a[0]}:{a[1]}"}
_RENDERERS |= measures.RENDERERS | dates.RENDERERS | languages.RENDERERS


def _family(name: str) -> Renderer | None:
    """The renderer of a template whose name says which member of a family it is."""
    if name.startswith(("lang-", "lang ")):
        return languages.language
    if name.startswith(("ipa-", "ipac-", "ipa ")):
        return languages.pronunciation
    if name.startswith(("script/", "lang/")):
        return _first
    if name.startswith(("uc:", "ucfirst:")):
        return _upper
    if name.startswith(("lc:", "lcfirst:")):
        return lambda arguments: arguments.template.partition(":")[2]
    if name.startswith("formatnum:"):
        return lambda arguments: measures.grouped(arguments.template.partition(":")[2])
    if name.endswith(("-class", " class")):
        return None
    return None
