"""Templates of foreign words and of pronunciation."""

from data_prep.wikitext.markers import PRONUNCIATION, PRONUNCIATION_END, REMOVED
from data_prep.wikitext.templates.arguments import Arguments, names

_NAMES = dict(
    line.strip().split(" ", 1)
    for line in """
    af Afrikaans, aln Gheg, am Amharic, ang Old English, ar Arabic, arc Aramaic, arz Egyptian Arabic, az Azerbaijani
    be Belarusian, ber Berber, bg Bulgarian, bn Bengali, bo Tibetan, br Breton, bs Bosnian, ca Catalan, cop Coptic
    cs Czech
    cu Church Slavonic, cy Welsh, da Danish, de German, dv Dhivehi, el Greek, en English, eo Esperanto, es Spanish
    et Estonian
    eu Basque, fa Persian, fi Finnish, fil Filipino, fo Faroese, fr French, frm Middle French, fro Old French, ga Irish
    gd Scottish Gaelic, gl Galician, gmh Middle High German, goh Old High German, got Gothic, grc Ancient Greek
    grc-gre Greek
    gsw Swiss German, gu Gujarati, gv Manx, ha Hausa, haw Hawaiian, he Hebrew, hi Hindi, hr Croatian, hu Hungarian
    hy Armenian
    id Indonesian, ig Igbo, is Icelandic, it Italian, ja Japanese, jv Javanese, ka Georgian, kk Kazakh, km Khmer
    kn Kannada
    ko Korean, ku Kurdish, kw Cornish, ky Kyrgyz, la Latin, lb Luxembourgish, lo Lao, lt Lithuanian, lv Latvian
    mg Malagasy
    mi Māori, mk Macedonian, ml Malayalam, mn Mongolian, mr Marathi, ms Malay, mt Maltese, my Burmese, nah Nahuatl
    nb Norwegian
    nds Low German, ne Nepali, nl Dutch, no Norwegian, non Old Norse, oc Occitan, ota Ottoman Turkish, pa Punjabi
    peo Old Persian, pi Pali, pl Polish, ps Pashto, pt Portuguese, qu Quechua, rm Romansh, ro Romanian, ru Russian
    rus Russian
    sa Sanskrit, sc Sardinian, scn Sicilian, sco Scots, sd Sindhi, sh Serbo-Croatian, si Sinhala, sk Slovak, sl Slovene
    so Somali, sq Albanian, sr Serbian, sv Swedish, sw Swahili, syr Syriac, ta Tamil, te Telugu, tg Tajik, th Thai
    tk Turkmen
    tl Tagalog, tr Turkish, tt Tatar, ug Uyghur, uk Ukrainian, ur Urdu, uz Uzbek, vec Venetian, vi Vietnamese, xh Xhosa
    yi Yiddish, yo Yoruba, zh Chinese, zu Zulu
    """.strip()
    .replace("\n", ",")
    .split(",")
)
# Settings among the arguments of {{IPA-xx}} and {{IPAc-xx}}; the others are sounds.
_NOT_SOUNDS = frozenset(names("lang|local|pron|also|audio|help|icon|small|us|uk|en|or|label|all"))


def language(arguments: Arguments) -> str:
    """{{lang-ru|Москва|Moskva|Moscow}} and {{langx|ru|...}}: "Russian: Москва, Moskva, lit. 'Moscow'"."""
    is_general = arguments.template == "langx"
    code = arguments[0] if is_general else arguments.template.removeprefix("lang-")
    words = arguments.positional[1:] if is_general else arguments.positional
    words = words + [""] * (3 - len(words))
    if not words[0]:
        return REMOVED
    text = words[0]
    if transliteration := arguments.get("tr") or arguments.get("translit") or arguments.get("r") or words[1]:
        text += f", {transliteration}"
    if meaning := arguments.get("lit") or arguments.get("translation") or words[2]:
        text += f", lit. '{meaning}'"
    name = _NAMES.get(code) or _NAMES.get(code.partition("-")[0])
    return f"{name}: {text}" if name and arguments.get("label") != "none" else text


def pronunciation(arguments: Arguments) -> str:
    """{{IPA-fr|mo|lang}} "[mo]", {{IPAc-en|m|oʊ}} "/moʊ/", {{IPA|/mo/}} "/mo/"; `repair` decides whether they stay."""
    sounds = arguments.positional
    # Since 2023 {{IPA|fr|mo}} has taken the place of {{IPA-fr|mo}}.
    is_of_language = arguments.template.startswith("ipa-") or (len(sounds) > 1 and sounds[0] in _NAMES)
    if arguments.template == "ipa" and is_of_language:
        sounds = sounds[1:]
    sounds = [
        sound
        for sound in sounds
        if sound and sound.lower() not in _NOT_SOUNDS and not sound.lower().endswith((".ogg", ".wav", ".oga", ".mp3"))
    ]
    if not sounds:
        return REMOVED
    if arguments.template.startswith("ipac"):
        text = f"/{''.join(sounds)}/"
    else:
        text = f"[{sounds[0]}]" if is_of_language and sounds[0][0] not in "/[⟨" else sounds[0]
    return f"{PRONUNCIATION}{text}{PRONUNCIATION_END}"


def respelling(arguments: Arguments) -> str:
    """{{respell|al|BEE|doh}}: "al-BEE-doh"."""
    return f"{PRONUNCIATION}{'-'.join(filter(None, arguments.positional))}{PRONUNCIATION_END}"


def chinese(arguments: Arguments) -> str:
    """{{zh|c=北京|p=Běijīng}}: "Chinese: 北京; pinyin: Běijīng"."""
    labels = {"c": "Chinese", "s": "simplified Chinese", "t": "traditional Chinese", "p": "pinyin", "hp": "pinyin"}
    labels |= {"w": "Wade–Giles", "j": "Jyutping", "l": "lit."}
    is_labelled = arguments.get("labels") != "no"
    shown = (
        f"{label}: {arguments.get(key)}" if is_labelled else arguments.get(key)
        for key, label in labels.items()
        if arguments.get(key)
    )
    return ("; " if is_labelled else ", ").join(shown) or REMOVED


def korean(arguments: Arguments) -> str:
    """{{korean|hangul=서울|rr=Seoul}}: "Korean: 서울, Seoul"."""
    words = [arguments.get(key) for key in ("hangul", "hanja", "rr", "mr")] + arguments.positional
    return f"Korean: {', '.join(filter(None, words))}" if any(words) else REMOVED


def etymology(arguments: Arguments) -> str:
    """{{etymology|grc|ἄνθρωπος|human|la|homo|man}}: "from Ancient Greek ἄνθρωπος 'human' and Latin homo 'man'"."""
    origins = []
    for at in range(0, len(arguments.positional), 3):
        code, words, meaning = arguments[at], arguments.get(at + 1), arguments.get(at + 2)
        quoted = f"'{meaning}'" if meaning else ""
        origins.append(" ".join(filter(None, [_NAMES.get(code, code), words, quoted])))
    return f"from {' and '.join(origins)}" if origins else REMOVED


RENDERERS = {
    **dict.fromkeys(["etymology", "etym"], etymology),
    "langx": language,
    **dict.fromkeys(["zh", "lang-zh"], chinese),
    **dict.fromkeys(["korean", "lang-ko"], korean),
    **dict.fromkeys(["ipa", "ipalink", "ipaslink", "ipablink", "ipa link", "pron-en", "ipavlink"], pronunciation),
    **dict.fromkeys(["respell", "pronunciation respelling", "usdict"], respelling),
}
