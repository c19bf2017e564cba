"""Collator: turns rows of shards into the tensors of a batch. Sentence order and masks are drawn when a row is read.

Shapes: B rows, S positions per row, P pairs per row, M predictions per row. All four are the same for every batch of a
run, so that one compiled graph serves them all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.format.shards import ShardRows, ShardSet
from data_prep.text.vocabulary import MASK_ID
from model.layers.heads import IGNORED_LABEL
from pipeline.data import masking, rng
from pipeline.data.masking import MaskingSettings, Spans
from pipeline.data.partners import DRAWS, Segment, draw_partners
from pipeline.data.row_layout import Layout, blank_rows, lay_out

FIRST_ORDINARY_ID = MASK_ID + 1

_DRAWS_PER_PAIR = 1 + DRAWS  # random numbers: the first decides the label, the others choose a partner

Objective = Literal["sop", "nsp", "mlm"]


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


class Drawn(NamedTuple):
    """The R rows of a batch that are not empty."""

    epochs: list[int]
    rows: list[int]


class Arranged(NamedTuple):
    """The four parts of N pairs in the order in which a batch has them: two make the first segment, two the second."""

    tokens: NDArray[np.uint16]  # (T,) of which the parts are taken
    starts: NDArray[np.int64]  # (N, 4) where each part begins among them
    lengths: NDArray[np.int64]  # (N, 4) its tokens
    labels: NDArray[np.int64]  # (N,) of the pairs

    def texts(self) -> tuple[NDArray[np.uint16], NDArray[np.int64], NDArray[np.int64]]:
        """The tokens of all parts one after another, and those in each first and second segment, -1 without one."""
        lengths = self.lengths.reshape(-1)
        moved = self.starts.reshape(-1) - (np.cumsum(lengths) - lengths)
        tokens = self.tokens[np.repeat(moved, lengths) + np.arange(lengths.sum())]
        first, second = self.lengths[:, 0] + self.lengths[:, 1], self.lengths[:, 2] + self.lengths[:, 3]
        return tokens, first, np.where(second > 0, second, -1)


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

    def spans(self, epoch: int, row: int) -> Spans:
        """The n-grams of one row that are predicted, as places among its tokens."""
        return self._draw([epoch], [row])[1]

    def _draw(self, epochs: Sequence[int], rows: Sequence[int]) -> tuple[Batch, Spans]:
        """Draws rows. Returns their batch, and the n-grams to predict as places among its tokens."""
        batch = blank(len(rows), self.shape)
        places = [place for place, row in enumerate(rows) if row >= 0]
        drawn = Drawn([epochs[place] for place in places], [rows[place] for place in places])
        found = self.shards.rows(np.array(drawn.rows, dtype=np.int64))
        arranged = self._arrange(found, drawn)
        per_row = np.zeros(len(rows), dtype=np.int64)  # (B,)
        per_row[places] = found.pairs
        layout = lay_out(batch, per_row, *arranged.texts())
        batch.cls_positions[layout.row, layout.number] = layout.start
        batch.sentence_labels[layout.row, layout.number] = arranged.labels
        return batch, self._mask(batch, layout, np.array(places, dtype=np.int64), drawn)

    def _arrange(self, found: ShardRows, drawn: Drawn) -> Arranged:
        """Orders the parts of every pair for the objective, and labels the pairs."""
        lengths = np.stack(found.parts, axis=1)  # (N, 4) lead, a, b, trail
        starts = np.cumsum(lengths).reshape(-1, 4) - lengths
        labels = np.full(len(lengths), IGNORED_LABEL)  # (N,)
        tokens = found.tokens
        if self.objective != "mlm" and len(lengths):
            most = _DRAWS_PER_PAIR * int(found.pairs.max())
            numbers = rng.random_rows(self.seed, rng.Purpose.SENTENCE_ORDER, *drawn, most)
            row = np.repeat(np.arange(len(found.pairs)), found.pairs)  # (N,)
            pair = np.arange(len(row)) - (np.cumsum(found.pairs) - found.pairs)[row]  # (N,) in its row
            uniforms = rng.as_uniforms(numbers).reshape(len(numbers), -1, _DRAWS_PER_PAIR)[row, pair]  # (N, draws)
            has_b = lengths[:, 2] > 0
            labels[has_b] = 0
            change = np.flatnonzero(has_b & (uniforms[:, 0] < 0.5))
            if self.objective == "sop":
                labels[change] = 1
                swapped = np.array([0, 2, 1, 3])
                starts[change], lengths[change] = starts[change][:, swapped], lengths[change][:, swapped]
            else:
                whole, cut = lengths[change, 2], lengths[change, 3]
                partners = self._partners(found.documents[change], whole, cut, uniforms[change, 1:])
                drawn_for = change[[partner is not None for partner in partners]]
                segments = [partner for partner in partners if partner is not None]
                labels[drawn_for] = 1
                lengths[drawn_for, 2], lengths[drawn_for, 3] = [len(segment) for segment in segments], 0
                starts[drawn_for, 2] = len(tokens) + np.cumsum(lengths[drawn_for, 2]) - lengths[drawn_for, 2]
                tokens = np.concatenate([tokens, *segments])
        return Arranged(tokens, starts, lengths, labels)

    def _partners(
        self,
        documents: NDArray[np.int64],
        whole: NDArray[np.int64],
        cut: NDArray[np.int64],
        uniforms: NDArray[np.float64],
    ) -> list[Segment | None]:
        return draw_partners(self.shards, documents, whole, cut, uniforms, self.continues_word)

    def _mask(self, batch: Batch, layout: Layout, places: NDArray[np.int64], drawn: Drawn) -> Spans:
        """Draws the predictions; writes `masked_positions`, `masked_labels` and the new `input_ids`.

        Args:
            layout: the tokens of the batch.
            places: (R,) the places of the rows that are not empty, in the batch.
        Returns:
            The n-grams to predict, as places among the tokens of `layout`.
        """
        length, predictions = self.shape.sequence_length, self.shape.predictions
        # Draws a fixed count regardless of content: at most two per word and two per prediction are used.
        numbers = rng.random_rows(self.seed, rng.Purpose.MASK, *drawn, 2 * (length + predictions))  # (R, N)
        ids = batch.input_ids.reshape(-1)[layout.places]  # (F,)
        words = masking.find_words(ids, layout.segments, self.continues_word)
        ends = np.searchsorted(layout.places, length * (places + 1))  # (R,) where rows end among F
        budgets = [
            min(predictions, self.masking.max_predictions(tokens)) for tokens in np.diff(ends, prepend=0).tolist()
        ]
        counts = np.diff(np.searchsorted(words.starts, ends), prepend=0)  # (R,) words
        spans = masking.choose_spans(words, counts, np.array(budgets, dtype=np.int64), numbers, self.masking)
        at = spans.positions()  # (K,) ascending
        row = np.repeat(spans.rows, spans.tokens)  # (K,)
        chosen = np.bincount(row, minlength=len(places))  # (R,)
        column = np.arange(len(at)) - (np.cumsum(chosen) - chosen)[row]  # (K,)
        labels, written = ids[at], layout.places[at]
        batch.masked_positions[places[row], column] = written - length * places[row]
        batch.masked_labels[places[row], column] = labels
        first = 2 * length + column  # (K,) which of the row's numbers
        batch.input_ids.reshape(-1)[written] = masking.corrupt(
            labels,
            rng.as_uniforms(numbers[row, np.stack([first, first + chosen[row]])]),
            MASK_ID,
            FIRST_ORDINARY_ID,
            len(self.continues_word),
            self.masking,
        )
        return spans


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
