"""Only the meaning of two segments may tell their order, or that they come from different documents.

The outer ends of a pair are often cut inside a sentence; its middle is not. If a swap moved those cuts, punctuation
alone would give the label away. The fragments of data_prep/format/pairs.py prevent this.
"""

import re
from collections import Counter

import numpy as np
import pytest

from data_prep.__main__ import main
from data_prep.corpus.work_units import open_corpus, read_column
from data_prep.format.pairs import make_pairs
from data_prep.format.shards import ShardRows
from data_prep.text.sentences import split_sentences
from model.layers.heads import IGNORED_LABEL
from pipeline.data import collate
from pipeline.data.collate import BatchShape, Collator, SampledRows
from pipeline.data.masking import MaskingSettings
from tests.pipeline.data.test_collate import MemoryShards

pytestmark = pytest.mark.slow

PAPER = MaskingSettings()


class Moving(Collator):
    """Swaps whole segments with their fragments, which leaks the label."""

    def _arrange(self, found, sampled):
        arranged = super()._arrange(found, sampled)
        changed = arranged.labels == 1
        for parts in (arranged.starts, arranged.lengths):
            lead, b, a, trail = parts[changed].T
            parts[changed] = np.stack([b, trail, lead, a], axis=1)
        return arranged


MAX_WORDS = 20_000


def numbered(texts):
    """For each text its sentences, as numbers of words and punctuation marks."""
    words = [[re.findall(r"\w+|[^\w\s]", sentence.lower()) for sentence in split_sentences(text)] for text in texts]
    frequent = Counter(word for text in words for sentence in text for word in sentence).most_common(MAX_WORDS)
    numbers = {word: number for number, (word, _) in enumerate(frequent, collate.FIRST_ORDINARY_ID)}
    rare = collate.FIRST_ORDINARY_ID + len(numbers)
    return [[[numbers.get(word, rare) for word in sentence] for sentence in text] for text in words]


@pytest.fixture(scope="module")
def chapters(sample_corpus, tmp_path_factory):
    """The chapters of the sample's books."""
    documents = tmp_path_factory.mktemp("chapters") / "documents"
    main(["extract", "--source", "books", "--input", str(sample_corpus / "books"), "--out", str(documents)])
    return numbered([text for unit in open_corpus([documents], "train").units for text in read_column(unit, "text")])


def rows_of(chapters, max_seq_length):
    """The chapters' pairs, one a row."""
    tokens = np.array([token for chapter in chapters for sentence in chapter for token in sentence], np.uint16)
    pairs = make_pairs(
        np.array([len(sentence) for chapter in chapters for sentence in chapter]),
        np.array([len(chapter) for chapter in chapters]),
        0,
        max_seq_length=max_seq_length,
        short_probability=0.1,
        min_tokens=16,
        seed=0,
    )
    stops = pairs.starts + pairs.parts.total()
    rows = [
        ShardRows(
            tokens[start:stop], pairs.parts.take(np.array([pair])), pairs.documents[pair : pair + 1], np.array([1])
        )
        for pair, (start, stop) in enumerate(zip(pairs.starts, stops))
    ]
    return MemoryShards(rows, max_seq_length)


def ends_and_lengths(source):
    """For each labelled pair: the first and last word of each segment, and by how much one is longer in factors of
    1.4; and its label."""
    everything = SampledRows([0] * len(source.shards), list(range(len(source.shards))))
    arranged = source._arrange(source.shards.rows(np.array(everything.rows)), everything)
    tokens, firsts, seconds = arranged.texts()
    features, labels, start = [], [], 0
    for first, second, label in zip(firsts, seconds, arranged.labels):
        middle, end = start + first, start + first + max(second, 0)
        if label != IGNORED_LABEL:
            ratio = round(2 * np.log2(first / second))
            features.append((tokens[start], tokens[middle - 1], tokens[middle], tokens[end - 1], ratio))
            labels.append(label)
        start = end
    return features, np.array(labels)


def naive_bayes(features, labels):
    """Accuracy on each half of the pairs of what the other half teaches, each feature by itself."""
    half = len(labels) // 2
    correct = 0
    for known, asked in ((range(half), range(half, len(labels))), (range(half, len(labels)), range(half))):
        counts = Counter((column, features[i][column], labels[i]) for i in known for column in range(5))
        for i in asked:
            odds = sum(
                np.log((1 + counts[column, value, 1]) / (1 + counts[column, value, 0]))
                for column, value in enumerate(features[i])
            )
            correct += int((odds > 0) == labels[i])
    return correct / len(labels)


@pytest.mark.parametrize("kind", [Collator, Moving])
def test_the_words_at_the_ends_of_real_segments_tell_nothing_of_their_order(chapters, kind):
    shards = rows_of(chapters, 128)
    continues_word = np.zeros(MAX_WORDS + collate.FIRST_ORDINARY_ID + 1, bool)
    features, labels = ends_and_lengths(
        kind(shards, BatchShape.of(shards, masking=PAPER), continues_word, "sop", 0, PAPER)
    )
    accuracy = naive_bayes(features, labels)
    assert len(labels) > 2000
    if kind is Collator:
        assert accuracy < 0.5 + 3 * 0.5 / len(labels) ** 0.5
    else:
        assert accuracy > 0.85, "the test has lost its power: it no longer sees a swap that moves the fragments"
