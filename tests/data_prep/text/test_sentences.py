"""Compares the sentences of texts with those found by hand."""

import itertools
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_prep.text.sentences import iterate_sentences, split_sentences
from tests.data_prep.foreign_pages import WIKIS, Wiki


def test_sentences_end_at_stops_and_at_line_breaks() -> None:
    text = 'Dr. Smith paid $3.50 to Mr. J. R. Jones. He said: "Fine." Then he left\nA new paragraph\n\n \nThe end.'
    assert split_sentences(text) == [
        "Dr. Smith paid $3.50 to Mr. J. R. Jones.",
        'He said: "Fine."',
        "Then he left",
        "A new paragraph",
        "The end.",
    ]


@example("J\u00a0.")
@example('"B\u3000B\u3000.')
@given(st.text(alphabet="aB .!?\n\"'é\u00a0\u2009\u3000", max_size=60))
def test_sentences_lose_nothing(text: str) -> None:
    sentences = split_sentences(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() and "\n" not in sentence for sentence in sentences)


@given(st.lists(st.sampled_from(["One is here. ", "Two ", "three. ", "\n", "long" * 9]), max_size=40).map("".join))
def test_long_paragraphs_are_cut_at_sentences_or_words(text: str) -> None:
    """Without line breaks, a whole book would be one paragraph."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_prep.text.sentences.MAX_CHARACTERS", 30)
        found = split_sentences(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    words = text.split()
    assert all(
        word in words for sentence in found for word in sentence.split() if len(word) <= 30 and "long" not in word
    )


def test_sentences_come_one_by_one() -> None:
    """The memory for a document does not hold all of its sentences."""
    calls: list[str] = []

    class Text(str):
        def find(self, *arguments: Any) -> int:  # called for each paragraph
            calls.append("")
            return super().find(*arguments)

    sentences = iterate_sentences(Text("A sentence.\n" * 1000))
    assert [next(sentences), next(sentences)] == ["A sentence.", "A sentence."]
    assert len(calls) == 2


@pytest.mark.parametrize("wiki", WIKIS, ids=[wiki.language for wiki in WIKIS])
def test_sentences_of_other_languages(wiki: Wiki) -> None:
    text = ("" if wiki.language in ("ja", "zh") else " ").join(wiki.sentences)
    assert split_sentences(text, wiki.language) == list(wiki.sentences)


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("de", ["Am 3. Mai kam Dr. Weiß.", "Er blieb z. B. hier."]),
        ("de", ["Sie wohnt im 3. Stock.", "Der 2. Band hat 30.", "Ende."]),
        ("fr", ["Où va M. Dupont ?", "Mgr. Le Roux le sait."]),
        ("pl", ["To ks. Jan i św. Anna.", "Od 1990 r. są tu."]),
        ("tr", ["Bu 3. yüzyılda oldu.", "Sonra bitti."]),
        ("hi", ["डॉ. सिंह आए।", "वे बैठे।"]),
        ("ja", ["「はい。」と言った。", "「いいえ。」", "彼は帰った。"]),
        ("zh", ["他说：“好。”", "她走了！", "为什么？"]),
        ("fr", ["Elle part av. J.-C. de Rome.", "« Viens » dit-il."]),
        ("ru", ["«Иди сюда!» — сказал он.", "См. т. 2, с. 5."]),
        ("pl", ["„Chodź!” – powiedział.", "Por. t. 2, s. 5.", "Koniec."]),
        ("tr", ["“Gel!” dedi.", "Son."]),
        ("hi", ["कि.मी. में दूरी ५ है।", "अंत।"]),
        ("ar", ["قال د. أحمد ذلك.", "لماذا؟"]),
        ("ja", ["作品『道。』は有名だ。", "No. 5である。"]),
        ("xx", ["One is here.", "Two is there."]),
    ],
)
def test_what_is_no_end_of_a_sentence(language: str, sentences: list[str]) -> None:
    assert split_sentences(("" if language in ("ja", "zh") else " ").join(sentences), language) == sentences


@given(
    st.text(alphabet='aŞ .!?。」と「\n"ñ\u00a0।', max_size=60), st.sampled_from(["de", "fr", "ja", "zh", "hi", "qq"])
)
def test_sentences_of_other_languages_lose_nothing(text: str, language: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_prep.text.sentences.MAX_CHARACTERS", 20)
        sentences = split_sentences(text, language)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() and "\n" not in sentence for sentence in sentences)


def test_a_paragraph_without_blanks_is_cut_after_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_prep.text.sentences.MAX_CHARACTERS", 20)
    assert split_sentences("子供たちはここで遊ぶ。" * 30, "ja") == ["子供たちはここで遊ぶ。"] * 30


# For each language: how many boundaries of sentences are found, missed, and made beside those that a reader makes. Then
# a text with the reader's boundaries, |.
BY_EYE = """
de 3 0 0
Sie kam am 12. Juni 1903 u. a. nach Köln.|„Wie schön!“, rief sie.|
Prof. Dr. h. c. Meyer (vgl. S. 12) blieb bis ca. 1910.|Das war's.

