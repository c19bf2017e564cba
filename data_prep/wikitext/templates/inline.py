"""Templates of words and signs: formatting, punctuation, quotations, links and names."""

import re
from collections.abc import Callable

from data_prep.wikitext.markers import REMOVED, escape_markup
from data_prep.wikitext.scripts import script
from data_prep.wikitext.templates.arguments import Arguments, names

Renderer = Callable[[Arguments], str]

_NIHONGO = ("english", "kanji", "rōmaji", "extra")  # names of its arguments


def first(arguments: Arguments) -> str:
    """{{nowrap|words}}: the words."""
    return arguments[0]


def second(arguments: Arguments) -> str:
    """{{lang|fr|mot}}: the second argument, or the only one."""
    return arguments.get(1) or arguments[0]


def _recording(arguments: Arguments) -> str:
    """{{audio|A.ogg|words}}: the words, unless they only ask to listen."""
    text = arguments.get(1)
    return text if text.lower() not in ("", "listen", "play", "pronunciation", "pronounce", "help") else REMOVED


def _formula(arguments: Arguments) -> str:
    """{{chem2|SO4(2-)}} "SO4^2-"."""
    return re.sub(r"\((\d*[-+−])\)", r"^\1", "".join(arguments.positional))


def _last(arguments: Arguments) -> str:
    """{{transl|ar|ALA|al-Jazāʾir}}: the last argument."""
    return arguments.positional[-1]


def _quoted(arguments: Arguments) -> str:
    """{{"|words}} with quotation marks, {{"}} for one of them."""
    words = arguments.get(0)
    return f'"{words}"' if words else '"'


def _around(before: str, after: str = "") -> Renderer:
    return lambda arguments: f"{before}{arguments[0]}{after}"


def joined(separator: str) -> Renderer:
    return lambda arguments: separator.join(filter(None, arguments.positional)) or REMOVED


def _interlanguage_link(arguments: Arguments) -> str:
    """{{ill|Title|de|Titel|lt=words}}, or the older {{ill|de|Titel|Title}}."""
    if shown := arguments.get("lt"):
        return shown
    is_old_order = re.fullmatch(r"[a-z]{2,3}", arguments[0])
    return (arguments.get(2) or arguments[1]) if is_old_order else arguments[0]


def _sic(arguments: Arguments) -> str:
    """{{sic|teh}} shows the misspelt words; without words it is a remark to readers."""
    return " ".join(part for part in arguments.positional[:2] if part and part != "hide") or REMOVED


def _quotation(arguments: Arguments) -> str:
    """{{quote|text|speaker}}: a paragraph of its own, without its attribution."""
    return f"\n\n{arguments.get('text') or arguments.get('quote') or arguments[0]}\n\n"


def _verse(arguments: Arguments) -> str:
    """{{bibleverse|Mark|3:25|NIV}} "Mark 3:25"; {{bibleverse|1|Kings|2:3}} "1 Kings 2:3"."""
    count = 3 if arguments[0].isdecimal() else 2
    return " ".join(filter(None, arguments.positional[:count]))


def _atoms(arguments: Arguments) -> str:
    """{{chem|C|2|H|6|O}} "C2H6O", {{chem|SO|4|2-}} "SO4^2-": symbols and counts joined, charges as superscripts."""
    text = ""
    for part in arguments.positional:
        is_charge = re.fullmatch(r"\d*[-+−–]", part)
        kind = "sup" if is_charge else "sub" if part[:1].islower() and len(part) == 1 else ""
        text += script(kind, part, text[-1:]) if kind else part.replace("_", "")
    return text


def _raised(arguments: Arguments) -> str:
    """{{sup|2}} and {{sub|2}}: tags, which `render_scripts` renders later."""
    return f"<{arguments.template}>{arguments[0]}</{arguments.template}>"


def _raised_and_lowered(arguments: Arguments) -> str:
    """{{su|p=+1|b=−2}}, {{sup sub|+1|−2}}: a superscript over a subscript."""
    return f"<sup>{arguments.get('p') or arguments.get(0)}</sup><sub>{arguments.get('b') or arguments.get(1)}</sub>"


def _verse_of_the_quran(arguments: Arguments) -> str:
    """{{Qref|2|255}} "Quran 2:255"."""
    return f"Quran {':'.join(filter(None, arguments.positional[:2]))}"


def _person(arguments: Arguments) -> str:
    """{{sortname|Ada|Lovelace}} "Ada Lovelace"."""
    return " ".join(filter(None, arguments.positional[:2])) or REMOVED


def _cited_author(arguments: Arguments) -> str:
    """{{harvtxt|Smith|Jones|2001|p=5}}: "Smith and Jones (2001, p. 5)", as part of the sentence."""
    *authors, year = filter(None, arguments.positional[:5])
    if len(authors) > 3:
        authors = [f"{authors[0]} et al."]
    listed = " and ".join(filter(None, [", ".join(authors[:-1]), authors[-1]]))
    place = next((f", {key}. {arguments.get(key)}" for key in ("p", "pp") if arguments.get(key)), "")
    return f"{listed} ({year}{place})"


def _character(arguments: Arguments) -> str:
    """{{unichar|00A9|copyright sign}}: "U+00A9 © copyright sign"."""
    code = arguments[0].upper().removeprefix("U+")
    character = chr(int(code, 16))
    shown = character if character.isprintable() and not character.isspace() else ""  # surrogates are not printable
    return escape_markup(" ".join(filter(None, [f"U+{code}", shown, arguments.get(1)])))


def _nuclide(arguments: Arguments) -> str:
    """{{nuclide|einsteinium|254}} "einsteinium-254"."""
    return f"{arguments[0]}-{arguments[1]}"


