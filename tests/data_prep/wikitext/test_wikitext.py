"""`to_prose` gives what a reader of the rendered page sees, sentence by sentence."""

import hashlib
import re
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_prep.corpus.documents import Document
from data_prep.sources.wikipedia import Wikipedia
from data_prep.wikitext import to_prose

PROSE_DIGEST = "2872fba553017f57b2dfffb0b148b6dc13e7310e9e1b113497bdfb8da2b5485b"
"""sha256 of the articles of the sample corpus."""

# markup inside "It is ... and so on." -> what stands there
INLINE = [
    # links
    ("[[Paris]]", "Paris"),
    ("[[Paris|the city]]s", "the citys"),
    ("[[Paris#History]]", "Paris"),
    ("[[:Category:Towns|a category]], [[:Category:Towns]]", "a category, Category:Towns"),
    ("[[Paris|the {{nowrap|old city}}]], [[Paris {{small|(Texas)}}|]]", "the old city, Paris"),
    ("a [[File:A.jpg|thumb|200px|with [[links]] and {{small|x}}]] b", "a b"),
    ("[https://example.org/a?b=c the site]", "the site"),
    ("the end [https://example.org]", "the end"),
    ("[[wikt:word|word]]", "word"),
    # formatting
    ("'''bold''', ''italic'' and '''''both'''''", "bold, italic and both"),
    ("''Eagle'''s footpads", "Eagle's footpads"),
    ("CO<sub>2</sub> and x<sup>2</sup>", "CO2 and x^2"),
    ("10<sup>6</sup>, ''m''<sup>2</sup>, <i>e</i><sup>''ix''</sup>, 2{{sup|n+1}}", "10^6, m^2, e^ix, 2^(n+1)"),
    ("Ca<sup>2+</sup>, [[Iron|Fe]]<sup>&minus;2</sup>, 5d<sup>10</sup>6s", "Ca^2+, Fe^−2, 5d^(10)6s"),
    ("x<sup>e</sup>, n<sup>th</sup>, 2<sup>e</sup>, x<sup>o</sup>", "x^e, nth, 2e, x^o"),
    ("1<sup>st</sup>, M<sup>lle</sup>, <sup>14</sup>C, a<sub>n</sub>", "1st, Mlle, 14C, a_n"),
    ("10<sub>2</sub>, H<sub>2</sub>O<sub>(l)</sub>, x{{sub|i}}", "10_2, H2O(l), x_i"),
    ("x<small y and z>2 but <small>small</small><br clear=all>", "x<small y and z>2 but small"),
    ("<font color=red>red</font> <div style='a:b'>and</div> <br/ >", "red and"),
    ("A<br/>B&nbsp;C &amp; D&mdash;E", "A B C & D—E"),
    ("<nowiki>[[not a link]] {{nor|a template}}</nowiki>", "[[not a link]] {{nor|a template}}"),
    # dropped without a trace
    (
        "true<ref name=a>{{cite book|title=[[B]]}}</ref>, false<ref name=b /> and done<!-- really? -->",
        "true, false and done",
    ),
    ("said{{citation needed|date=May 2016}} often{{sfn|Smith|2010|p=5}}", "said often"),
    ("this{{what happened|date=May 2016}} here", "this here"),
    ("one, {{unknown thing}}, two", "one, two"),
    ("one {{unknown thing}} (two{{unknown thing}}) {{unknown thing}}", "one (two)"),
    # numbers and measures
    ("{{convert|1300|mi|km}} long", "1,300 miles long"),
    ("a {{convert|5|mi|km|0|adj=on}} walk", "a 5-mile walk"),
    ("{{convert|6|to|8|ft|m|abbr=on}}", "6 to 8 ft"),
    ("{{convert|6|by|9|in|cm|adj=on}}, {{convert|−40|C|F}}", "6-by-9-inch, -40 °C"),
    ("{{convert|5|ft|6|in|cm}}", "5 feet 6 inches"),
    ("{{convert|1|km}} or {{cvt|20|-|25|cm|in}}", "1 kilometre or 20–25 cm"),
    ("{{convert|22|e6acre|km2}}, {{convert|2.3|Moilbbl/d}}", "22 million acres, 2.3 million barrels per day"),
    (
        "{{convert|1|to|2|mi|km}}, {{convert|5|-|10|ft}}, {{convert|3|or|4|lb}}",
        "1 to 2 miles, 5–10 feet, 3 or 4 pounds",
    ),
    (
        "{{convert|2|x|4|in}}, {{convert|10|+/-|1|kg}}, {{convert|1|and|2|acre}}",
        "2 × 4 inches, 10 ± 1 kilograms, 1 and 2 acres",
    ),
    ("{{convert|2|to|3|ft|adj=on}}, {{convert|2|or|5|oz|adj=on|abbr=on}}", "2-to-3-foot, 2 or 5 oz"),
    (
        "{{convert|1|lb|3|oz}}, {{convert|-1|kn}}, {{convert|1|by|2|by|3|m}}",
        "1 pound 3 ounces, -1 knot, 1 by 2 by 3 metres",
    ),
    ("{{convert|100|km|mi|sp=us}} at {{convert|-27|°F}}", "100 kilometers at -27 °F"),
    ("{{convert|1+1/2|in|mm}}", "1 1/2 inches"),
    ("{{frac|2|3}}, {{frac|1|2|3}}, {{frac|4}}", "2/3, 1 2/3, 1/4"),
    ("{{val|6.241|e=18|u=C}} ({{val|1.5|0.1}})", "6.241×10^18 C (1.5±0.1)"),
    ("{{formatnum:1234567}} and {{US$|2 billion}}", "1,234,567 and US$2 billion"),
    ("{{pop density|1000|40|km2}}", "25 inhabitants per square kilometre"),
    ("{{pop density|1000|40|km2|prec=999999999}}", "25.000000000 inhabitants per square kilometre"),
    ("{{Coord|13|19|N|169|9|W|type:event}}", "13°19′N 169°9′W"),
    ("at sea{{coord|13|19|N|169|9|W|display=title}}", "at sea"),
    ("{{chem|C|2|H|6|O}}, {{chem|SO|4|2-}}, {{chem2|SO4(2-)}}", "C2H6O, SO4^2-, SO4^2-"),
    ("$5 (${{Inflation|US|5|1929}} in {{CURRENTYEAR}} dollars)", "$5"),
    ("$5 (${{Inflation|US|5|1929}} in {{CURRENTYEAR}} dollars; not much)", "$5 (not much)"),
    ("{{currency|5|EUR}}, {{SEK|20}}, {{track gauge|1435mm}}", "€5, SEK 20, 1,435 mm"),
    ("the {{ordinal|22}}, {{ordinal|111}}, {{ordinal|3}}", "the 22nd, 111th, 3rd"),
    ("{{spell number|42}}, {{score|3|1}}", "forty-two, 3–1"),
    # dates
    ("{{as of|2014|lc=y}}, {{as of|2013|6|8|lc=on|post=,}}", "as of 2014, as of 8 June 2013,"),
    ("{{circa|1200}} ({{birth date|1990|1|2}})", "c. 1200 (January 2, 1990)"),
    ("{{start date|1990|1|2|df=y}} to {{end date|1991|5}}", "2 January 1990 to May 1991"),
    ("{{OldStyleDate|February 2|1905|January 20}}", "February 2, 1905"),
    ("{{mya|65|60}}, {{bya|4.5}}, {{BCE|500}}{{ce}}", "65–60 million years ago, 4.5 billion years ago, 500 BCE"),
    ("{{age|1946|4|29|1990|1|2}} ({{birth year and age|1950}})", "43 (1950)"),
    # languages and sounds
    ("Rome ({{lang-la|Roma}}; {{IPAc-en|r|oʊ|m}}) by name", "Rome (Latin: Roma) by name"),
    ("Rome ({{IPAc-en|r|oʊ|m}} or {{IPA-it|ˈroːma|}})", "Rome"),
    ("Rome (pronounced {{IPAc-en|r|oʊ|m}}, {{respell|ROHM}}; born 5 May)", "Rome (born 5 May)"),
    ("Angola {{IPAc-en|æ|ŋ|ˈ|ɡ|oʊ|l|ə}}, officially so", "Angola, officially so"),
    ('Angola{{IPAc-en|æ|ŋ}} is, and "{{IPA|a}}" too', 'Angola is, and "a" too'),
    ("the vowel {{IPA|/a/}}, written ⟨a⟩", "the vowel /a/, written ⟨a⟩"),
    ("{{lang|fr|mot}} and {{transl|ar|ALA|al-kīmiyā}}", "mot and al-kīmiyā"),
    ("Moscow ({{lang-rus|Москва|r=Moskva|p=mɐskˈva}}; {{audio|A.ogg|listen}})", "Moscow (Russian: Москва, Moskva)"),
    ("{{zh|t=臺北|p=Táiběi|labels=no}}, {{zh|c=北京|p=Běijīng}}", "臺北, Táiběi, Chinese: 北京; pinyin: Běijīng"),
    ("{{lang-ru|Москва|Moskva|Moscow}}", "Russian: Москва, Moskva, lit. 'Moscow'"),
    ("{{nihongo|Aikido|合気道|Aikidō}}", "Aikido (合気道, Aikidō)"),
    ("{{nihongo3|way|道|dō}}, {{nihongo foot|Aikido|合気道}}, {{nihongo2|道}}", "dō (道, way), Aikido, 道"),
    ("the letter ⟨{{IPA|ts}}⟩, the sound {{IPA|/a/}}, {{IPA|fr|mo}}", "the letter ⟨ts⟩, the sound /a/, [mo]"),
    # words and signs
    ("{{nowrap|''Z'' {{=}} 1}}", "Z = 1"),
    ("1775{{ndash}}1783{{snd}}a war{{mdash}}''Eagle''{{'s}}", "1775–1783 – a war—Eagle's"),
    ("{{USS|Hornet|CV-12|6}}, {{HMS|Ajax|22}}, {{SMS|Emden||2}}", "USS Hornet, HMS Ajax (22), Emden"),
    ("{{ship||Titanic}}, {{ship|French ship|Redoutable|1791|3}}", "Titanic, Redoutable (1791)"),
    ("{{sclass|Iowa|battleship}}, {{sclass|Iowa|battleship|4}}", "Iowa-class battleship, Iowa class"),
    ("{{key press|Ctrl|C}} {{keypress|F1}}", "Ctrl+C F1"),
    ('{{"|so}} {{bracket|he}} {{Qref|2|255}} {{sortname|Ada|Lovelace}}', '"so" [he] Quran 2:255 Ada Lovelace'),
    (
        "{{harvtxt|Smith|Jones|2001}} {{citation needed span|said|date=May 2010}}",
        "Smith and Jones (2001) said",
    ),
    ("({{NYSE|IBM}}) {{airport codes|LAX|KLAX}}", "(NYSE: IBM) (IATA: LAX, ICAO: KLAX)"),
    ("{{ill|Titel|de|Der Titel}}, {{ill|de|Titel|Title}}, {{ill|A|de|B|lt=words}}", "Titel, Title, words"),
    ("{{abbr|GDP|gross domestic product}} {{angbr|a}} {{sic|teh}}", "GDP ⟨a⟩ teh"),
    ("a population of {{new template|12,000}} people", "a population of 12,000 people"),
    # formulas
    (
        r"an <math>~n~</math>photon state, <math>x\ </math>, <math>y\,</math>metres <math>z~</math>",
        "an n photon state, x, y metres z",
    ),
    (r"<math>E = mc^2</math> with <math>\frac{a}{b+1} \leq \alpha</math>", "E = mc^2 with a/(b+1) ≤ α"),
    ("the {{dash year|1989|90}} season", "the 1989–90 season"),
    ("in {{nihongo4|''Edo''|江戸}}", "in Edo 江戸"),
    ("on {{date|2020-01-05|dmy}} or {{Date|2020-11-15|mdy}}", "on 5 January 2020 or November 15, 2020"),
    ("called {{IAST|Mahābhārata}}", "called Mahābhārata"),
    ("at {{URL|example.org|its site}} or {{respell|AL|pha}}", "at its site or AL-pha"),
    ("there (it was {{as of|2014|alt=in 2014|post=),}} he said", "there (it was in 2014), he said"),
    ("a run of {{convert|10|mi|km|adj=pre|straight}}", "a run of 10 straight miles"),
    ("a {{convert|10|mi|km|adj=mid|-long}} run", "a 10-mile-long run"),
    ("the call <syntaxhighlight lang=c inline>f(x) < [[y]]</syntaxhighlight> ends", "the call f(x) < [[y]] ends"),
    ('the call <source lang="c" inline=1>g()</source> ends', "the call g() ends"),
    ("with<syntaxhighlight lang=c>int x;</syntaxhighlight> it", "with it"),
    ("5 km<sup>2</sup> and {{convert|5|km2|abbr=on}} and 3 m<sup>3</sup>", "5 km² and 5 km² and 3 m³"),
    ("E = mc<sup>2</sup> and x<sup>2</sup> at 9.8 m/s<sup>2</sup>", "E = mc^2 and x^2 at 9.8 m/s²"),
    ("helium is 1s<sup>2</sup> and ''m''<sup>2</sup>", "helium is 1s^2 and m^2"),
]


