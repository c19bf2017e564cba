"""Templates of foreign words and of pronunciation."""

from data_prep.wikitext.arguments import Arguments
from data_prep.wikitext.marks import HOLE, SAID, SAID_END

_NAMES = dict(
    pair.split(":")
    for pair in (
        "af:Afrikaans aln:Gheg am:Amharic an:Aragonese ang:Old_English ar:Arabic arc:Aramaic ast:Asturian az:Azerbaijani be:Belarusian"
        " ber:Berber bg:Bulgarian bn:Bengali bo:Tibetan br:Breton bs:Bosnian ca:Catalan ceb:Cebuano co:Corsican cop:Coptic cs:Czech"
        " cu:Church_Slavonic cy:Welsh da:Danish de:German dv:Dhivehi el:Greek en:English eo:Esperanto es:Spanish et:Estonian eu:Basque"
        " fa:Persian fi:Finnish fil:Filipino fo:Faroese fr:French frm:Middle_French fro:Old_French fy:West_Frisian ga:Irish gd:Scottish_Gaelic"
        " gl:Galician gmh:Middle_High_German goh:Old_High_German got:Gothic grc:Ancient_Greek grc-gre:Greek gsw:Swiss_German gu:Gujarati"
        " gv:Manx ha:Hausa haw:Hawaiian he:Hebrew hi:Hindi hr:Croatian hu:Hungarian hy:Armenian id:Indonesian ig:Igbo is:Icelandic"
        " it:Italian ja:Japanese jv:Javanese ka:Georgian kk:Kazakh km:Khmer kn:Kannada ko:Korean ku:Kurdish kw:Cornish ky:Kyrgyz la:Latin"
        " lb:Luxembourgish lij:Ligurian lo:Lao lt:Lithuanian lv:Latvian mg:Malagasy mi:Maori mk:Macedonian ml:Malayalam mn:Mongolian mr:Marathi"
        " ms:Malay mt:Maltese my:Burmese nah:Nahuatl nap:Neapolitan nds:Low_German ne:Nepali nl:Dutch nn:Norwegian_Nynorsk no:Norwegian"
        " nb:Norwegian non:Old_Norse nv:Navajo oc:Occitan ota:Ottoman_Turkish pa:Punjabi peo:Old_Persian pi:Pali pl:Polish ps:Pashto pt:Portuguese"
        " qu:Quechua rm:Romansh ro:Romanian ru:Russian rus:Russian rw:Kinyarwanda sa:Sanskrit sc:Sardinian scn:Sicilian sco:Scots sd:Sindhi"
        " se:Northern_Sami sh:Serbo-Croatian si:Sinhala sk:Slovak sl:Slovene so:Somali sq:Albanian sr:Serbian st:Sotho su:Sundanese"
        " sv:Swedish sw:Swahili syr:Syriac ta:Tamil te:Telugu tg:Tajik th:Thai ti:Tigrinya tk:Turkmen tl:Tagalog tr:Turkish tt:Tatar"
        " ug:Uyghur uk:Ukrainian ur:Urdu uz:Uzbek vec:Venetian vi:Vietnamese wa:Walloon xh:Xhosa yi:Yiddish yo:Yoruba zh:Chinese zu:Zulu"
    ).split()
)
# Settings that stand among the sounds of {{IPA-..}} and {{IPAc-..}}.
_NOT_SOUNDS = frozenset("lang local pron also audio help icon small us uk en ipa - or label all".split())


def language(arguments: Arguments) -> str:
    """{{lang-ru|Москва|Moskva|lit=...}}: "Russian: Москва, Moskva"; {{langx|ru|...}} names the language first."""
    if arguments.template == "langx":
        code, words = arguments[0], arguments.positional[1:]
    else:
        code, words = arguments.template[5:], arguments.positional
    if not words or not words[0]:
        return HOLE
    name = _NAMES.get(code) or _NAMES.get(code.partition("-")[0])
    text = words[0]
    transliteration = arguments.get("tr") or arguments.get("translit") or (words[1] if len(words) > 1 else "")
    if transliteration:
        text += f", {transliteration}"
    literally = arguments.get("lit") or arguments.get("translation") or (words[2] if len(words) > 2 else "")
    if literally:
        text += f", lit. '{literally}'"
    no_label = arguments.get("label") == "none"
    return f"{name.replace('_', ' ')}: {text}" if name and not no_label else text


def pronunciation(arguments: Arguments) -> str:
    """Sounds, marked as such: `repair` decides by the place where they stand whether they stay."""
    sounds = [
        part for part in arguments.positional if part and part.lower() not in _NOT_SOUNDS and "." not in part[-5:-1]
    ]
    if not sounds:
        return HOLE
    joined = "".join(sounds) if arguments.template.startswith("ipac") else sounds[0]
    if not joined.startswith(("/", "[", "⟨")):
        joined = f"/{joined}/"
    return f"{SAID}{joined}{SAID_END}"


def respelling(arguments: Arguments) -> str:
    """{{respell|AL|bee|doh}}: AL-bee-doh."""
    return f"{SAID}{'-'.join(part for part in arguments.positional if part) or HOLE}{SAID_END}"


def chinese(arguments: Arguments) -> str:
    """{{zh|c=北京|p=Běijīng}}: "Chinese: 北京; pinyin: Běijīng"."""
    labels = {
        "c": "Chinese",
        "s": "simplified Chinese",
        "t": "traditional Chinese",
        "p": "pinyin",
        "hp": "pinyin",
        "w": "Wade–Giles",
    }
    labels |= {"j": "Jyutping", "l": "lit."}
    labels = {"lang": "", **labels} if False else labels
    parts = [f"{label}: {arguments.named[key]}" for key, label in labels.items() if arguments.named.get(key)]
    return "; ".join(parts) or HOLE


def korean(arguments: Arguments) -> str:
    """{{korean|hangul=서울|rr=Seoul}}: "Korean: 서울, Seoul"."""
    parts = [arguments.get(key) for key in ("hangul", "hanja", "rr", "mr")]
    words = ", ".join(filter(None, parts)) or ", ".join(filter(None, arguments.positional))
    return f"Korean: {words}" if words else HOLE


RENDERERS = {
    "langx": language,
    "zh": chinese,
    "lang-zh": chinese,
    "korean": korean,
    "lang-ko": korean,
    **dict.fromkeys(
        ["ipa", "ipaslink", "ipalink", "ipablink", "ipac", "ipa link", "ipa-all", "pron-en", "pron", "ipavlink"],
        pronunciation,
    ),
    **dict.fromkeys(["respell", "pronunciation respelling", "usdict"], respelling),
}
