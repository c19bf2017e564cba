"""Sentences to segment pairs (ALBERT, section 3.1 "Inter-sentence coherence loss" and section 4.1).

A document is cut into consecutive spans of at most `capacity` tokens, and each span into the segments A and B.
Every token lies in exactly one pair, in the order of the text. The spans differ from the reference code where that
loses data or leaks it:

- A span takes whole sentences until its target is reached. The target is the capacity, or with probability
  `short_probability`, drawn anew for each span, a uniform number of tokens. What the last sentence has beyond the
  capacity starts the next span; the reference drops those tokens.
- A and B meet at a sentence boundary drawn uniformly from those inside the span. A span within one sentence is cut
  inside it, at a uniform position; the reference takes B from another document there, always with label 1, which
  is next-sentence prediction under another name.
- A span of one token has no B: it is trained by masked language modelling alone.
"""

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Segment pairs over one flat array of tokens, in its order.

    starts: int64[P], where each pair's first token lies in that array.
    a_lengths, b_lengths: int64[P], tokens of A, and of B right behind it; b is 0 where A has no partner.
    documents: int64[P], ordinal of the pair's document in the corpus.
    documents_left_out, tokens_left_out: documents under the minimum, and their tokens, which no pair holds.
    """

    starts: IntArray
    a_lengths: IntArray
    b_lengths: IntArray
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
    sentence_ends: list[int],
    start: int,
    capacity: int,
    short_probability: float,
    generator: np.random.Generator,
) -> tuple[list[int], list[float]]:
    """Cuts one document into spans.

    Args:
        sentence_ends: where each sentence ends, in order; the last one is the document's end.
        start: where the first sentence starts.
        capacity: most tokens of a span, at least 2.
        short_probability: of a span whose target is uniform on 2..capacity instead of capacity.
        generator: read three numbers a span, in order, so a span's draws do not depend on how many follow.

    Returns:
        Where each span ends, and for each span a number uniform on [0, 1) for its A|B cut.
    """
    stops: list[int] = []
    cuts: list[float] = []
    total = sentence_ends[-1]
    draws: list[list[float]] = []
    drawn = 0
    while start < total:
        if drawn == len(draws):
            draws = generator.random(((total - start) // capacity + 2, 3)).tolist()
            drawn = 0
        short, size, cut = draws[drawn]
        drawn += 1
        stop = min(start + capacity, total)
        if short < short_probability:
            target = start + 2 + int(size * (capacity - 1))
            if target < stop:
                stop = min(stop, sentence_ends[bisect_left(sentence_ends, target)])
        stops.append(stop)
        cuts.append(cut)
        start = stop
    return stops, cuts


def first_segment_lengths(
    starts: IntArray, stops: IntArray, sentence_ends: IntArray, draws: NDArray[np.float64]
) -> IntArray:
    """Length of A in each span.

    Args:
        starts, stops: int64[P], the spans.
        sentence_ends: int64[N], where each sentence ends, in order.
        draws: float64[P], uniform on [0, 1).
    """
    first_inner = np.searchsorted(sentence_ends, starts, side="right")  # (P,) first end > start
    inner = np.searchsorted(sentence_ends, stops, side="left") - first_inner  # (P,) ends strictly inside
    chosen = np.minimum(first_inner + (draws * inner).astype(np.int64), len(sentence_ends) - 1)
    at_boundary = sentence_ends[chosen] - starts
    lengths = stops - starts
    inside = np.where(lengths > 1, 1 + (draws * (lengths - 1)).astype(np.int64), lengths)
    return np.where(inner > 0, at_boundary, inside)


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
            spans, cut_draws = span_stops(document_ends, start, capacity, short_probability, draws.of(ordinal))
            starts.append(start)
            starts += spans[:-1]
            stops += spans
            cuts += cut_draws
            documents += [ordinal] * len(spans)
        first, start = last, stop
    start_array, stop_array = np.array(starts, np.int64), np.array(stops, np.int64)
    a_lengths = np.zeros(0, np.int64)
    if len(starts):
        a_lengths = first_segment_lengths(start_array, stop_array, sentence_ends, np.array(cuts))
    return Pairs(
        starts=start_array,
        a_lengths=a_lengths,
        b_lengths=stop_array - start_array - a_lengths,
        documents=np.array(documents, np.int64),
        documents_left_out=documents_left_out,
        tokens_left_out=tokens_left_out,
    )