@pytest.mark.parametrize(("markup", "words"), INLINE)
def test_inside_a_sentence(markup: str, words: str) -> None:
    assert to_prose(f"It is {markup} and so on.") == f"It is {words} and so on."


PAGE = """{{Infobox town
| name = Town
| population = {{formatnum:1000}}
}}
[[File:Town.jpg|thumb|The [[town]].]]
'''Town''' is a town.<ref>{{cite web|url=http://x.org|title=T}}</ref>
It lies on a river.
{| class="wikitable"
|-
! Year !! People
|-
| 1900 || {| nested
| 5
|}
|}

== History ==
{{main|History of Town}}
It was founded in [[1200]]; the text says:
{{quote|We came, and we saw the river.|A founder}}
<gallery>
File:A.jpg|A picture
</gallery>
* A short item
* This item of the list is a whole sentence.
: An indented remark that is a sentence as well.
; Term : definition

=== Notes ===
# Not kept, although it is a sentence of words.
==== Below the notes ====
Nor is this one here.
=== Today ===
It thrives.

== See also ==
* [[River]]
== References ==
{{reflist}}
Nothing of this is left.
== Economy ==
There is trade. __NOTOC__
[[Category:Towns]]
[[fr:Ville]]
"""


def test_a_page() -> None:
    assert to_prose(PAGE).split("\n") == [
        "Town is a town. It lies on a river.",
        "It was founded in 1200; the text says:",
        "We came, and we saw the river.",
        "This item of the list is a whole sentence.",
        "An indented remark that is a sentence as well.",
        "It thrives.",
        "There is trade.",
    ]


