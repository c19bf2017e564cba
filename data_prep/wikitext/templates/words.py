"""Templates of words and signs: formatting, punctuation, quotations, links and names."""

import re

from data_prep.wikitext.markers import EQUALS, PIPE, REMOVED, escape_markup
from data_prep.wikitext.tags import script
from data_prep.wikitext.templates.arguments import Arguments, Renderer, english_words, shows

_NIHONGO = ("english", "kanji", "rōmaji", "extra")  # names of its arguments
_LISTEN = ("", "listen", "play", "pronunciation", "pronounce", "help")
_ACCIDENTALS = {"flat": "♭", "b": "♭", "sharp": "♯", "#": "♯", "natural": "♮", "n": "♮"}


@shows(
    """
    nowrap|nobr|nowraplinks|small|smaller|big|large|larger|huge|midsize|center|centre|sc|small caps|smallcaps|aut
    nq|pre2|not a typo|not typo|typo|proper name|as written|abbr|abbrlink|tooltip|h:title|kbd|code|mono|var|mvar
    math|bigmath|tmath|strong|no wrap|nobreak|j|allow wrap|dfn|left|right|samp|define|nocaps|caps|bigger
    finedetail|term|defn|linum|lino|block indent|strikethrough|allcaps|all caps|sronly|xtn|!mxt|bxt|chessan
    chess notation|gloss|as is|char|button|visible|em|italics|italic|bold|b|i|u|underline|overline|unicode
    polytonic|hebrew|mxt|xt|!xt|tq|year|fy|avyear|nfly|mlby|wy|scy|baseball year|nhly|nbay|cfb year|mlb year
    nfl year|nba year|nhl year|by|noitalic|noitalics|player|fb|fbw|delink|serif|sans-serif|gr|vr|nastaliq|gene
    vanchor|visible anchor|birth-date|death-date|start-date|end-date|birth year and age|death year and age|spell
    chem name|chemname|transcript|crossreference|nobold|linktext-1|rtl-para|hidden text|marriage|contentious
    circle|uncial|tt|runic|rune|fraktur|blackletter|rws|stn|stnlnk|sta|rail|iast|iast3|iso 15919|wylie
    """
)
def first(arguments: Arguments) -> str:
    """{{nowrap|words}}: the words."""
    return arguments[0]


@shows(
    """
    lang|rtl-lang|wikt-lang|wt-lang|resize|font|color|colour|sort|nts|hs|font color|fontcolor|size|text color|script
    colored link|native name|wikt|stylize|station link|stl|align|hover title|link if exists
    """
)
def second(arguments: Arguments) -> str:
    """{{lang|fr|mot}}: the second argument, or the only one."""
    return arguments.get(1) or arguments[0]


@shows("transl|transliteration|translit|tlit|xlit|semxlit|hebrew transliteration")
def last(arguments: Arguments) -> str:
    """{{transl|ar|ALA|al-Jazāʾir}}: the last argument."""
    return arguments.positional[-1]


@shows("audio|audio-nohelp|pronunciation|audio-ipa|audio-pipe")
def recording(arguments: Arguments) -> str:
    """{{audio|A.ogg|words}}: the words, unless they only ask to listen."""
    return REMOVED if arguments.get(1).lower() in _LISTEN else arguments.get(1)


@shows("chem2")
def formula(arguments: Arguments) -> str:
    """{{chem2|SO4(2-)}} "SO4^2-"."""
    return re.sub(r"\((\d*[-+−])\)", r"^\1", "".join(arguments.positional))


@shows("chem|chem/disp|chem/link")
def atoms(arguments: Arguments) -> str:
    """{{chem|C|2|H|6|O}} "C2H6O", {{chem|SO|4|2-}} "SO4^2-": symbols and counts joined, charges as superscripts."""
    text = ""
    for part in arguments.positional:
        is_charge = re.fullmatch(r"\d*[-+−–]", part)
        kind = "sup" if is_charge else "sub" if part[:1].islower() and len(part) == 1 else ""
        text += script(kind, part, text[-1:]) if kind else part.replace("_", "")
    return text


@shows("sup|sub")
def raised(arguments: Arguments) -> str:
    """{{sup|2}} and {{sub|2}}: tags, which `render_scripts` renders later."""
    return f"<{arguments.template}>{arguments[0]}</{arguments.template}>"