fr 4 0 0
Elle naît le 3 mars 1901 à St. Malo.|« Viens ! » dit-il.|Cf. p. 12 de l'œuvre.|M. et Mme Roy partent av. J.-C.|Fin.

es 3 1 0
Nació el 3 de mayo de 1901 en EE. UU. y vivió allí.|«¡Ven!», dijo la Sra. López.|Vol. 2, pág. 5.|Pesaba 5 kg.|Murió.

ru 4 1 0
Он родился 3 мая 1901 г. в с. Ивановка.|«Иди сюда!» — сказал он.|См. т. 2, с. 5.|И т. д. и т. п.|
Это было в 5 в. до н. э.|Потом ушёл.

pl 3 1 0
Urodził się 3 maja 1901 r. w Krakowie.|„Chodź!” – powiedział.|Por. t. 2, s. 5 itd.|Mieszkał przy ul. Długiej.|Koniec.

tr 5 0 0
3 Mayıs 1901'de doğdu.|“Gel!” dedi.|Bkz. s. 5.|MÖ 5. yy. sonunda bitti.|T.C. vatandaşıdır.|Son.

hi 4 0 1
उनका जन्म ३ मई १९०१ को हुआ।|"आओ!" उसने कहा।|कि.मी. में दूरी ५ है।|अंत॥|फिर वे गए।

ar 4 0 1
ولد في ٣ مايو ١٩٠١م في القاهرة.|قال: «تعال!» ثم ذهب.|د. أحمد طبيب.|لماذا؟|لا أحد يعلم؛ وهكذا انتهى.

ja 4 0 0
彼は1901年5月3日に生まれた。|「来い！」と叫んだ。|作品『道。』は有名だ。|No. 5である。|終わり…そして続く。

zh 3 0 2
他生于1901年5月3日。|“来！”他喊道。|她说：“好。我来。”然后走了。|重5.5公斤……完了。
"""


def boundaries(sentences: list[str]) -> set[int]:
    """Returns where sentences end, in characters other than blanks, without the last."""
    lengths = [len("".join(sentence.split())) for sentence in sentences]
    return set(itertools.accumulate(lengths[:-1]))


@pytest.mark.parametrize("block", BY_EYE.strip().split("\n\n"), ids=lambda block: block[:2])
def test_boundaries_against_those_found_by_eye(block: str) -> None:
    head, *lines = block.split("\n")
    language, *expected = head.split()
    marked = "".join(lines)
    wanted = boundaries(marked.split("|"))
    text = marked.replace("|", "" if language in ("ja", "zh") else " ")
    found = boundaries(split_sentences(text, language))
    assert [len(wanted & found), len(wanted - found), len(found - wanted)] == [*map(int, expected)]
