"""Collator: turns rows of shards into the tensors of a batch. Sentence order and masks are drawn when a row is read.

Shapes: B rows, S positions per row, P pairs per row, M predictions per row. All four are the same for every batch of a
run, so that one compiled graph serves them all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.format.shards import ShardRow, ShardSet
from data_prep.text.vocabulary import MASK_ID
from model.layers.heads import IGNORED_LABEL
from pipeline.data import masking, rng
from pipeline.data.masking import MaskingSettings, Span
from pipeline.data.row_layout import Layout, blank_rows, lay_out

FIRST_ORDINARY_ID = MASK_ID + 1

_DRAWS_PER_PAIR = 16  # random numbers: the first decides the label, the others choose places to look for a partner
_ROWS_PER_DRAW = 4  # rows to look through at each place; they are neighbours on disk

Objective = Literal["sop", "nsp", "mlm"]
Segment = NDArray[np.int64]
"""Tokens of one text segment, (n,)."""


class Batch(NamedTuple):
    """The model's input, every field int64. See `model.AlbertForPreTraining.forward`."""

    input_ids: NDArray[np.int64]  # (B, S)
    token_type_ids: NDArray[np.int64]  # (B, S) 0 in [CLS] A [SEP], 1 in B [SEP]
    position_ids: NDArray[np.int64]  # (B, S) from 0 at each pair's [CLS]
    sequence_ids: NDArray[np.int64]  # (B, S) number of the pair in its row, -1 on the padding at the row's end
    masked_positions: NDArray[np.int64]  # (B, M) 0 where unused
    masked_labels: NDArray[np.int64]  # (B, M) IGNORED_LABEL where unused
    cls_positions: NDArray[np.int64]  # (B, P) 0 where unused
    sentence_labels: NDArray[np.int64]  # (B, P) 0 in order, 1 swapped or random, IGNORED_LABEL without a B


@dataclass(frozen=True)
class BatchShape:
    """The sizes that all batches of a run have: S, P and M."""

    sequence_length: int
    pairs: int
    predictions: int

    @classmethod
    def of(cls, *sets: ShardSet, masking: MaskingSettings) -> "BatchShape":
        """The sizes that every row of `sets` fits into."""
        length = max(shards.manifest.max_seq_length for shards in sets)
        pairs = max(shards.manifest.counts.max_pairs_in_row for shards in sets)
        return cls(length, pairs, masking.max_predictions(length))