@pytest.mark.parametrize(
    ("markup", "paragraphs"),
    [
        ("He said:\n<blockquote>Go!</blockquote>", ["He said:", "Go!"]),
        ("He said:\n* Ours is a sentence of several words.", ["He said:", "Ours is a sentence of several words."]),
        ("Examples:\n* one\n* two\nIt is so.", ["It is so."]),
        (
            "It reads:\n:Sing, Goddess, of the rage\n:of Peleus' son",
            ["It reads:", "Sing, Goddess, of the rage of Peleus' son"],
        ),
        ("The energy is\n:<math>E=mc^2</math>,\nwhere m is the mass.", ["The energy is E=mc^2, where m is the mass."]),
        ("The energy is:\n\n:<math>E=mc^2.</math>\n\nIt is so.", ["The energy is: E=mc^2.", "It is so."]),
        ("- It is the first and\n- the second of them", ["- It is the first and - the second of them"]),
        ("!Kung people live here.\n! scope=row | 1", ["!Kung people live here."]),
        ("It is one. It cost ${{Inflation|US|5|1929}} then. It is two.", ["It is one. It is two."]),
        ("It is one. It is {{inflation|US|1|4}} of it. It is two.", ["It is one. It is two."]),
        ("<noinclude>It is shown.</noinclude><includeonly>It is not.</includeonly>", ["It is shown."]),
        ("<onlyinclude>This is shown as well.</onlyinclude>", ["This is shown as well."]),
    ],
)
def test_paragraphs(markup: str, paragraphs: list[str]) -> None:
    assert to_prose(markup).split("\n") == paragraphs


