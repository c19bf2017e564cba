"""Templates that show one sign or a blank."""

from data_prep.wikitext.markers import EQUALS, PIPE, escape_markup
from data_prep.wikitext.templates.arguments import Arguments, names
from data_prep.wikitext.templates.inline import Renderer

# sign: names of its templates. Signs of markup are escaped.
_SIGNS = {
    "'s": "'s|s'|apostrophe s",
    "'": "'|`|’|-'|apostrophe|'-",
    "' \"": "' \"|'\"|\"'",
    '"': '-"|"-|double quote',
    PIPE: "!|pipe|bar|vertical bar",
    EQUALS: "=|equals",
    escape_markup("{"): "(",
    escape_markup("}"): ")",
    " ": """
        nbsp|spaces|thinsp|thin space|hair space|hsp|spc|ensp|emsp|pad|in5|nb5|nb10|gap
        figure space|br|break|nnbsp|tab|indent|long space|paragraph break|pb
        """,
    " – ": """
        snd|snds|spaced ndash|spaced en dash|spnd|sndash|spndash|spaced endash|dash
        spaced en dash space|–s
        """,
    "–": "ndash|en dash|endash|--|–",
    "—": "mdash|em dash|emdash|mdashb|spaced mdash|---|—|smd",
    " · ": "·|dot|middot|•|bullet|\\|spaced dot|bold middot|sdot|bull",
    "…": "...|ellipsis|…",
    "ʻ": "okina|ʻokina|'okina|ayin|ayn",
    "ʼ": "hamza|hamzah|alif|saltillo",
    "×": "x|times|×",
    "−": "minus|−",
    "±": "+-|±|plus-minus|pm",
    "⇌": "eqm|equilibrium",
    "→": "yields|rarr",
    "π": "pi",
    "°": "degree|deg",
    "♭": "flat|music flat",
    "♯": "sharp|music sharp",
    "½": "1/2|half",
    "¼": "1/4",
    "¾": "3/4",
    "⅓": "1/3",
    "⅔": "2/3",
    escape_markup("&"): "&|ampersand",
    "‑": "nbhyph|nbhy|nbh|hyphen|non-breaking hyphen",
    escape_markup("["): "!(|square bracket open|left bracket",
    escape_markup("]"): ")!|square bracket close|right bracket",
    escape_markup("*"): "star|*",
    escape_markup("#"): "number sign|hash",
    escape_markup(":"): "colon",
    escape_markup(";"): ";|semicolon",
    "/": "slash|/",
    "∞": "infin|infinity",
    "≈": "approx|≈",
    "≠": "ne|≠",
    "μ": "mu|micro",
    "τ": "tau",
    "₹": "indianrupee|indian rupee symbol",
    "M☉": "solar mass",
    "R☉": "solar radius",
    "L☉": "solar luminosity",
    "C": "carbon",
    "H": "hydrogen",
    "N": "nitrogen",
    "O": "oxygen",
}


def _constant(sign: str) -> Renderer:
    def render(arguments: Arguments) -> str:
        return sign

    return render


RENDERERS: dict[str, Renderer] = {name: _constant(sign) for sign, listed in _SIGNS.items() for name in names(listed)}