@shows("su|sup sub|supsub")
def raised_and_lowered(arguments: Arguments) -> str:
    """{{su|p=+1|b=−2}}, {{sup sub|+1|−2}}: a superscript over a subscript."""
    return f"<sup>{arguments.get('p') or arguments.get(0)}</sup><sub>{arguments.get('b') or arguments.get(1)}</sub>"


@shows("ill|interlanguage link|link-interwiki|iw|interlanguage link multi")
def interlanguage_link(arguments: Arguments) -> str:
    """{{ill|Title|de|Titel|lt=words}}, or the older {{ill|de|Titel|Title}}."""
    if shown := arguments.get("lt"):
        return shown
    is_old_order = re.fullmatch(r"[a-z]{2,3}", arguments[0])
    return (arguments.get(2) or arguments[1]) if is_old_order else arguments[0]


@shows("sic")
def misspelt(arguments: Arguments) -> str:
    """{{sic|teh}} shows the misspelt words; without words it is a remark to readers."""
    return " ".join(part for part in arguments.positional[:2] if part and part != "hide") or REMOVED


@shows('inline quote|""|"|quote inline|qq|double quotes|dq')
def quoted(arguments: Arguments) -> str:
    """{{"|words}} with quotation marks, {{"}} for one of them."""
    words = arguments.get(0)
    return f'"{words}"' if words else '"'


@shows(
    """
    quote|blockquote|quotation|cquote|bquote|rquote|poemquote|poem quote|verse translation|centered pull quote
    pull quote|long quote|quoteblock|block quote|block quotation
    """
)
def quotation(arguments: Arguments) -> str:
    """{{quote|text|speaker}}: a paragraph of its own, without its attribution."""
    return f"\n\n{arguments.get('text') or arguments.get('quote') or arguments[0]}\n\n"


@shows("bibleref|bibleref2|bibleverse|bible verse|bibleverse-nb|bverse|bibleref2-nb|bibleverse-lb|bibleref2c")
def verse_of_the_bible(arguments: Arguments) -> str:
    """{{bibleverse|Mark|3:25|NIV}} "Mark 3:25"; {{bibleverse|1|Kings|2:3}} "1 Kings 2:3"."""
    return arguments.join(" ", 3 if arguments[0].isdecimal() else 2)


@shows("quran|qref|quran-usc|cite quran", kind="english")
def verse_of_the_quran(arguments: Arguments) -> str:
    """{{Qref|2|255}} "Quran 2:255"."""
    return f"Quran {arguments.join(':', 2)}"


@shows("sortname|nihongo4")
def person(arguments: Arguments) -> str:
    """{{sortname|Ada|Lovelace}} "Ada Lovelace"."""
    return arguments.join(" ", 2) or REMOVED


@shows("harvtxt|harvcoltxt|citet", kind="english")
def cited_author(arguments: Arguments) -> str:
    """{{harvtxt|Smith|Jones|2001|p=5}}: "Smith and Jones (2001, p. 5)", as part of the sentence."""
    *authors, year = filter(None, arguments.positional[:5])
    if len(authors) > 3:
        authors = [f"{authors[0]} et al."]
    listed = " and ".join(filter(None, [", ".join(authors[:-1]), authors[-1]]))
    place = next((f", {key}. {arguments.get(key)}" for key in ("p", "pp") if arguments.get(key)), "")
    return f"{listed} ({year}{place})"


@shows("unichar")
def character(arguments: Arguments) -> str:
    """{{unichar|00A9|copyright sign}}: "U+00A9 © copyright sign"."""
    code = arguments[0].upper().removeprefix("U+")
    sign = chr(int(code, 16))
    shown = sign if sign.isprintable() and not sign.isspace() else ""  # surrogates are not printable
    return escape_markup(" ".join(filter(None, [f"U+{code}", shown, arguments.get(1)])))


@shows("nuclide|nuclide2|simplenuclide|simplenuclide2")
def nuclide(arguments: Arguments) -> str:
    """{{nuclide|einsteinium|254}} "einsteinium-254"."""
    return f"{arguments[0]}-{arguments[1]}"


@shows("flag|flagcountry|flagu|flagteam|flagathlete|country|noflag|flag country|army|navy|air force|flag+link")
def flag(arguments: Arguments) -> str:
    """{{flag|France|name=words}}: the country's name beside its flag."""
    return arguments.get("name") or arguments[0]


@shows("dentalformula|dental formula")
def dental_formula(arguments: Arguments) -> str:
    """{{DentalFormula|upper=0.0.2.3|lower=0.0.2.3}}: "0.0.2.3 / 0.0.2.3"."""
    return f"{arguments.get('upper')} / {arguments.get('lower')}"


