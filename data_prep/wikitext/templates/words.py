"""Functions of templates of words and signs, of names, of foreign words and of pronunciation."""

import re

from data_prep.wikitext.markers import PRONUNCIATION, PRONUNCIATION_END, REMOVED
from data_prep.wikitext.site import read_table
from data_prep.wikitext.tags import script
from data_prep.wikitext.templates.arguments import Arguments, names, renders

_NIHONGO = ("english", "kanji", "rōmaji", "extra")  # names of its arguments
_LISTEN = ("", "listen", "play", "pronunciation", "pronounce", "help")
_ACCIDENTALS = {"flat": "♭", "b": "♭", "sharp": "♯", "#": "♯", "natural": "♮", "n": "♮"}
_NOT_UPPER = {"hdms": "HDMS", "hnlms": "HNLMS", "hnoms": "HNoMS", "hswms": "HSwMS"}
# The last number of a ship's template says which parts of the name to show. It is a sum of these values.
_PREFIX, _NAME, _IDENTIFIER = 4, 2, 1
_LANGUAGES = dict(entry.split(maxsplit=1) for entry in read_table("templates.toml")["languages"]["names"].split(","))
# Settings among the arguments of {{IPA-xx}} and {{IPAc-xx}}; the others are sounds.
_NOT_SOUNDS = frozenset(names("lang|local|pron|also|audio|help|icon|small|us|uk|en|or|label|all"))
_CHINESE = {"c": "Chinese", "s": "simplified Chinese", "t": "traditional Chinese", "p": "pinyin", "hp": "pinyin"}
_CHINESE |= {"w": "Wade–Giles", "j": "Jyutping", "l": "lit."}


@renders
def recording(arguments: Arguments) -> str:
    """{{audio|A.ogg|words}}: the words, unless they only ask to listen."""
    return REMOVED if arguments.get(1).lower() in _LISTEN else arguments.get(1)


@renders
def formula(arguments: Arguments) -> str:
    """{{chem2|SO4(2-)}} "SO4^2-"."""
    return re.sub(r"\((\d*[-+−])\)", r"^\1", "".join(arguments.positional))


@renders
def atoms(arguments: Arguments) -> str:
    """{{chem|C|2|H|6|O}} "C2H6O", {{chem|SO|4|2-}} "SO4^2-": symbols and counts joined, charges as superscripts."""
    text = ""
    for part in arguments.positional:
        is_charge = re.fullmatch(r"\d*[-+−–]", part)
        kind = "sup" if is_charge else "sub" if part[:1].islower() and len(part) == 1 else ""
        text += script(kind, part, text[-1:]) if kind else part.replace("_", "")
    return text


@renders
def interlanguage_link(arguments: Arguments) -> str:
    """{{ill|Title|de|Titel|lt=words}}, or the older {{ill|de|Titel|Title}}."""
    if shown := arguments.get("lt"):
        return shown
    is_old_order = re.fullmatch(r"[a-z]{2,3}", arguments[0])
    return (arguments.get(2) or arguments[1]) if is_old_order else arguments[0]


@renders
def misspelt(arguments: Arguments) -> str:
    """{{sic|teh}} shows the misspelt words; without words it is a remark to readers."""
    return " ".join(part for part in arguments.positional[:2] if part and part != "hide") or REMOVED


@renders
def verse_of_the_bible(arguments: Arguments) -> str:
    """{{bibleverse|Mark|3:25|NIV}} "Mark 3:25"; {{bibleverse|1|Kings|2:3}} "1 Kings 2:3"."""
    return arguments.join(" ", 3 if not arguments.get(0, "1").isalpha() else 2)


@renders
def nihongo(arguments: Arguments) -> str:
    """{{nihongo|words|kanji|romaji|extra}} "words (kanji, romaji, extra)"; nihongo3 begins with the romaji."""
    words, kanji, romaji, extra = (arguments.get(index) or arguments.get(key) for index, key in enumerate(_NIHONGO))
    if arguments.template == "nihongo foot":  # the rest is in a footnote
        return words or arguments[1]
    order = (romaji, kanji, words, extra) if arguments.template == "nihongo3" else (words, kanji, romaji, extra)
    shown, *others = filter(None, order)
    return " ".join(filter(None, [f"{shown} ({', '.join(others)})" if others else shown, arguments.get(4)]))


