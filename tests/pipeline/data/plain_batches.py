"""The order of rows, and batches made row by row, pair by pair and word by word: slow, but plain.

What `sampler` and `Collator` make must be the same. Of the product only the reader of shards and the sizes are used.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from data_prep.format.shards import ShardRows
from data_prep.text.vocabulary import CLS_ID, MASK_ID, SEP_ID
from model.layers.heads import IGNORED_LABEL
from pipeline.data.collate import FIRST_ORDINARY_ID, Batch, Collator, blank
from pipeline.data.masking import MaskingSettings

ORDER, MASK, SENTENCE_ORDER = 1, 2, 3  # what random numbers are for; each has streams of its own

Pair = tuple[list[int], list[int], int]  # first and second segment, and the label


def read(collator: Collator, epochs: Sequence[int], rows: Sequence[int]) -> Batch:
    """What `collator.read(epochs, rows)` returns."""
    batch = blank(len(rows), collator.shape)
    for place, (epoch, row) in enumerate(zip(epochs, rows)):
        if row >= 0:
            pairs = _arrange(collator, epoch, row)
            words = _write(batch, place, pairs, collator.continues_word)
            _mask(batch, place, words, collator, epoch, row)
    return batch


def row_at(position: int, rows: int, seed: int) -> tuple[int, int]:
    """Epoch and row of a position: eight rounds of a Feistel network, again until the result is a row."""
    epoch, image = divmod(position, rows)
    half = max(1, (max(1, rows - 1).bit_length() + 1) // 2)  # bits of a half
    keys = [int(number) for number in _numbers(seed, ORDER, epoch, 0, 8)]
    while True:
        left, right = image >> half, image % 2**half
        for key in keys:
            left, right = right, left ^ _mixed(right ^ key) % 2**half
        image = (left << half) | right
        if image < rows:
            return epoch, image


def _mixed(number: int) -> int:
    """The finaliser of splitmix64."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        number = (number ^ number >> shift) * factor % 2**64
    return number ^ number >> 31


