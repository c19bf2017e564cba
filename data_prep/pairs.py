"""Sentences to segment pairs (ALBERT, section 3.1 "Inter-sentence coherence loss" and section 4.1).

A document is cut into consecutive spans. A span is as long as its target, to the token: the capacity of a row or,
with probability `short_probability`, drawn anew for each span, a uniform smaller number. What its last sentence has
beyond the target starts the next span. So every token lies in exactly one span, in the order of the text. (Ending a
short span with the sentence that reaches its target would make that sentence longer than most, and always the last: a
swap would show in the lengths.) Each span has four parts:

    lead | a | b | trail

`lead` is the rest of a sentence that the span before had to cut, `trail` the beginning of one that this span has to
cut; either may be empty. Between them stand whole sentences, divided into a and b at a sentence boundary drawn
uniformly. Training reads [CLS] lead a [SEP] b trail [SEP] or, swapped, [CLS] lead b [SEP] a trail [SEP]: the fragments
keep their places. Were they to move with a and b, a swap would show in the punctuation alone (the first segment would
end, and the second begin, in the middle of a sentence), and a model would learn that instead of coherence.

A span with fewer than two whole sentences has no order to learn. It is all `a`: a segment without a partner, trained
by masked language modelling alone.

The reference code differs where that loses data or leaks it. It cuts overlong pairs at both ends of the longer segment,
which tells nothing of the order either, but drops what it cuts. It draws the short target once a document. And where a
chunk holds one sentence it takes B from another document, always with label 1: next-sentence prediction under another
name.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


class Parts(NamedTuple):
    """Tokens of the four parts of each pair, int64[P] each. Where b is 0, lead and trail are 0 as well."""

    lead: IntArray
    a: IntArray
    b: IntArray
    trail: IntArray

    def total(self) -> IntArray:
        """int64[P], tokens of each pair."""
        return self.lead + self.a + self.b + self.trail

    def take(self, order: IntArray) -> "Parts":
        """The pairs numbered by `order`."""
        return Parts(*(part[order] for part in self))


@dataclass(frozen=True)
class Pairs:
    """Segment pairs over one flat array of tokens, in its order.

    starts: int64[P], where each pair's first token lies in that array.
    parts: how many tokens each of its parts has.
    documents: int64[P], ordinal of the pair's document in the corpus.
    documents_left_out, tokens_left_out: documents under the minimum, and their tokens, which no pair holds.
    """

    starts: IntArray
    parts: Parts
    documents: IntArray
    documents_left_out: int = 0
    tokens_left_out: int = 0

    def __len__(self) -> int:
        return len(self.starts)


class DocumentDraws:
    """Random numbers of documents, from numpy's counter-based Philox with the key (seed, ordinal of the document)."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.Philox(key=[seed, 0])
        self._generator = np.random.Generator(self._bits)
        self._state = self._bits.state

    def of(self, document: int) -> np.random.Generator:
        """A generator at the start of the document's numbers, until the next call."""
        # The same as Generator(Philox(key=[seed, document])), in a third of the time: short documents notice it.
        self._state["state"]["key"][1] = document
        self._bits.state = self._state
        return self._generator