@dataclass(frozen=True)
class Collator:
    """Turns rows of one shard set into batches.

    Attributes:
        continues_word: (V,) True for pieces that continue a word.
        objective: what the sentence head learns: order (sop), adjacency (nsp), or nothing (mlm).
        seed: every draw is a function of (seed, epoch, row).
        masking: which tokens are predicted, and what replaces them.
    """

    shards: ShardSet
    shape: BatchShape
    continues_word: NDArray[np.bool_]
    objective: Objective
    seed: int
    masking: MaskingSettings

    def read(self, epochs: Sequence[int], rows: Sequence[int]) -> Batch:
        """The batch of the given rows, each with the draws of its epoch; a negative row number gives an empty row."""
        return self._draw(epochs, rows)[0]

    def spans(self, epoch: int, row: int) -> list[Span]:
        """The n-grams of one row that are predicted."""
        return self._draw([epoch], [row])[1]

    def _draw(self, epochs: Sequence[int], rows: Sequence[int]) -> tuple[Batch, list[Span]]:
        """Draws rows. Returns their batch, and the n-grams to predict as places among its tokens."""
        batch = blank(len(rows), self.shape)
        drawn = [(int(epoch), int(row)) for epoch, row in zip(epochs, rows)]
        arranged = [self._arrange(self.shards.row(row), epoch, row) if row >= 0 else ([], []) for epoch, row in drawn]
        layout = lay_out(batch, [[(a, b if len(b) else None) for a, b in pairs] for pairs, _ in arranged])
        batch.cls_positions[layout.row, layout.number] = layout.start
        batch.sentence_labels[layout.row, layout.number] = [label for _, labels in arranged for label in labels]
        return batch, self._mask(batch, layout, drawn)

    def _arrange(self, row: ShardRow, epoch: int, row_number: int) -> tuple[list[tuple[Segment, Segment]], list[int]]:
        """First and second segment of every pair, arranged for the objective, and the pair's label."""
        uniforms = rng.random_uniforms(
            self.seed, rng.Purpose.SENTENCE_ORDER, epoch, row_number, _DRAWS_PER_PAIR * len(row.documents)
        ).reshape(-1, _DRAWS_PER_PAIR)
        pairs, labels = [], []
        for (lead, a, b, trail), document, drawn in zip(parts_of(row), row.documents, uniforms):
            label = 0 if len(b) and self.objective != "mlm" else IGNORED_LABEL
            if label == 0 and drawn[0] < 0.5:
                if self.objective == "sop":
                    a, b, label = b, a, 1
                elif (partner := self._partner(int(document), len(b), len(trail), drawn[1:])) is not None:
                    b, trail, label = partner, partner[:0], 1
            pairs.append((np.concatenate((lead, a)), np.concatenate((b, trail))))
            labels.append(label)
        return pairs, labels

    def _partner(self, document: int, whole: int, cut: int, uniforms: NDArray[np.float64]) -> Segment | None:
        """Draws a negative B (NSP): a second segment of another document. None if no draw finds one.

        A negative B matches the true B's boundaries and length; otherwise they would leak the label:

        - It is the second segment of another pair, so it begins as a true B does.
        - If the true B ends inside a sentence, the negative B is cut to exactly its length, and inside its own last
          sentence if a draw finds one that fits.
        - If the true B ends with a sentence, as at the end of a document, so does the negative B. It is the longest
          one drawn that is not longer than the true B.

        The draws fail only in a set with very few documents or pairs. The pair then keeps its true B.

        Args:
            whole: tokens of the true B's whole sentences.
            cut: tokens of the sentence that is cut at the end of the true B; 0 if none is.
        """
        length = whole + cut
        best: Segment | None = None
        firsts = (uniforms * len(self.shards)).astype(np.int64)  # (draws,)
        rows = (firsts[:, None] + np.arange(_ROWS_PER_DRAW)) % len(self.shards)  # (draws, rows of a draw)
        for other in map(self.shards.row, rows.flatten().tolist()):
            ends = np.cumsum(np.stack(other.parts, axis=1)).reshape(-1, 4).tolist()
            for (_, start, middle, end), owner in zip(ends, other.documents.tolist()):
                if owner == document or start == middle:
                    continue
                if cut and start + length <= end and (best is None or middle < start + length < end):
                    best = other.tokens[start : start + length].astype(np.int64)
                    if middle < start + length < end:
                        return best
                elif not cut and (0 if best is None else len(best)) < middle - start <= length:
                    best = other.tokens[start:middle].astype(np.int64)
                    if len(best) == length:
                        return best
        return best

    def _mask(self, batch: Batch, layout: Layout, drawn: Sequence[tuple[int, int]]) -> list[Span]:
        """Draws the predictions; writes `masked_positions`, `masked_labels` and the new `input_ids`.

        Args:
            layout: the tokens of the batch.
            drawn: epoch and number of each row.
        Returns:
            The n-grams to predict, as places among the tokens of `layout`.
        """
        length, predictions = self.shape.sequence_length, self.shape.predictions
        ids = batch.input_ids.reshape(-1)[layout.places]  # (F,)
        words = masking.find_words(ids, layout.segments, self.continues_word)
        ends = np.searchsorted(layout.places, length * np.arange(1, len(drawn) + 1))  # (B,) where rows end among F
        word_ends = np.searchsorted(words.starts, ends).tolist()
        spans: list[Span] = []
        uniforms = []  # those that replace tokens, for each row (2, K)
        start = word = 0
        for (epoch, row), end, word_end in zip(drawn, ends.tolist(), word_ends):
            if end == start:
                uniforms.append(np.empty((2, 0)))
                continue
            # Draws a fixed count regardless of content: at most two per word and two per prediction are used.
            numbers = rng.random_uniforms(self.seed, rng.Purpose.MASK, epoch, row, 2 * (length + predictions))
            budget = min(predictions, self.masking.max_predictions(end - start))
            of_row = masking.Words(*(column[word:word_end] for column in words))
            chosen = masking.choose_spans(of_row, budget, numbers[: 2 * (word_end - word)], self.masking)
            count = sum(span.tokens for span in chosen)
            uniforms.append(numbers[2 * length : 2 * (length + count)].reshape(2, count))
            spans += chosen
            start, word = end, word_end
        at = masking.positions(spans)  # (K,) ascending
        labels, places = ids[at], layout.places[at]
        counts = np.array([of_row.shape[1] for of_row in uniforms], dtype=np.int64)  # (B,)
        rows = np.repeat(np.arange(len(drawn)), counts)  # (K,)
        column = np.arange(len(at)) - (np.cumsum(counts) - counts)[rows]
        batch.masked_positions[rows, column] = places - length * rows
        batch.masked_labels[rows, column] = labels
        batch.input_ids.reshape(-1)[places] = masking.corrupt(
            labels,
            np.concatenate(uniforms, axis=1).reshape(-1),
            MASK_ID,
            FIRST_ORDINARY_ID,
            len(self.continues_word),
            self.masking,
        )
        return spans


