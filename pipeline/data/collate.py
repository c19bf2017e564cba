"""Collator: turns rows of shards into the tensors of a batch. Sentence order and masks are sampled when a row is read.

Shapes: B rows, S positions per row, P pairs per row, M predictions per row. All four are the same for every batch of a
run, so that one compiled graph serves them all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.rng import as_uniforms
from data_prep.format.shards import ShardRows, ShardSet
from data_prep.text.vocabulary import MASK_ID
from model.config import IGNORED_LABEL
from pipeline.data import masking, rng
from pipeline.data.masking import MaskingSettings
from pipeline.data.packed_rows import PackedRows, PlacedSequences, blank_rows, place_sequences

FIRST_ORDINARY_ID = MASK_ID + 1

DRAWS = 15  # random numbers for each pair, which say where to look for a negative B
_ROWS_PER_DRAW = 4  # neighbours on disk that each draw looks through
_DRAWS_PER_PAIR = 1 + DRAWS  # random numbers: the first decides the label, the others choose a partner
PERFECT_CUT = 4  # the highest score of a negative B that is cut, see `_scores`

Objective = Literal["sop", "nsp", "mlm"]

Segment = NDArray[np.uint16]  # tokens of one text segment, (n,)


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


class SampledRows(NamedTuple):
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
    """Turns rows of one shard set into batches."""

    shards: ShardSet
    shape: BatchShape
    continues_word: NDArray[np.bool_]  # (V,) True for pieces that continue a word
    objective: Objective  # what the sentence head learns: order (sop), adjacency (nsp), or nothing (mlm)
    seed: int  # every choice is a function of (seed, epoch, row)
    masking: MaskingSettings  # which tokens are predicted, and what replaces them

    def read(self, epochs: Sequence[int], rows: Sequence[int]) -> Batch:
        """The batch of the given rows, each with the choices of its epoch; a negative row number gives an empty row."""
        batch = blank(len(rows), self.shape)
        filled = [index for index, row in enumerate(rows) if row >= 0]
        sampled = SampledRows([epochs[index] for index in filled], [rows[index] for index in filled])
        stored = self.shards.rows(np.array(sampled.rows, dtype=np.int64))
        arranged = self._arrange(stored, sampled)
        per_row = np.zeros(len(rows), dtype=np.int64)  # (B,)
        per_row[filled] = stored.pairs
        placed = place_sequences(PackedRows(*batch[:4]), per_row, *arranged.texts())
        batch.cls_positions[placed.row, placed.number] = placed.start
        batch.sentence_labels[placed.row, placed.number] = arranged.labels
        self._mask(batch, placed, np.array(filled, dtype=np.int64), sampled)
        return batch

    def _arrange(self, stored: ShardRows, sampled: SampledRows) -> Arranged:
        """Orders the parts of every pair for the objective, and labels the pairs."""
        lengths = np.stack(stored.parts, axis=1)  # (N, 4) lead, a, b, trail
        starts = np.cumsum(lengths).reshape(-1, 4) - lengths
        labels = np.full(len(lengths), IGNORED_LABEL)  # (N,)
        tokens = stored.tokens
        if self.objective != "mlm" and len(lengths):
            most = _DRAWS_PER_PAIR * int(stored.pairs.max())
            numbers = rng.random_rows(self.seed, rng.Purpose.SENTENCE_ORDER, *sampled, most)
            row = np.repeat(np.arange(len(stored.pairs)), stored.pairs)  # (N,)
            pair = np.arange(len(row)) - (np.cumsum(stored.pairs) - stored.pairs)[row]  # (N,) in its row
            uniforms = as_uniforms(numbers).reshape(len(numbers), -1, _DRAWS_PER_PAIR)[row, pair]  # (N, draws)
            has_b = lengths[:, 2] > 0
            labels[has_b] = 0
            change = np.flatnonzero(has_b & (uniforms[:, 0] < 0.5))
            if self.objective == "sop":
                labels[change] = 1
                swapped = np.array([0, 2, 1, 3])
                starts[change], lengths[change] = starts[change][:, swapped], lengths[change][:, swapped]
            else:
                whole, cut = lengths[change, 2], lengths[change, 3]
                partners = sample_partners(
                    self.shards, stored.documents[change], whole, cut, uniforms[change, 1:], self.continues_word
                )
                replaced = change[[partner is not None for partner in partners]]
                segments = [partner for partner in partners if partner is not None]
                labels[replaced] = 1
                lengths[replaced, 2], lengths[replaced, 3] = [len(segment) for segment in segments], 0
                starts[replaced, 2] = len(tokens) + np.cumsum(lengths[replaced, 2]) - lengths[replaced, 2]
                tokens = np.concatenate([tokens, *segments])
        return Arranged(tokens, starts, lengths, labels)

    def _mask(self, batch: Batch, placed: PlacedSequences, filled: NDArray[np.int64], sampled: SampledRows) -> None:
        """Samples the predictions; writes `masked_positions`, `masked_labels` and the new `input_ids`.

        Args:
            placed: the tokens of the batch.
            filled: (R,) the indices in the batch of the rows that are not empty.
        """
        length, predictions = self.shape.sequence_length, self.shape.predictions
        # Draws a fixed count regardless of content: at most two per word and two per prediction are used.
        numbers = rng.random_rows(self.seed, rng.Purpose.MASK, *sampled, 2 * (length + predictions))  # (R, N)
        ids = batch.input_ids.reshape(-1)[placed.positions]  # (F,)
        words = masking.find_words(ids, placed.segments, self.continues_word)
        ends = np.searchsorted(placed.positions, length * (filled + 1))  # (R,) where rows end among F
        budgets = [
            min(predictions, self.masking.max_predictions(tokens)) for tokens in np.diff(ends, prepend=0).tolist()
        ]
        counts = np.diff(np.searchsorted(words.starts, ends), prepend=0)  # (R,) words
        spans = masking.choose_spans(words, counts, np.array(budgets, dtype=np.int64), numbers, self.masking)
        at = spans.positions()  # (K,) ascending
        row = np.repeat(spans.rows, spans.tokens)  # (K,)
        chosen = np.bincount(row, minlength=len(filled))  # (R,)
        column = np.arange(len(at)) - (np.cumsum(chosen) - chosen)[row]  # (K,)
        labels, written = ids[at], placed.positions[at]
        batch.masked_positions[filled[row], column] = written - length * filled[row]
        batch.masked_labels[filled[row], column] = labels
        first = 2 * length + column  # (K,) which of the row's numbers
        batch.input_ids.reshape(-1)[written] = masking.corrupt(
            labels,
            as_uniforms(numbers[row, np.stack([first, first + chosen[row]])]),
            MASK_ID,
            FIRST_ORDINARY_ID,
            len(self.continues_word),
            self.masking,
        )


def sample_partners(
    shards: ShardSet,
    documents: NDArray[np.int64],
    whole: NDArray[np.int64],
    cut: NDArray[np.int64],
    uniforms: NDArray[np.float64],
    continues_word: NDArray[np.bool_],
) -> list[Segment | None]:
    """Samples a negative B for each of Q pairs, the B of another document's pair. None if no draw finds one.

    A negative B matches the true B's boundaries and length; otherwise they would leak the label:

    - It is the second segment of another pair, so it begins as a true B does.
    - If the true B ends inside a sentence, the negative B is cut to exactly its length. A true B is cut before a word.
      So is the negative B, and inside its own last sentence, if a draw finds one that fits.
    - If the true B ends with a sentence, as at the end of a document, so does the negative B. It is the longest one
      drawn that is not longer than the true B.

    The draws fail only in a set with very few documents or pairs. The pair then keeps its true B.

    Args:
        documents: (Q,) each pair's document.
        whole: (Q,) tokens of the true B's whole sentences.
        cut: (Q,) tokens of the sentence that is cut at the end of the true B; 0 if none is.
        uniforms: (Q, DRAWS) random numbers.
        continues_word: (V,) True for pieces that continue a word.
    """
    length = whole + cut
    perfect = np.where(cut > 0, PERFECT_CUT, length)  # (Q,) the highest score, see `_scores`
    best = np.zeros(len(length), dtype=np.int64)  # (Q,) the score of the partner so far; 0 without one
    partners: list[Segment | None] = [None] * len(length)
    firsts = (uniforms * len(shards)).astype(np.int64)  # (Q, DRAWS) the first row that each draw looks through
    # Later draws are only looked at if those before found no perfect segment.
    for begin, end in ((0, 2), (2, 7), (7, DRAWS)):
        asking = np.flatnonzero(best < perfect)  # (A,)
        if not asking.size:
            break
        rows = (firsts[asking, begin:end, None] + np.arange(_ROWS_PER_DRAW)) % len(shards)  # (A, draws, rows of a draw)
        stored = shards.rows(rows.reshape(-1))
        counts = stored.pairs.reshape(len(asking), -1).sum(axis=1)  # (A,) candidates of each; every row has a pair
        asker = np.repeat(asking, counts)  # (P,) whom each candidate may serve
        ends = np.cumsum(np.stack(stored.parts, axis=1)).reshape(-1, 4)  # (P, 4) where each part ends
        start, middle, last = ends[:, 1], ends[:, 2], ends[:, 3]  # (P,) of b and trail
        scores = _scores(stored.tokens, start, middle, last, length[asker], cut[asker] > 0, continues_word)
        scores[(stored.documents == documents[asker]) | (start == middle)] = 0
        first = 0
        for number, count in zip(asking.tolist(), counts.tolist()):
            candidate = first + int(scores[first : first + count].argmax())  # the first of the highest
            first += count
            if scores[candidate] > best[number]:
                best[number] = scores[candidate]
                stop = start[candidate] + length[number] if cut[number] else middle[candidate]
                partners[number] = stored.tokens[start[candidate] : stop].copy()
    return partners


def _scores(
    tokens: NDArray[np.uint16],
    start: NDArray[np.int64],
    middle: NDArray[np.int64],
    last: NDArray[np.int64],
    length: NDArray[np.int64],
    is_cut: NDArray[np.bool_],
    continues_word: NDArray[np.bool_],
) -> NDArray[np.int64]:
    """How well each of P candidates suits as a negative B, (P,): the higher the better, 0 if it cannot be one.

    For a true B that ends with a sentence it is the candidate's length, if that is not above `length`. For one that is
    cut inside a sentence it is 1 if the candidate has `length` tokens, 2 more if a word ends there, and 1 more if that
    is behind its whole sentences: `PERFECT_CUT` in all.

    Args:
        start, middle, last: (P,) where among `tokens` whole sentences begin and end, and where the cut one ends.
        length, is_cut: (P,) tokens of the true B, and whether it is cut.
    """
    stop = start + length
    behind = tokens[np.minimum(stop, len(tokens) - 1)]  # (P,) the token behind a cut
    before_word = (stop == last) | ~continues_word[behind]
    by_cut = np.where(stop <= last, 1 + 2 * before_word + (middle < stop), 0)
    return np.where(is_cut, by_cut, np.where(middle <= stop, middle - start, 0))


def blank(rows: int, shape: BatchShape) -> Batch:
    """A batch of empty rows: padding only, nothing to predict."""
    return Batch(
        *blank_rows(rows, shape.sequence_length),
        masked_positions=np.zeros((rows, shape.predictions), dtype=np.int64),
        masked_labels=np.full((rows, shape.predictions), IGNORED_LABEL, dtype=np.int64),
        cls_positions=np.zeros((rows, shape.pairs), dtype=np.int64),
        sentence_labels=np.full((rows, shape.pairs), IGNORED_LABEL, dtype=np.int64),
    )


def evaluation(
    collator: Collator, rank: int, world_size: int, micro_batch_size: int, limit: int | None = None
) -> tuple[int, Iterator[Batch]]:
    """One rank's batches, and their number. All ranks read rows once, with the draws of epoch 0.

    The rows are all, or `limit` of them that are spread evenly over the set. They do not depend on the ranks and the
    micro-batch. All ranks get the same number of batches, because each batch is a collective operation under ZeRO-3.
    Empty rows fill up the last ones.
    """
    available = len(collator.shards)
    chosen = available if limit is None else min(limit, available)
    starts = range(rank * micro_batch_size, chosen + rank * micro_batch_size, micro_batch_size * world_size)
    numbers = (range(start, start + micro_batch_size) for start in starts)
    rows = ([index * available // chosen if index < chosen else -1 for index in batch] for batch in numbers)
    return len(starts), (collator.read([0] * micro_batch_size, of_batch) for of_batch in rows)