def span_stops(
    start: int,
    end: int,
    capacity: int,
    short_probability: float,
    generator: np.random.Generator,
) -> tuple[list[int], list[float]]:
    """Cuts one document into spans.

    Args:
        start, end: where the document's tokens start and end.
        capacity: most tokens of a span, at least 2.
        short_probability: of a span whose target is uniform on 2..capacity instead of capacity.
        generator: read three numbers a span, in order, so a span's draws do not depend on how many follow.

    Returns:
        Where each span ends, and for each span a number uniform on [0, 1) for the boundary between a and b.
    """
    stops: list[int] = []
    cuts: list[float] = []
    draws: list[list[float]] = []
    drawn = 0
    while start < end:
        if drawn == len(draws):
            draws = generator.random(((end - start) // capacity + 2, 3)).tolist()
            drawn = 0
        short, size, cut = draws[drawn]
        drawn += 1
        stop = min(start + capacity, end)
        if short < short_probability:
            stop = min(stop, start + 2 + int(size * (capacity - 1)))
        stops.append(stop)
        cuts.append(cut)
        start = stop
    return stops, cuts


def divide(starts: IntArray, stops: IntArray, sentence_ends: IntArray, draws: NDArray[np.float64]) -> Parts:
    """Divides spans into their four parts.

    Args:
        starts, stops: int64[P], the spans.
        sentence_ends: int64[N], where each sentence ends, in order; the first one starts at 0.
        draws: float64[P], uniform on [0, 1), for the boundary between a and b.
    """
    boundaries = np.unique(np.concatenate([[0], sentence_ends]))  # a sentence without tokens ends where it starts
    first = np.searchsorted(boundaries, starts, side="left")  # (P,) first boundary of the span
    last = np.searchsorted(boundaries, stops, side="right") - 1  # (P,) and the last
    sentences = last - first  # (P,) whole sentences, -1 where the span lies inside one
    ordered = sentences >= 2
    middle = np.where(ordered, first + 1 + (draws * (sentences - 1)).astype(np.int64), last)
    nothing = np.zeros(len(starts), np.int64)
    return Parts(
        lead=np.where(ordered, boundaries[np.minimum(first, len(boundaries) - 1)] - starts, nothing),
        a=np.where(ordered, boundaries[middle] - boundaries[np.minimum(first, len(boundaries) - 1)], stops - starts),
        b=np.where(ordered, boundaries[last] - boundaries[middle], nothing),
        trail=np.where(ordered, stops - boundaries[last], nothing),
    )


def make_pairs(
    sentence_lengths: IntArray,
    sentences_per_document: IntArray,
    first_document: int,
    *,
    max_seq_length: int,
    short_probability: float,
    min_tokens: int,
    seed: int,
) -> Pairs:
    """Segment pairs of a run of consecutive documents.

    The draws of a document are keyed by `seed` and its ordinal alone, so they depend neither on how the corpus is
    divided nor on what stands around it.

    Args:
        sentence_lengths: int64[N], tokens of each sentence.
        sentences_per_document: int64[D], sums to N.
        first_document: ordinal of the first document.
        max_seq_length: positions of a row; a pair's [CLS] and two [SEP] take three of them.
        short_probability: see `span_stops`.
        min_tokens: a document with fewer tokens is left out.
        seed: any non-negative integer below 2**64.
    """
    capacity = max_seq_length - 3
    draws = DocumentDraws(seed)
    sentence_ends = np.cumsum(sentence_lengths)
    last_sentences = np.cumsum(sentences_per_document)
    ends = sentence_ends.tolist()
    stops: list[int] = []
    starts: list[int] = []
    cuts: list[float] = []
    documents: list[int] = []
    documents_left_out = tokens_left_out = 0
    first = start = 0
    for offset, last in enumerate(last_sentences.tolist()):
        document_ends = ends[first:last]
        stop = document_ends[-1] if document_ends else start
        if stop - start < max(min_tokens, 1):
            documents_left_out += 1
            tokens_left_out += stop - start
        else:
            ordinal = first_document + offset
            spans, cut_draws = span_stops(start, stop, capacity, short_probability, draws.of(ordinal))
            starts.append(start)
            starts += spans[:-1]
            stops += spans
            cuts += cut_draws
            documents += [ordinal] * len(spans)
        first, start = last, stop
    start_array = np.array(starts, np.int64)
    return Pairs(
        starts=start_array,
        parts=divide(start_array, np.array(stops, np.int64), sentence_ends, np.array(cuts)),
        documents=np.array(documents, np.int64),
        documents_left_out=documents_left_out,
        tokens_left_out=tokens_left_out,
    )