def parts_of(row: ShardRow) -> Iterator[tuple[Segment, Segment, Segment, Segment]]:
    """The tokens of lead, a, b and trail of each pair of a row; see data_prep/format/pairs.py."""
    tokens = row.tokens.astype(np.int64)
    # (P, 4) where each part ends
    ends = np.cumsum(np.stack(row.parts, axis=1)).reshape(-1, 4).tolist()
    start = 0
    for lead, a, b, trail in ends:
        yield tokens[start:lead], tokens[lead:a], tokens[a:b], tokens[b:trail]
        start = trail


def blank(rows: int, shape: BatchShape) -> Batch:
    """A batch of empty rows: padding only, nothing to predict."""
    return Batch(
        *blank_rows(rows, shape.sequence_length),
        masked_positions=np.zeros((rows, shape.predictions), dtype=np.int64),
        masked_labels=np.full((rows, shape.predictions), IGNORED_LABEL, dtype=np.int64),
        cls_positions=np.zeros((rows, shape.pairs), dtype=np.int64),
        sentence_labels=np.full((rows, shape.pairs), IGNORED_LABEL, dtype=np.int64),
    )


def evaluation_batches(collator: Collator, world_size: int, micro_batch_size: int, limit: int | None = None) -> int:
    """The number of batches that `evaluation` gives to each rank."""
    count = len(collator.shards) if limit is None else min(limit, len(collator.shards))
    return -(-count // (micro_batch_size * world_size))


def evaluation(
    collator: Collator, rank: int, world_size: int, micro_batch_size: int, limit: int | None = None
) -> Iterator[Batch]:
    """Reads rows once over all ranks, with the draws of epoch 0. Empty rows fill up the last batches.

    The rows are all, or `limit` of them that are spread evenly over the set. They do not depend on the ranks and the
    micro-batch. All ranks get the same number of batches, because each batch is a collective operation under ZeRO-3.
    """
    available = len(collator.shards)
    chosen = available if limit is None else min(limit, available)
    stride = micro_batch_size * world_size
    for number in range(evaluation_batches(collator, world_size, micro_batch_size, limit)):
        first = number * stride + rank * micro_batch_size
        numbers = range(first, first + micro_batch_size)
        rows = [place * available // chosen if place < chosen else -1 for place in numbers]
        yield collator.read([0] * micro_batch_size, rows)
