"""Rows of shards to the tensors of a batch: sentence order, masks and layout are drawn here, when a row is read.

Shapes: B rows, S positions a row, P pairs a row, M predictions a row; all four are the same for every batch of a
run, so that one compiled graph serves them all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from data_prep.shards import Row, ShardSet
from data_prep.vocabulary import CLS_ID, MASK_ID, PAD_ID, SEP_ID
from pipeline import draws, masking

IGNORED = -100  # the label that the losses pass over, as in torch and transformers
FIRST_ORDINARY_ID = MASK_ID + 1

_DRAWS_A_PAIR = 16  # random numbers: one for the label, the others to look for a partner
_ROWS_A_DRAW = 4  # that are looked through for one: they lie together on disk

Objective = Literal["sop", "nsp", "mlm"]
Segment = NDArray[np.int64]  # some of a row's tokens, (n,)


class Batch(NamedTuple):
    """What the model reads; every field int64. See `model.AlbertForPreTraining.forward`."""

    input_ids: NDArray[np.int64]  # (B, S)
    token_type_ids: NDArray[np.int64]  # (B, S) 0 in [CLS] A [SEP], 1 in B [SEP]
    position_ids: NDArray[np.int64]  # (B, S) from 0 at each pair's [CLS]
    sequence_ids: NDArray[np.int64]  # (B, S) number of the pair in its row, -1 on the padding at the row's end
    masked_positions: NDArray[np.int64]  # (B, M) 0 where unused
    masked_labels: NDArray[np.int64]  # (B, M) -100 where unused
    cls_positions: NDArray[np.int64]  # (B, P) 0 where unused
    sentence_labels: NDArray[np.int64]  # (B, P) 0 in order, 1 swapped or random, -100 where there is no B


@dataclass(frozen=True)
class BatchShape:
    """The fixed sizes of a run's batches."""

    sequence_length: int
    pairs: int
    predictions: int

    @classmethod
    def of(cls, *sets: ShardSet) -> "BatchShape":
        """The sizes that every row of `sets` fits into."""
        length = max(shards.manifest.max_seq_length for shards in sets)
        pairs = max(shards.manifest.counts.max_pairs_in_row for shards in sets)
        return cls(length, pairs, masking.max_predictions(length))


@dataclass(frozen=True)
class Reader:
    """Draws and lays out rows of one shard set.

    Attributes:
        continues_word: (V,) True for pieces that are the inside of a word.
        objective: what the sentence head learns: order (sop), adjacency (nsp), or nothing (mlm).
        seed: every draw is a function of (seed, epoch, row).
    """

    shards: ShardSet
    shape: BatchShape
    continues_word: NDArray[np.bool_]
    objective: Objective
    seed: int

    def read(self, epochs: Sequence[int], rows: Sequence[int]) -> Batch:
        """The batch of the given rows, each as its epoch draws it; a negative row number gives an empty row."""
        batch = blank(len(rows), self.shape)
        for index, (epoch, row) in enumerate(zip(epochs, rows)):
            if row >= 0:
                self._fill(batch, index, int(epoch), int(row))
        return batch

    def spans(self, epoch: int, row: int) -> list[masking.Span]:
        """The n-grams that are predicted of one row."""
        return self._fill(blank(1, self.shape), 0, epoch, row)

    def _fill(self, batch: Batch, index: int, epoch: int, row_number: int) -> list[masking.Span]:
        row = self.shards.row(row_number)
        pairs, labels = self._arrange(row, epoch, row_number)
        segments = lay_out(batch, index, pairs, labels)
        return mask_row(batch, index, segments, self.continues_word, self.seed, epoch, row_number)

    def _arrange(self, row: Row, epoch: int, row_number: int) -> tuple[list[tuple[Segment, Segment]], list[int]]:
        """First and second segment of every pair, as the objective has them, and the pair's label."""
        # The first number of a pair says which label, the others where a partner is looked for.
        uniforms = draws.uniforms(
            self.seed, draws.Purpose.SENTENCE_ORDER, epoch, row_number, _DRAWS_A_PAIR * len(row.documents)
        ).reshape(-1, _DRAWS_A_PAIR)
        pairs, labels = [], []
        for (lead, a, b, trail), document, drawn in zip(parts_of(row), row.documents, uniforms):
            label = 0 if len(b) and self.objective != "mlm" else IGNORED
            if label == 0 and drawn[0] < 0.5:
                if self.objective == "sop":
                    a, b, label = b, a, 1
                elif (partner := self._partner(int(document), len(b), len(trail), drawn[1:])) is not None:
                    b, trail, label = partner, partner[:0], 1
            pairs.append((np.concatenate((lead, a)), np.concatenate((b, trail))))
            labels.append(label)
        return pairs, labels

    def _partner(self, document: int, whole: int, cut: int, uniforms: NDArray[np.float64]) -> Segment | None:
        """A second segment out of another document, that looks like the one it stands for; None if no draw finds any.

        Args:
            whole, cut: tokens of the pair's own B: of its whole sentences, and of the one that its end cuts off.

        Beginning, end and length must not tell the label. So the stranger is the second segment of another pair, too,
        and where B ends inside a sentence, it is cut to exactly the length of B: inside its own last sentence, if a
        draw finds one that fits. Where B ends with a sentence, as at the end of a document, the stranger does so, too:
        it is the longest that is drawn of those that are not longer than B.

        Only a set with hardly any documents or pairs runs out of draws; the pair then keeps its own B.
        """
        length = whole + cut
        best: Segment | None = None
        firsts = (uniforms * len(self.shards)).astype(np.int64)  # (draws,)
        rows = (firsts[:, None] + np.arange(_ROWS_A_DRAW)) % len(self.shards)  # (draws, rows a draw)
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