@renders
def music(arguments: Arguments) -> str:
    """{{music|flat}} "♭", {{music|time|3|4}} "3/4"."""
    return _ACCIDENTALS.get(arguments[0]) or arguments.show("{2}/{3} // {1}")


@renders
def ship(arguments: Arguments) -> str:
    """{{ship|French ship|Redoutable|1791}} "French ship Redoutable (1791)"; with 6 after it the year is not shown.

    Templates of prefixes: {{USS|Hornet|CV-12}} "USS Hornet (CV-12)", {{HMS|Ajax|22|6}} "HMS Ajax".
    """
    prefix = _NOT_UPPER.get(arguments.template, arguments.template.upper())
    parts = arguments.positional if arguments.template == "ship" else [prefix, *arguments.positional]
    prefix, name, identifier, code = (*parts, "", "", "", "")[:4]
    shown = int(code) if code.isdecimal() and 0 < int(code) < 8 else _PREFIX | _NAME | _IDENTIFIER
    words = [word for word, bit in ((prefix, _PREFIX), (name, _NAME)) if word and shown & bit]
    if identifier and shown & _IDENTIFIER:
        words.append(f"({identifier})" if shown & _NAME else identifier)
    return " ".join(words) or REMOVED


@renders
def ship_class(arguments: Arguments) -> str:
    """{{sclass|Iowa|battleship}} "Iowa-class battleship"; a third argument 0 "Iowa-class", 4 "Iowa class", 5 "Iowa"."""
    short = {"0": "{1}-class", "4": "{1} class", "5": "{1}"}
    return arguments.show(short.get(arguments.get(2), "{1}-class {2} // {1}-class"))


@renders
def language(arguments: Arguments) -> str:
    """{{lang-ru|Москва|Moskva|Moscow}} and {{langx|ru|...}}: "Russian: Москва, Moskva, lit. 'Moscow'".

    On pages in other languages: the words alone.
    """
    is_general = arguments.template == "langx"
    code = arguments[0] if is_general else arguments.template.removeprefix("lang-")
    text, transliteration, meaning = (*arguments.positional[is_general:], "", "", "")[:3]
    if not text or not arguments.site.is_english:
        return text or REMOVED
    if transliteration := arguments.get("tr") or arguments.get("translit") or arguments.get("r") or transliteration:
        text += f", {transliteration}"
    if meaning := arguments.get("lit") or arguments.get("translation") or meaning:
        text += f", lit. '{meaning}'"
    name = _LANGUAGES.get(code) or _LANGUAGES.get(code.partition("-")[0])
    return f"{name}: {text}" if name and arguments.get("label") != "none" else text


@renders
def pronunciation(arguments: Arguments) -> str:
    """{{IPA-fr|mo|lang}} "[mo]", {{IPAc-en|m|oʊ}} "/moʊ/", {{IPA|/mo/}} "/mo/"; `repair` decides whether they stay."""
    sounds = arguments.positional
    # Since 2023 {{IPA|fr|mo}} has taken the place of {{IPA-fr|mo}}.
    is_of_language = arguments.template.startswith("ipa-") or (len(sounds) > 1 and sounds[0] in _LANGUAGES)
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


@renders
def chinese(arguments: Arguments) -> str:
    """{{zh|c=北京|p=Běijīng}}: "Chinese: 北京; pinyin: Běijīng". On pages in other languages: the words alone."""
    if not arguments.site.is_english:
        return arguments.show("{1,c,s,t}")
    is_labelled = arguments.get("labels") != "no"
    shown = (
        f"{label}: {arguments.get(key)}" if is_labelled else arguments.get(key)
        for key, label in _CHINESE.items()
        if arguments.get(key)
    )
    return ("; " if is_labelled else ", ").join(shown) or REMOVED
