"""Makes segment pairs of sentences (ALBERT, section 3.1 "Inter-sentence coherence loss" and section 4.1), and packs
them into rows, as many as fit, so that almost no position is padding.

A document is cut into consecutive spans, so every token is in exactly one span, in the order of the text. A span is as
long as a row allows, even if that cuts a sentence, and the next one begins with a word. Two rules make other spans:

- A span ends earlier if the next one would have fewer than two whole sentences.
- Some spans are divided in two, so that `short_probability` of all are short.

Both sample the place of the cut uniformly from those that leave two whole sentences on both sides. Where there is none,
they do nothing. They never prefer the end of the last sentence that fits. The sentence after it did not fit, so it is
longer than most, and the first sentence of each span would be, too.

The first rule looks ahead, so the sentences after a cut are a little shorter than those before it. That would leak the
order of a and b. So a document is divided into sections of about 1,024 sentences, and half of them, chosen at random,
are cut into spans from the end to the beginning. Then neither side of a cut has shorter sentences on the whole. What
the lengths of lead and trail still tell is in docs/data.md.

A span has four parts:

    lead | a | b | trail

`lead` is the end of a sentence that began in the previous span. `trail` is the beginning of a sentence that continues
in the next span. Either may be empty. Between them are whole sentences. A sentence boundary, sampled uniformly, divides
them into a and b. Training reads [CLS] lead a [SEP] b trail [SEP] or, swapped, [CLS] lead b [SEP] a trail [SEP]. Lead
and trail are not swapped. Otherwise punctuation would leak the order: in a swapped pair, the first segment would end
and the second would begin inside a sentence.

A span with fewer than two whole sentences has no order to learn. All of it is `a`, a segment without a partner, which
only masked language modelling uses.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.rng import UniformStream

IntArray = NDArray[np.int64]


class Parts(NamedTuple):
    """Numbers of tokens in the four parts of each pair, int64[P] each. If b is 0, lead and trail are 0, too."""

    lead: IntArray
    a: IntArray
    b: IntArray
    trail: IntArray

    def total(self) -> IntArray:
        """Returns int64[P], the tokens of each pair."""
        return self.lead + self.a + self.b + self.trail

    def positions(self) -> IntArray:
        """Returns int64[P], positions of each pair: [CLS] lead a [SEP] b trail [SEP], or [CLS] a [SEP] without b."""
        return self.total() + 2 + (self.b > 0)

    def take(self, order: IntArray) -> "Parts":
        """Returns the pairs at the indices `order`."""
        return Parts(*(part[order] for part in self))


@dataclass(frozen=True)
class Pairs:
    """P segment pairs over one flat array of tokens, in its order."""

    starts: IntArray  # (P,) index of each pair's first token in that array
    parts: Parts
    documents: IntArray  # (P,) ordinal in the corpus of each pair's document
    documents_left_out: int = 0  # with fewer tokens than the minimum
    tokens_left_out: int = 0  # of these documents

    def __len__(self) -> int:
        return len(self.starts)


MAX_BACK = 16  # tokens by which a cut moves back to the beginning of a word; text without blanks has longer words
SECTION_SENTENCES = 1024  # sentences in a section: enough that its last span, which may be short, counts little


def span_stops(
    start: int,
    end: int,
    boundaries: list[int],
    begins_word: bytes,
    capacity: int,
    short_probability: float,
    generator: UniformStream,
    from_end: bool = False,
) -> tuple[list[int], list[float]]:
    """Cuts one section into spans.

    Args:
        start, end: the section's tokens are [start, end).
        boundaries: where sentences begin and end, each once, in order; both `start` and `end` are among them.
        begins_word: for each token and the end of all, 1 if a word begins there, else 0.
        capacity: largest number of tokens in a span, at least 2.
        short_probability: share of the spans that are halves of divided ones, if all can be divided.
        generator: gives four random numbers for each span, in order, so they do not depend on the spans that follow.
        from_end: whether it is cut from its end to its beginning.

    Returns the end of each span, and for each span a number uniform on [0, 1) for the boundary between a and b.
    """
    if from_end:  # the same in a mirror: place x becomes `end` - x. What a span's end is there, is its beginning here.
        inside = boundaries[bisect_left(boundaries, start) : bisect_right(boundaries, end)]
        mirrored = [end - boundary for boundary in reversed(inside)]
        flags = begins_word[start : end + 1][::-1]
        starts, cuts = span_stops(0, end - start, mirrored, flags, capacity, short_probability, generator)
        # Each span ends where the next one begins, and the last one at the section's end, which is 0 in the mirror.
        return [end - place for place in reversed([0, *starts[:-1]])], cuts
    section = _Section(boundaries, bisect_left(boundaries, end), end, capacity, begins_word)
    stops, cuts = list[int](), list[float]()
    numbers: Iterator[list[float]] = iter(())  # four for each span
    divided = short_probability / (2 - short_probability)  # share of the spans that become two short ones
    second_half = 0  # where the second half of a divided span ends
    while start < end:
        if (four := next(numbers, None)) is None:
            numbers = iter(generator.take(4 * ((end - start) // capacity + 2)).reshape(-1, 4).tolist())
            four = next(numbers)
        short, place, division, cut = four
        if second_half:
            stop, second_half = second_half, 0
        else:
            stop = section.span_end(start, place)
            if short < divided and (middle := section.middle(start, stop, division)):
                stop, second_half = middle, stop
        stops.append(stop)
        cuts.append(cut)
        start = stop
    return stops, cuts


class _Section(NamedTuple):
    """A section that is cut into spans. Its methods decide where the span that begins at `start` ends."""

    boundaries: list[int]
    last: int  # index of the section's end in `boundaries`
    end: int
    capacity: int
    begins_word: bytes

    def span_end(self, start: int, place: float) -> int:
        """The end of a span as long as a row allows, or earlier for two whole sentences in the next one."""
        stop = self._before_word(start, min(start + self.capacity, self.end))
        following = bisect_left(self.boundaries, stop)  # where the next span's first whole sentence begins
        leaves_two = following + 2 <= self.last and self.boundaries[following + 2] <= stop + self.capacity
        if stop == self.end or leaves_two:
            return stop
        return self._before_word(start, self._earlier_stop(start, stop, place, following))

    def middle(self, start: int, stop: int, division: float) -> int | None:
        """Where the span [start, stop) is divided, with two whole sentences on both sides. None if it has no four."""
        earliest = bisect_left(self.boundaries, start) + 2
        latest = bisect_right(self.boundaries, stop) - 3
        if earliest > latest:
            return None
        low, high = self.boundaries[earliest], self.boundaries[latest]
        return self._before_word(start, low + int(division * (high - low + 1)))

    def _before_word(self, start: int, stop: int) -> int:
        """Moves the end of a span back to the beginning of a word, by at most `MAX_BACK` tokens."""
        word = self.begins_word.rfind(1, max(start + 1, stop - MAX_BACK), stop + 1)
        return stop if word < 0 else word

    def _earlier_stop(self, start: int, stop: int, place: float, following: int) -> int:
        """The end instead of `stop`, sampled by `place` from those that leave two whole sentences on both sides.

        A span that has fewer anyway keeps half of a row. Without such an end it is `stop`.
        """
        boundaries = self.boundaries
        first = bisect_left(boundaries, start)
        low = boundaries[first + 2] if first + 2 <= self.last else stop + 1
        if low > stop:
            low = start + self.capacity // 2
        # The ends for which the next span's whole sentences are the one that begins at `index` and the one after it:
        # behind the boundary before, up to `index`, and near enough to the end of the second sentence.
        ends: list[range] = []
        for index in range(min(following, self.last - 2), first, -1):
            high = min(stop, boundaries[index])
            if high < low:
                break
            ends.append(range(max(low, boundaries[index - 1] + 1, boundaries[index + 2] - self.capacity), high + 1))
        sampled = int(place * sum(map(len, ends)))
        for possible in ends:
            if sampled < len(possible):
                return possible[sampled]
            sampled -= len(possible)
        return stop


def sections(boundaries: list[int], start: int, end: int) -> list[tuple[int, int]]:
    """Divides the document [start, end) into sections of about as many sentences. Args: see `span_stops`."""
    first, last = bisect_left(boundaries, start), bisect_left(boundaries, end)
    count = max(1, round((last - first) / SECTION_SENTENCES))
    edges = [boundaries[first + (last - first) * section // count] for section in range(count + 1)]
    return list(itertools.pairwise(edges))


def divide(starts: IntArray, stops: IntArray, sentence_ends: IntArray, uniforms: NDArray[np.float64]) -> Parts:
    """Divides spans, the tokens [start, stop), int64[P] each, into their four parts.

    sentence_ends: int64[N], in order; the first starts at 0. uniforms: float64[P], for the boundary of a and b.
    """
    boundaries = _distinct(sentence_ends)
    first = np.searchsorted(boundaries, starts, side="left")  # (P,) first boundary of the span
    last = np.searchsorted(boundaries, stops, side="right") - 1  # (P,) last boundary of the span
    sentences = last - first  # (P,) number of whole sentences; -1 if the span is inside one
    ordered = sentences >= 2
    middle = first + 1 + (uniforms * (sentences - 1)).astype(np.int64)
    edges = [starts, *(boundaries.take(place, mode="clip") for place in (first, middle, last)), stops]
    parts = np.where(ordered, np.diff(edges, axis=0), 0)  # (4, P)
    parts[1] = np.where(ordered, parts[1], stops - starts)  # without two sentences all of it is a
    return Parts(*parts)


def _distinct(sentence_ends: IntArray) -> IntArray:
    """Where sentences begin and end, each once, in order. A sentence without tokens ends where it begins."""
    return np.append(0, sentence_ends[np.diff(sentence_ends, prepend=0) > 0])


def make_pairs(
    sentence_lengths: IntArray,
    sentences_per_document: IntArray,
    first_document: int,
    *,
    max_seq_length: int,
    short_probability: float,
    min_tokens: int,
    seed: int,
    begins_word: NDArray[np.bool_] | None = None,
) -> Pairs:
    """Makes the segment pairs of a run of consecutive documents.

    A document's random numbers depend on `seed` and its ordinal alone, not on how the corpus is divided.

    Args:
        sentence_lengths: int64[N], tokens of each sentence.
        sentences_per_document: int64[D], sums to N.
        first_document: ordinal of the first document.
        max_seq_length: positions in a row; [CLS] and two [SEP] take three of them.
        short_probability: see `span_stops`.
        min_tokens: a document with fewer tokens is left out.
        seed: any non-negative integer below 2**64.
        begins_word: bool[T], whether a word begins at each token; None: all do. Beginnings of sentences need no mark.
    """
    capacity = max_seq_length - 3
    sentence_ends = np.cumsum(sentence_lengths)
    last_sentences = np.cumsum(sentences_per_document)
    ends = sentence_ends.tolist()
    boundaries = _distinct(sentence_ends).tolist()
    words = np.ones(boundaries[-1] + 1, np.bool_)
    if begins_word is not None:
        words[:-1] = begins_word
        words[boundaries] = True  # a sentence begins a word, even if its first token does not look so
    word_flags = words.tobytes()
    stops, starts, documents, cuts = list[int](), list[int](), list[int](), list[float]()
    documents_left_out = tokens_left_out = 0
    first = start = 0
    for offset, last in enumerate(last_sentences.tolist()):
        stop = ends[last - 1] if last > first else start
        if stop - start < max(min_tokens, 1):
            documents_left_out += 1
            tokens_left_out += stop - start
        else:
            ordinal = first_document + offset
            generator = UniformStream(seed, ordinal)
            for begin, end in sections(boundaries, start, stop):
                from_end = generator.take(1)[0] >= 0.5
                settings = (word_flags, capacity, short_probability, generator)
                spans, numbers = span_stops(begin, end, boundaries, *settings, from_end=from_end)
                starts.append(begin)
                starts += spans[:-1]
                stops += spans
                cuts += numbers
                documents += [ordinal] * len(spans)
        first, start = last, stop
    first_tokens = np.array(starts, np.int64)
    parts = divide(first_tokens, np.array(stops, np.int64), sentence_ends, np.array(cuts))
    return Pairs(first_tokens, parts, np.array(documents, np.int64), documents_left_out, tokens_left_out)


def max_pairs(max_seq_length: int) -> int:
    """Returns the largest number of pairs in a row. It bounds the memory of a training step for sentence labels."""
    return max(1, max_seq_length // 16)


def pack(costs: IntArray, max_seq_length: int, max_pairs_in_row: int) -> IntArray:
    """Assigns pairs to rows by best-fit decreasing: the largest pair first, into the fullest row that has room.

    Rows with the same room are in one list. The bits of one integer tell which lists are not empty. So the time for a
    pair does not depend on the number of open rows.

    costs: int64[P], positions of each pair, at most `max_seq_length` each.
    Returns int64[P], the row of each pair. Rows are numbered by their first pair, from 0.
    """
    row_of = np.zeros(len(costs), np.int64)
    pairs_in: list[int] = []
    rows_with_room: list[list[int]] = [[] for _ in range(max_seq_length + 1)]
    rooms = 0  # bit r is set if rows_with_room[r] is not empty
    order = np.argsort(-costs, kind="stable")
    for pair, cost in zip(order.tolist(), costs[order].tolist()):
        fitting = rooms >> cost
        if fitting:
            room = cost + (fitting & -fitting).bit_length() - 1
            row = rows_with_room[room].pop()
            if not rows_with_room[room]:
                rooms ^= 1 << room
            pairs_in[row] += 1
        else:
            room, row = max_seq_length, len(pairs_in)
            pairs_in.append(1)
        row_of[pair] = row
        room -= cost
        if room and pairs_in[row] < max_pairs_in_row:
            rows_with_room[room].append(row)
            rooms |= 1 << room
    _, first_pairs, row_of = np.unique(row_of, return_index=True, return_inverse=True)
    rank = np.empty(len(first_pairs), np.int64)
    rank[np.argsort(first_pairs)] = np.arange(len(first_pairs))
    return rank[row_of]
