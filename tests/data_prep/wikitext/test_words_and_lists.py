"""Templates that carry words, code inside sentences, units, and lines that look like prose and are none."""

import pytest

from data_prep.wikitext import to_prose


@pytest.mark.parametrize(
    ("markup", "shown"),
    [
        ("the {{dash year|1989|90}} season", "the 1989–90 season"),
        ("in {{nihongo4|''Edo''|江戸}}", "in Edo 江戸"),
        ("on {{date|2020-01-05|dmy}} or {{Date|2020-11-15|mdy}}", "on 5 January 2020 or November 15, 2020"),
        ("called {{IAST|Mahābhārata}}", "called Mahābhārata"),
        ("at {{URL|https://example.org/}} or {{URL|example.org|its site}}", "at example.org or its site"),
        ("in {{duration|1|2|3}} or {{duration|m=5|s=3}} or {{duration|4|5}}", "in 1:02:03 or 5:03 or 4:05:00"),
        (
            "it is {{etymology|grc|''ἄνθρωπος'' (ánthropos)|human}}",
            "it is from Ancient Greek ἄνθρωπος (ánthropos) 'human'",
        ),
        ("won {{winning percentage|5|3}} and {{winning percentage|64|46|11}}", "won .625 and .574"),
        ("won {{winning percentage|4|0}}", "won 1.000"),
        ("there (it was {{as of|2014|alt=in 2014|post=),}} he said", "there (it was in 2014), he said"),
        ("a run of {{convert|10|mi|km|adj=pre|straight}}", "a run of 10 straight miles"),
        ("a {{convert|10|mi|km|adj=mid|-long}} run", "a 10-mile-long run"),
        ("the call <syntaxhighlight lang=c inline>f(x) < [[y]]</syntaxhighlight> ends", "the call f(x) < [[y]] ends"),
        ('the call <source lang="c" inline=1>g()</source> ends', "the call g() ends"),
        ("with<syntaxhighlight lang=c>int x;</syntaxhighlight> it", "with it"),
        ("5 km<sup>2</sup> and {{convert|5|km2|abbr=on}} and 3 m<sup>3</sup>", "5 km² and 5 km² and 3 m³"),
        ("E = mc<sup>2</sup> and x<sup>2</sup> at 9.8 m/s<sup>2</sup>", "E = mc^2 and x^2 at 9.8 m/s²"),
        ("helium is 1s<sup>2</sup> and ''m''<sup>2</sup>", "helium is 1s^2 and m^2"),
    ],
)
def test_inside_a_sentence(markup: str, shown: str) -> None:
    assert to_prose(f"They say {markup}.") == f"They say {shown}."


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
        "1.e4 e5 2.Nf3 Nc6 3.Bb5 a6 4.Ba4 Nf6 5.O-O Be7.",
        "1. e4 e5 2. Nf3 Nc6 3. Bb5 a6 and White is better.",
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
        "After 1.e4 e5 the best move is 2.Nf3, which attacks a pawn.",
        "1. The first rule is that nobody may go to e4.",
    ],
)
def test_what_is_prose_stays(other: str) -> None:
    assert len(to_prose(f"{PROSE}\n\n{other}\n\n{PROSE}").split("\n")) == 3
