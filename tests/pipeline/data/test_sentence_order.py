"""Only the meaning of two segments may tell their order, or that they come from different documents.

The outer ends of a pair are often cut inside a sentence; its middle is not. If a swap moved those cuts, punctuation
alone would give the label away. The fragments of data_prep/format/pairs.py prevent this.
"""

import json
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from data_prep.__main__ import main
from data_prep.corpus.work_units import open_corpus, read_texts
from data_prep.format.pairs import make_pairs
from data_prep.format.shards import ShardRow, open_shards
from data_prep.text.sentences import split_sentences
from data_prep.text.vocabulary import Vocabulary
from model.layers.heads import IGNORED_LABEL
from pipeline.data import collate
from pipeline.data.collate import BatchShape, Collator, SampledRows
from pipeline.data.masking import MaskingSettings
from tests.pipeline.data.plain_batches import parts_of
from tests.pipeline.data.test_collate import MemoryShards

pytestmark = pytest.mark.slow

PAPER = MaskingSettings()
EPOCHS = 8


def ends_of_segments(batch, stops, continues_word):
    """Features and label of each labelled pair.

    The features are, for the first and the second segment: whether it begins with a word's first piece, whether it ends
    a sentence; and whether the first one is longer.
    """
    features, labels = [], []
    for index in range(len(batch.input_ids)):
        ids = batch.input_ids[index].copy()
        used = batch.masked_labels[index] != IGNORED_LABEL
        ids[batch.masked_positions[index][used]] = batch.masked_labels[index][used]
        for pair, label in enumerate(batch.sentence_labels[index].tolist()):
            if label == IGNORED_LABEL:
                continue
            here = batch.sequence_ids[index] == pair
            first = ids[here & (batch.token_type_ids[index] == 0)][1:-1]
            second = ids[here & (batch.token_type_ids[index] == 1)][:-1]
            starts = [not continues_word[segment[0]] for segment in (first, second)]
            features.append([*starts, *(segment[-1] in stops for segment in (first, second)), len(first) > len(second)])
            labels.append(label)
    return np.array(features), np.array(labels)


def best_guess(features, labels):
    """Accuracy on one half of the pairs if each combination of features gets its most frequent label in the other half;
    and the size of the half."""
    cells = features @ (1 << np.arange(features.shape[1]))
    half = len(labels) // 2
    table = [labels[:half][cells[:half] == cell].mean() > 0.5 if cell in cells[:half] else 0 for cell in range(32)]
    return float((np.array(table)[cells[half:]] == labels[half:]).mean()), len(labels) - half


class Moving(Collator):
    """Swaps whole segments with their fragments, which leaks the label."""

    def _arrange(self, found, sampled):
        arranged = super()._arrange(found, sampled)
        changed = arranged.labels == 1
        for parts in (arranged.starts, arranged.lengths):
            lead, b, a, trail = parts[changed].T
            parts[changed] = np.stack([b, trail, lead, a], axis=1)
        return arranged


def features_of_a_set(corpus, kind, objective):
    shards = open_shards(corpus.train)
    vocabulary = Vocabulary.load(corpus.vocabulary)
    stops = {index for index, piece in enumerate(vocabulary.pieces) if piece.endswith(".")}
    features, labels = [], []
    source = kind(shards, BatchShape.of(shards, masking=PAPER), vocabulary.continues_word, objective, 0, PAPER)
    middle = len(shards) // 2
    # All epochs of the first half of the rows, then those of the second: a table must not know the pairs it guesses.
    for rows in (list(range(middle)), list(range(middle, len(shards)))):
        for epoch in range(EPOCHS):
            found = ends_of_segments(source.read([epoch] * len(rows), rows), stops, vocabulary.continues_word)
            features.append(found[0])
            labels.append(found[1])
    return *best_guess(np.concatenate(features), np.concatenate(labels)), float(np.concatenate(labels).mean())


@pytest.mark.parametrize("kind", [Collator, Moving])
def test_where_segments_begin_and_end_tells_nothing_of_their_order(corpus, kind):
    accuracy, count, _ = features_of_a_set(corpus, kind, "sop")
    assert count > 1000
    if kind is Collator:
        # A table guesses a pair right in all epochs, or wrong in all, so only the pairs are independent.
        assert accuracy < 0.5 + 3 * 0.5 / (count / EPOCHS) ** 0.5
    else:
        assert accuracy > 0.7, "the test has lost its power: it no longer sees a swap that moves the fragments"