def _numbers(seed: int, purpose: int, epoch: int, index: int, count: int) -> NDArray[np.uint64]:
    key, counter = np.array([seed, purpose], np.uint64), np.array([0, 0, epoch, index], np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(count)


def parts_of(row: ShardRows) -> list[tuple[list[int], ...]]:
    """The tokens of lead, a, b and trail of each pair of a row; see data_prep/format/pairs.py."""
    tokens, start, found = row.tokens.tolist(), 0, []
    for lengths in np.stack(row.parts, axis=1).tolist():
        parts = []
        for length in lengths:
            parts.append(tokens[start : start + length])
            start += length
        found.append(tuple(parts))
    return found


def _uniforms(collator: Collator, purpose: int, epoch: int, row: int, count: int) -> NDArray[np.float64]:
    return np.array([int(number) // 2**11 / 2**53 for number in _numbers(collator.seed, purpose, epoch, row, count)])


def _arrange(collator: Collator, epoch: int, row: int) -> list[Pair]:
    stored = collator.shards.row(row)
    documents = stored.documents.tolist()
    draws = _uniforms(collator, SENTENCE_ORDER, epoch, row, 16 * len(documents)).reshape(-1, 16)
    pairs = []
    for (lead, a, b, trail), document, drawn in zip(parts_of(stored), documents, draws):
        label = 0 if b and collator.objective != "mlm" else IGNORED_LABEL
        if label == 0 and drawn[0] < 0.5:
            if collator.objective == "sop":
                a, b, label = b, a, 1
            elif (partner := _partner(collator, document, len(b), len(trail), drawn[1:])) is not None:
                b, trail, label = partner, [], 1
        pairs.append((lead + a, b + trail, label))
    return pairs


def _partner(
    collator: Collator, document: int, whole: int, cut: int, uniforms: NDArray[np.float64]
) -> list[int] | None:
    shards, length = collator.shards, whole + cut
    best: list[int] | None = None
    most = 0
    for first in (uniforms * len(shards)).astype(np.int64).tolist():
        for neighbour in range(first, first + 4):
            other = shards.row(neighbour % len(shards))
            for (_, _, b, trail), owner in zip(parts_of(other), other.documents.tolist()):
                if owner == document or not b:
                    continue
                text = b + trail
                if cut and length <= len(text):
                    before_word = length == len(text) or not collator.continues_word[text[length]]
                    score = 1 + 2 * before_word + (len(b) < length)
                    if score > most:
                        best, most = text[:length], score
                elif not cut and len(best or []) < len(b) <= length:
                    best = b
                    if len(b) == length:
                        return best
    return best


def _write(batch: Batch, place: int, pairs: list[Pair], continues_word: NDArray[np.bool_]) -> list[tuple[int, ...]]:
    """Writes pairs into a row. Returns its words: first position, tokens, and number of the segment."""
    words: list[tuple[int, ...]] = []
    at = 0
    for number, (first, second, label) in enumerate(pairs):
        batch.cls_positions[place, number], batch.sentence_labels[place, number] = at, label
        start = at
        for kind, (before, text) in enumerate((([CLS_ID], first), ([], second))):
            if kind == 1 and not text:
                continue
            segment = 2 * number + kind
            for token in [*before, *text, SEP_ID]:
                batch.input_ids[place, at], batch.token_type_ids[place, at] = token, kind
                batch.position_ids[place, at], batch.sequence_ids[place, at] = at - start, number
                at += 1
            begin = at - 1 - len(text)
            for position, token in enumerate(text, begin):
                if position > begin and continues_word[token]:
                    words[-1] = words[-1][0], words[-1][1] + 1, segment
                else:
                    words.append((position, 1, segment))
    return words


def _mask(batch: Batch, place: int, words: list[tuple[int, ...]], collator: Collator, epoch: int, row: int) -> None:
    length, predictions = collator.shape.sequence_length, collator.shape.predictions
    uniforms = _uniforms(collator, MASK, epoch, row, 2 * (length + predictions))
    tokens = int((batch.sequence_ids[place] >= 0).sum())
    budget = min(predictions, collator.masking.max_predictions(tokens))
    at = choose(words, budget, uniforms, collator.masking)
    labels = batch.input_ids[place, at]
    batch.masked_positions[place, : len(at)], batch.masked_labels[place, : len(at)] = at, labels
    settings, ordinary = collator.masking, len(collator.continues_word) - FIRST_ORDINARY_ID
    for number, position in enumerate(at):
        choice, which = uniforms[2 * length + number], uniforms[2 * length + len(at) + number]
        if choice < settings.replace_with_mask:
            batch.input_ids[place, position] = MASK_ID
        elif choice < settings.replace_with_mask + settings.replace_with_random:
            batch.input_ids[place, position] = FIRST_ORDINARY_ID + int(which * ordinary)


def choose(
    words: list[tuple[int, ...]], budget: int, uniforms: NDArray[np.float64], settings: MaskingSettings
) -> list[int]:
    """The positions to predict in a row of `words`, each (first position, tokens, number of its segment)."""
    count = len(words)
    order = np.argsort(uniforms[:count], kind="stable").tolist()
    taken = [False] * count
    chosen: list[int] = []
    spans = 0
    for single in (False, True):
        for first in order:
            if taken[first] or budget <= 0:
                continue
            drawn = int(np.searchsorted(settings.ngram_cdf, uniforms[count + spans], side="right")) + 1
            behind = first + (1 if single else drawn)
            if behind > count or words[behind - 1][2] != words[first][2] or any(taken[first:behind]):
                continue
            while behind > first and sum(word[1] for word in words[first:behind]) > budget:
                behind -= 1
            for index in range(first, behind):
                taken[index] = True
                budget -= words[index][1]
                chosen += range(words[index][0], words[index][0] + words[index][1])
            spans += behind > first
    return sorted(chosen)