@shows("nihongo|nihongo3|nihongo foot|nihongo krt|nihongo2|nihongo title|nihongo core")
def nihongo(arguments: Arguments) -> str:
    """{{nihongo|words|kanji|romaji|extra}} "words (kanji, romaji, extra)"; nihongo3 begins with the romaji."""
    words, kanji, romaji, extra = (arguments.get(index) or arguments.get(key) for index, key in enumerate(_NIHONGO))
    if arguments.template == "nihongo foot":  # the rest is in a footnote
        return words or arguments[1]
    order = (romaji, kanji, words, extra) if arguments.template == "nihongo3" else (words, kanji, romaji, extra)
    shown, *others = filter(None, order)
    return " ".join(filter(None, [f"{shown} ({', '.join(others)})" if others else shown, arguments.get(4)]))


@shows("url")
def web_address(arguments: Arguments) -> str:
    """{{URL|https://example.org/|words}}: the words, or the address without its scheme."""
    return arguments.get(1) or re.sub(r"^(?:https?:)?//|/$", "", arguments[0])


@shows("winning percentage|winpct|winning pct")
def winning_percentage(arguments: Arguments) -> str:
    """{{winning percentage|5|3|ties}}: ".625", where a tie is half a win."""
    wins, losses, ties = (int(arguments.get(index, "0").replace(",", "")) for index in range(3))
    share = (wins + ties / 2) / (wins + losses + ties)
    return f"{share:.3f}" if share == 1 or arguments.get("leading_zero") else f"{share:.3f}"[1:]


@shows("music")
def music(arguments: Arguments) -> str:
    """{{music|flat}} "♭", {{music|time|3|4}} "3/4"."""
    if arguments[0] == "time":
        return f"{arguments[1]}/{arguments[2]}"
    return _ACCIDENTALS.get(arguments[0], arguments[0])


def joined(separator: str) -> Renderer:
    """{{hlist|a|b}}: the arguments with `separator` between them."""
    return lambda arguments: arguments.join(separator) or REMOVED


def _around(before: str, after: str = "") -> Renderer:
    """{{angbr|a}}: the first argument with signs or words around it."""
    return lambda arguments: f"{before}{arguments[0]}{after}"


def _constant(sign: str) -> Renderer:
    return lambda arguments: sign


for _templates, _separator in {
    "linktext|h2|gap fill|mp|mpl|minor planet": "",
    "hlist|flatlist|ubl|unbulleted list|comma separated entries|cslist|plain list|enum": ", ",
    "keypress|key press|key|keybinding|keyboard shortcut|key top": "+",
    "score|scores|dash year": "–",
    "section link|slink": " § ",
    "postnominals|post-nominals|post nominals|ordered name": " ",
}.items():
    shows(_templates)(joined(_separator))
for _templates, _before, _after in (
    ("angbr|angle bracket|grapheme|angbr ipa|angle", "⟨", "⟩"),
    ("sqrt|radic|square root", "√", ""),
    ("abs|absolute value", "|", "|"),
    ("single quotes|sq|gloss quote", "‘", "’"),
    ("bracket|brackets|square brackets|sqbr|editorial", "[", "]"),
    ("paren|parentheses", "(", ")"),
    ("floor", "⌊", "⌋"),
    ("ceil|ceiling", "⌈", "⌉"),
    ("isbn", "ISBN ", ""),
    ("issn", "ISSN ", ""),
    ("oclc", "OCLC ", ""),
    ("doi", "doi:", ""),
    ("arxiv", "arXiv:", ""),
    ("pmid", "PMID ", ""),
):
    shows(_templates)(_around(_before, _after))
for _templates, _before, _after in (
    ("lit|literal|literally|literal translation", "lit. '", "'"),
    ("b.|born", "b. ", ""),
    ("d.|died", "d. ", ""),
    ("p.", "p. ", ""),
    ("us patent|u.s. patent|uspatent", "U.S. Patent ", ""),
    ("nee|née|born as", "née ", ""),
):
    shows(_templates, kind="english")(_around(_before, _after))
_MARKERS = {"|": PIPE, "=": EQUALS}
for _sign, _templates in english_words()["signs"].items():
    # Signs of markup are escaped, but for the apostrophe: two of them are quotation marks, not italics.
    shows(_templates)(_constant(_MARKERS.get(_sign) or (_sign if "'" in _sign else escape_markup(_sign))))