class Careless(Collator):
    """Takes a negative B from anywhere and cuts it to length, which leaks the label."""

    def _partners(self, documents, whole, cut, uniforms):
        return [self.partner(*asked) for asked in zip(documents, whole + cut, uniforms)]

    def partner(self, document, length, uniforms):
        for drawn in uniforms:
            other = self.shards.row(int(drawn * len(self.shards)))
            for (_, a, b, trail), owner in zip(parts_of(other), other.documents):
                if owner != document and len(a + b + trail) >= length:
                    return np.array(a + b + trail, np.uint16)[:length]
        return None


def test_where_segments_begin_and_end_tells_nothing_of_a_stranger(corpus):
    accuracy, count, negative = features_of_a_set(corpus, Collator, "nsp")
    assert count > 1000
    assert 0.46 < negative < 0.52  # of 590 pairs with a B, a few find no negative one and keep their own
    assert accuracy < max(negative, 1 - negative) + 3 * 0.5 / count**0.5


MAX_WORDS = 20_000


def numbered(texts):
    """For each text its sentences, as numbers of words and punctuation marks."""
    words = [[re.findall(r"\w+|[^\w\s]", sentence.lower()) for sentence in split_sentences(text)] for text in texts]
    frequent = Counter(word for text in words for sentence in text for word in sentence).most_common(MAX_WORDS)
    numbers = {word: number for number, (word, _) in enumerate(frequent, collate.FIRST_ORDINARY_ID)}
    rare = collate.FIRST_ORDINARY_ID + len(numbers)
    return [[[numbers.get(word, rare) for word in sentence] for sentence in text] for text in words]


@pytest.fixture(scope="module")
def texts(sample_corpus, tmp_path_factory):
    """The sample's Wikipedia articles."""
    documents = tmp_path_factory.mktemp("articles") / "documents"
    main(["extract", "--source", "wikipedia", "--input", str(sample_corpus / "wikipedia"), "--out", str(documents)])
    return [text for unit in open_corpus([documents], "train").units for text in read_texts(unit)]


@pytest.fixture(scope="module")
def articles(texts):
    return numbered(texts)


@pytest.fixture(scope="module")
def introductions(texts):
    """Short documents: ALBERT_INTRODUCTIONS, a file of {"text": ...} lines, or the paragraphs of the articles."""
    if path := os.environ.get("ALBERT_INTRODUCTIONS"):
        return numbered([json.loads(line)["text"] for line in Path(path).read_text(encoding="utf-8").splitlines()])
    return numbered([paragraph for text in texts for paragraph in text.split("\n")])


def rows_of(articles, max_seq_length):
    """The articles' pairs, one a row."""
    tokens = np.array([token for article in articles for sentence in article for token in sentence], np.uint16)
    pairs = make_pairs(
        np.array([len(sentence) for article in articles for sentence in article]),
        np.array([len(article) for article in articles]),
        0,
        max_seq_length=max_seq_length,
        short_probability=0.1,
        min_tokens=16,
        seed=0,
    )
    stops = pairs.starts + pairs.parts.total()
    rows = [
        ShardRow(tokens[start:stop], pairs.parts.take(np.array([pair])), pairs.documents[pair : pair + 1])
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


@pytest.mark.parametrize("length", [64, 128])
@pytest.mark.parametrize("kind", [Collator, Moving])
def test_the_words_at_the_ends_of_real_segments_tell_nothing_of_their_order(articles, kind, length):
    shards = rows_of(articles, length)
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


@pytest.mark.parametrize("kind", [Collator, Careless])
def test_neither_the_ends_nor_the_lengths_of_short_documents_tell_a_stranger(introductions, kind):
    shards = rows_of(introductions, 128)
    continues_word = np.zeros(MAX_WORDS + collate.FIRST_ORDINARY_ID + 1, bool)
    features, labels = ends_and_lengths(
        kind(shards, BatchShape.of(shards, masking=PAPER), continues_word, "nsp", 0, PAPER)
    )
    order = np.random.default_rng(0).permutation(len(labels))  # what stands near is about the same things
    features, labels = [features[i] for i in order], labels[order]
    accuracy = naive_bayes(features, labels)
    assert len(labels) > 2000
    assert 0.46 < labels.mean() < 0.52
    if kind is Collator:
        assert accuracy < max(labels.mean(), 1 - labels.mean()) + 3 * 0.5 / len(labels) ** 0.5
    else:
        assert accuracy > 0.7, "the test has lost its power: it no longer sees a stranger that is cut in mid-sentence"