def _flag(arguments: Arguments) -> str:
    """{{flag|France|name=words}}: the country's name beside its flag."""
    return arguments.get("name") or arguments[0]


def _dental_formula(arguments: Arguments) -> str:
    """{{DentalFormula|upper=0.0.2.3|lower=0.0.2.3}}: "0.0.2.3 / 0.0.2.3"."""
    return f"{arguments.get('upper')} / {arguments.get('lower')}"


def _nihongo(arguments: Arguments) -> str:
    """{{nihongo|words|kanji|romaji|extra}} "words (kanji, romaji, extra)"; nihongo3 begins with the romaji."""
    words, kanji, romaji, extra = (arguments.get(index) or arguments.get(key) for index, key in enumerate(_NIHONGO))
    if arguments.template == "nihongo foot":  # the rest is in a footnote
        return words or arguments[1]
    order = (romaji, kanji, words, extra) if arguments.template == "nihongo3" else (words, kanji, romaji, extra)
    shown, *others = filter(None, order)
    return " ".join(filter(None, [f"{shown} ({', '.join(others)})" if others else shown, arguments.get(4)]))


def _web_address(arguments: Arguments) -> str:
    """{{URL|https://example.org/|words}}: the words, or the address without its scheme."""
    return arguments.get(1) or re.sub(r"^(?:https?:)?//|/$", "", arguments[0])


def _winning_percentage(arguments: Arguments) -> str:
    """{{winning percentage|5|3|ties}}: ".625", where a tie is half a win."""
    wins, losses, ties = (int(arguments.get(index, "0").replace(",", "")) for index in range(3))
    share = (wins + ties / 2) / (wins + losses + ties)
    return f"{share:.3f}" if share == 1 or arguments.get("leading_zero") else f"{share:.3f}"[1:]


def _music(arguments: Arguments) -> str:
    """{{music|flat}} "♭", {{music|time|3|4}} "3/4"."""
    if arguments[0] == "time":
        return f"{arguments[1]}/{arguments[2]}"
    signs = {"flat": "♭", "b": "♭", "sharp": "♯", "#": "♯", "natural": "♮", "n": "♮"}
    return signs.get(arguments[0], arguments[0])


_FAMILIES: dict[Renderer, str] = {
    first: """
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
        """,
    second: """
        lang|rtl-lang|wikt-lang|wt-lang|resize|font|color|colour|sort|nts|hs|font color|fontcolor|size
        text color|script|colored link|native name|wikt|stylize|station link|stl|align
        hover title|link if exists
        """,
    _recording: "audio|audio-nohelp|pronunciation|audio-ipa|audio-pipe",
    _formula: "chem2",
    _last: "transl|transliteration|translit|tlit|xlit|semxlit|hebrew transliteration",
    joined(""): "linktext|h2|gap fill|mp|mpl|minor planet",
    joined(", "): "hlist|flatlist|ubl|unbulleted list|comma separated entries|cslist|plain list|enum",
    joined("+"): "keypress|key press|key|keybinding|keyboard shortcut|key top",
    joined("–"): "score|scores|dash year",
    joined(" § "): "section link|slink",
    joined(" "): "postnominals|post-nominals|post nominals|ordered name",
    _atoms: "chem|chem/disp|chem/link",
    _raised: "sup|sub",
    _raised_and_lowered: "su|sup sub|supsub",
    _person: "sortname|nihongo4",
    _cited_author: "harvtxt|harvcoltxt|citet",
    _character: "unichar",
    _nuclide: "nuclide|nuclide2|simplenuclide|simplenuclide2",
    _interlanguage_link: "ill|interlanguage link|link-interwiki|iw|interlanguage link multi",
    _sic: "sic",
    _quotation: """
        quote|blockquote|quotation|cquote|bquote|rquote|poemquote|poem quote|verse translation|centered pull quote
        pull quote|long quote|quoteblock|block quote|block quotation
        """,
    _quoted: 'inline quote|""|"|quote inline|qq|double quotes|dq',
    _verse: "bibleref|bibleref2|bibleverse|bible verse|bibleverse-nb|bverse|bibleref2-nb|bibleverse-lb|bibleref2c",
    _flag: """
        flag|flagcountry|flagu|flagteam|flagathlete|country|noflag|flag country|army|navy|air force|flag+link
        """,
    _nihongo: "nihongo|nihongo3|nihongo foot|nihongo krt|nihongo2|nihongo title|nihongo core",
    _web_address: "url",
    _winning_percentage: "winning percentage|winpct|winning pct",
    _music: "music",
    _dental_formula: "dentalformula|dental formula",
    _around("⟨", "⟩"): "angbr|angle bracket|grapheme|angbr ipa|angle",
    _verse_of_the_quran: "quran|qref|quran-usc|cite quran",
    _around("√"): "sqrt|radic|square root",
    _around("|", "|"): "abs|absolute value",
    _around("‘", "’"): "single quotes|sq|gloss quote",
    _around("[", "]"): "bracket|brackets|square brackets|sqbr|editorial",
    _around("(", ")"): "paren|parentheses",
    _around("⌊", "⌋"): "floor",
    _around("⌈", "⌉"): "ceil|ceiling",
    _around("lit. '", "'"): "lit|literal|literally|literal translation",
    _around("b. "): "b.|born",
    _around("d. "): "d.|died",
    _around("p. "): "p.",
    _around("U.S. Patent "): "us patent|u.s. patent|uspatent",
    _around("née "): "nee|née|born as",
    _around("ISBN "): "isbn",
    _around("ISSN "): "issn",
    _around("OCLC "): "oclc",
    _around("doi:"): "doi",
    _around("arXiv:"): "arxiv",
    _around("PMID "): "pmid",
}
RENDERERS: dict[str, Renderer] = {name: renderer for renderer, listed in _FAMILIES.items() for name in names(listed)}