def test_the_day_a_page_was_saved() -> None:
    markup = "It is {{CURRENTYEAR}}, {{CURRENTMONTHNAME}}, {{age|1969|07|20}} years ({{age|1969}} of them) on."
    assert to_prose(markup, date(2016, 5, 1)) == "It is 2016, May, 46 years (47 of them) on."
    assert to_prose("This is so ({{age|1969}} years ago) now.") == "This is so now."


PROSE = "The town lies on a river and has a bridge."


@pytest.mark.parametrize(
    "other",
    [
        "* Smith, John (1990). The history of the old town. Norton.",
        "* Smith, J. & Jones, A. B. (1990). The history of the old town.",
        "* Smith, Anna. The history of the old town. New York: Norton, 1990.",
        "* The history of the old town by Anna Smith. ISBN 0-306-40615-2.",
        "'''The early years of the town'''",
        "'''The early years of the town''':",
    ],
)
def test_what_is_no_prose_goes(other: str) -> None:
    assert to_prose(f"{PROSE}\n\n{other}\n\n{PROSE}") == f"{PROSE}\n{PROSE}"


@pytest.mark.parametrize(
    "other",
    [
        "* Smith, the mayor of the town, built a bridge in 1990 and a school.",
        "* In 1990 (2000 in some sources) the bridge was built by the town.",
        "'''The early years of the town''' were poor.",
        "'''The early years of the town were poor.'''",
    ],
)
def test_what_is_prose_stays(other: str) -> None:
    assert len(to_prose(f"{PROSE}\n\n{other}\n\n{PROSE}").split("\n")) == 3


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        ("Before it. {{open template|with words stays words.", "Before it. open template|with words stays words."),
        ("An [[open link and more words follow.", "An open link and more words follow."),
        ("A closed end}} and ]] more of it |} here.", "A closed end and more of it |} here."),
        ("Text before it.\n{| open table\n| never closed\n", "Text before it."),
        ("A <ref>never closed reference. And the rest stays.", "A never closed reference. And the rest stays."),
        ("{{a|[[b}} crossed ends ]] of it are survived.", "crossed ends of it are survived."),
        ("", ""),
        ("{{just a template}}", ""),
    ],
)
def test_broken_markup_costs_little(markup: str, prose: str) -> None:
    assert to_prose(markup) == prose


