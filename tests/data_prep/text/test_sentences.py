"""Compares the sentences of texts with those found by hand."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_prep.text.sentences import split_sentences
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