def parts_of(row: Row) -> Iterator[tuple[Segment, Segment, Segment, Segment]]:
    """The tokens of lead, a, b and trail of each pair of a row (data_prep/pairs.py says what they are)."""
    tokens = row.tokens.astype(np.int64)
    # (P, 4) where each part ends
    ends = np.cumsum(np.stack(row.parts, axis=1)).reshape(-1, 4).tolist()
    start = 0
    for lead, a, b, trail in ends:
        yield tokens[start:lead], tokens[lead:a], tokens[a:b], tokens[b:trail]
        start = trail


def blank(rows: int, shape: BatchShape) -> Batch:
    """A batch of empty rows: padding everywhere, nothing to predict."""
    positions = (rows, shape.sequence_length)
    return Batch(
        input_ids=np.full(positions, PAD_ID, dtype=np.int64),
        token_type_ids=np.zeros(positions, dtype=np.int64),
        position_ids=np.zeros(positions, dtype=np.int64),
        sequence_ids=np.full(positions, -1, dtype=np.int64),
        masked_positions=np.zeros((rows, shape.predictions), dtype=np.int64),
        masked_labels=np.full((rows, shape.predictions), IGNORED, dtype=np.int64),
        cls_positions=np.zeros((rows, shape.pairs), dtype=np.int64),
        sentence_labels=np.full((rows, shape.pairs), IGNORED, dtype=np.int64),
    )


def lay_out(
    batch: Batch, index: int, pairs: Sequence[tuple[Segment, Segment]], labels: Sequence[int]
) -> NDArray[np.int64]:
    """Writes [CLS] A [SEP] B [SEP] of each pair into row `index`; a pair without B is [CLS] A [SEP].

    Returns:
        (S,) number of the segment of each token, ascending; -1 on [CLS], [SEP] and padding.
    """
    ids, types = batch.input_ids[index], batch.token_type_ids[index]
    segments = np.full(len(ids), -1, dtype=np.int64)
    start = 0
    for number, ((a, b), label) in enumerate(zip(pairs, labels)):
        middle = start + 1 + len(a)  # the first [SEP]
        ids[start], ids[start + 1 : middle], ids[middle] = CLS_ID, a, SEP_ID
        segments[start + 1 : middle] = 2 * number
        end = middle + 1
        if len(b):
            end = middle + len(b) + 2
            ids[middle + 1 : end - 1], ids[end - 1] = b, SEP_ID
            types[middle + 1 : end] = 1
            segments[middle + 1 : end - 1] = 2 * number + 1
        batch.position_ids[index, start:end] = np.arange(end - start)
        batch.sequence_ids[index, start:end] = number
        batch.cls_positions[index, number] = start
        batch.sentence_labels[index, number] = label
        start = end
    return segments


def mask_row(
    batch: Batch,
    index: int,
    segments: NDArray[np.int64],
    continues_word: NDArray[np.bool_],
    seed: int,
    epoch: int,
    row_number: int,
) -> list[masking.Span]:
    """Draws the predictions of row `index`: `masked_positions`, `masked_labels`, and what `input_ids` shows there.

    Returns:
        The n-grams that they are.
    """
    ids = batch.input_ids[index]
    predictions = batch.masked_labels.shape[1]
    words = masking.find_words(ids, segments, continues_word)
    # As many numbers whatever the row holds: two a word at most, two a prediction.
    uniforms = draws.uniforms(seed, draws.Purpose.MASK, epoch, row_number, 2 * (len(ids) + predictions))
    length = int(np.count_nonzero(batch.sequence_ids[index] >= 0))
    budget = min(predictions, masking.max_predictions(length))
    spans = masking.choose_spans(words, budget, uniforms[: 2 * len(words.starts)])
    chosen = masking.positions(spans)
    count = len(chosen)
    labels = ids[chosen]
    batch.masked_positions[index, :count] = chosen
    batch.masked_labels[index, :count] = labels
    ids[chosen] = masking.corrupt(
        labels, uniforms[2 * len(ids) :][: 2 * count], MASK_ID, FIRST_ORDINARY_ID, len(continues_word)
    )
    return spans


def evaluation(
    reader: Reader, rank: int, world_size: int, micro_batch_size: int, limit: int | None = None
) -> Iterator[Batch]:
    """Every row once, over all ranks, with the draws of epoch 0; the last batches are filled up with empty rows.

    All ranks get the same number of batches, at most `limit`, since each is a collective operation under ZeRO-3.
    """
    stride = micro_batch_size * world_size
    count = -(-len(reader.shards) // stride)
    for number in range(count if limit is None else min(count, limit)):
        start = number * stride + rank * micro_batch_size
        rows = [row if row < len(reader.shards) else -1 for row in range(start, start + micro_batch_size)]
        yield reader.read([0] * micro_batch_size, rows)