PIECES = """
    {{ }} [[ ]] {| |} | = ( ) ''' [http://a ] == , . : * <ref> </ref> <math> </math> <!-- --> <nowiki> \\frac{ \ue000
    \ue001 word 5 km <sup> </sup> <sub> </sub> <small File: convert val lang-ru nihongo IPA coord as_of age inflation
    ship HMS unichar D800 harvtxt chem said currency ordinal
""".split()  # noqa: SIM905
SPACES = ["\n", " ", ". "]


@given(st.lists(st.sampled_from([*PIECES, *SPACES * 4]), max_size=40))
def test_any_markup_gives_clean_text(pieces: list[str]) -> None:
    prose = to_prose("".join(pieces), date(2016, 5, 1))
    prose.encode()
    assert not re.search("[\ue000-\uf8ff]", prose)
    assert all(line == " ".join(line.split()) and line for line in prose.split("\n") if prose)


@pytest.mark.parametrize(
    "beginning",
    [*("<math>", "<gallery>", "<pre>", "<nowiki>", "<ref>", "<sup>", "<small ", "{{", "[[", "(", "''", "is so\n\n")],
)
def test_a_page_of_beginnings_ends(beginning: str) -> None:
    assert isinstance(to_prose(beginning * 60_000), str)  # if the work grew as the square, this would take hours


def test_the_prose_of_the_sample_is_what_it_was(sample_corpus: Path) -> None:
    """A change of one byte changes the digest: read what has changed before you enter another one."""
    source = Wikipedia([sample_corpus / "wikipedia"], 16 << 20)
    texts = [item.text for unit in source.units for item in source.read(unit) if isinstance(item, Document)]
    assert hashlib.sha256("\n\n".join(texts).encode()).hexdigest() == PROSE_DIGEST
    everything = "\n".join(texts)
    assert not re.search(r"\{\{|\}\}|\[\[|\]\]|<ref|</|'''|&nbsp;|\[http", everything)
    # Sentences with a template in their middle, as the rendered pages have them.
    for sentence in (
        "At 1,300 miles, Alabama has one of the longest navigable inland waterways in the nation.",
        "are diagnosed with ASD as of 2014, a 30% increase from one in 88 in 2012",
        "Actresses (Catalan: Actrius) is a 1997 Catalan language Spanish drama film",
        "Alain Connes (born 1 April 1947) is a French mathematician",
        "a population density of 5.7 inhabitants per square kilometre in 2011",
    ):
        assert sentence in everything, sentence
