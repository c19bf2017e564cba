"""The encoder with its table of words gives the ids of SentencePiece."""

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from data_prep.text import encoder as encoder_module
from data_prep.text.encoder import Encoder
from data_prep.text.normalization import normalize
from data_prep.text.vocabulary import Vocabulary
from tests.data_prep import corpora


def plain(vocabulary: Vocabulary, sentences: list[str]) -> list[list[int]]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.serialized)
    return processor.encode([normalize(sentence) for sentence in sentences])


def by_words(encoder: Encoder, sentences: list[str]) -> list[list[int]]:
    ids, lengths = encoder.encode(sentences)
    assert ids.dtype == np.uint16
    assert len(lengths) == len(sentences)
    assert lengths.sum() == len(ids)
    ends = np.cumsum(lengths)
    return [ids[end - length : end].tolist() for end, length in zip(ends, lengths)]


def test_ids_are_those_of_whole_sentences(vocabulary: Vocabulary) -> None:
    encoder = Encoder(vocabulary)
    sentences = corpora.make_sentences(3000, seed=3)
    found = [ids for first in range(0, 3000, 700) for ids in by_words(encoder, sentences[first : first + 700])]
    assert found == plain(vocabulary, sentences)


@pytest.mark.parametrize("whole", [True, False])
def test_what_rounding_decides_is_decided_alike(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """Returns words whose pieces may change places, after unknown characters, in long sentences."""
    generator = np.random.default_rng(0)
    sentences = []
    for base in corpora.make_sentences(1500, seed=5):
        words = base.split()
        for _ in range(3):
            unit = "".join(generator.choice(list("lomce16."), generator.integers(1, 3)))
            words.insert(int(generator.integers(len(words) + 1)), unit * int(generator.integers(2, 7)))
        words.insert(int(generator.integers(len(words) + 1)), "漢" * int(generator.integers(3)))
        sentences.append(" ".join(words * int(generator.choice([1, 1, 1, 20]))))
    if not whole:
        monkeypatch.setattr(Encoder, "_encode_whole", lambda self, texts, chosen, ids, counts: (ids, counts))
    differ = sum(a != b for a, b in zip(by_words(Encoder(vocabulary), sentences), plain(vocabulary, sentences)))
    assert differ == 0 if whole else differ > 5, "the test has lost its power"


@example(["a▁ b", "▁ a", "a ▁"])
@given(st.lists(st.text(st.sampled_from("aBé 1,.–½…ﬁ¨̈́漢▁\u00a0\u2028'`\"[CLS]\x00\x1f"), max_size=12), max_size=6))
@settings(max_examples=200, deadline=None)
def test_whatever_is_written(vocabulary: Vocabulary, sentences: list[str]) -> None:
    encoder = Encoder(vocabulary)
    expected = plain(vocabulary, [sentence.replace("\0", " ") for sentence in sentences])
    assert by_words(encoder, sentences) == expected
    assert by_words(encoder, sentences) == expected  # now every word is known


def test_a_batch_of_any_size_ends_where_it_ends(vocabulary: Vocabulary) -> None:
    """Arrow 26 reads beyond a text that ends with white space and fills its buffer, a multiple of 64 bytes."""
    encoder = Encoder(vocabulary)
    for size in range(200):
        sentences = ["ab " * (size // 3) + "c" * (size % 3)]
        assert not encoder_module._join(sentences)[-1].isspace()
        assert by_words(encoder, sentences) == plain(vocabulary, sentences), size


def test_emptying_the_table_changes_nothing(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_module, "MAX_WORDS", 50)
    encoder = Encoder(vocabulary)
    sentences = corpora.make_sentences(400, seed=4)
    found = [by_words(encoder, sentences[first : first + 20]) for first in range(0, 400, 20)]
    assert [ids for batch in found for ids in batch] == by_words(Encoder(vocabulary), sentences)
