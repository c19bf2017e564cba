"""Other rules that cut documents into spans, for comparison with data_prep/format/pairs.py.

Each rule gets the boundaries of a document's sentences, from 0 to its number of tokens, and the capacity of a span. It
returns the end of each span.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from data_prep.format.pairs import Pairs, divide

IntArray = NDArray[np.int64]
Rule = Callable[[list[int], int], list[int]]


def full(bounds: list[int], capacity: int) -> list[int]:
    """As long as a row allows, even if that cuts a sentence."""
    return [*range(capacity, bounds[-1], capacity), bounds[-1]]


def sentence_ends(bounds: list[int], capacity: int) -> list[int]:
    """At the last sentence that fits; a sentence that fits no row is cut."""
    stops = [0]
    while stops[-1] < bounds[-1]:
        fits = bounds[bisect_right(bounds, stops[-1] + capacity) - 1]
        stops.append(fits if fits > stops[-1] else stops[-1] + capacity)
    return stops[1:]


def sentences_inside(bounds: list[int], start: int, stop: int) -> int:
    """Counts the whole sentences of a span."""
    return bisect_right(bounds, stop) - 1 - bisect_left(bounds, start)


def later_ends(bounds: list[int], capacity: int) -> list[int]:
    """Full; but at the last sentence end that leaves two sentences on both sides, if the next span had fewer."""
    stops, end = [0], bounds[-1]
    while stops[-1] < end:
        start, stop = stops[-1], min(stops[-1] + capacity, end)
        if stop < end and sentences_inside(bounds, stop, min(stop + capacity, end)) < 2:
            places = bounds[bisect_left(bounds, start) + 2 : bisect_right(bounds, stop)]
            stop = next((p for p in reversed(places) if sentences_inside(bounds, p, min(p + capacity, end)) > 1), stop)
        stops.append(stop)
    return stops[1:]


def joined(bounds: list[int], capacity: int) -> list[int]:
    """At sentence ends; then a span without a partner is joined to the one before, if both fit a row."""
    stops = [0]
    for stop in sentence_ends(bounds, capacity):
        alone = [sentences_inside(bounds, *span) < 2 for span in (stops[-2:], (stops[-1], stop)) if len(span) == 2]
        if len(alone) == 2 and any(alone) and stop - stops[-2] <= capacity:
            stops.pop()
        stops.append(stop)
    return stops[1:]


def from_a_random_end(rule: Rule) -> Rule:
    """The rule, applied to half of the documents from their end."""
    rng = np.random.default_rng(0)

    def cut(bounds: list[int], capacity: int) -> list[int]:
        if rng.random() < 0.5:
            return rule(bounds, capacity)
        stops = rule([bounds[-1] - place for place in reversed(bounds)], capacity)
        return [bounds[-1] - place for place in reversed([0, *stops[:-1]])]

    return cut


def apply(rule: Rule, capacity: int, lengths: IntArray, per_document: IntArray, least: int, halve: bool) -> Pairs:
    """Cuts a corpus by a rule. Args: see `make_pairs`; `halve`: sentences of more than half a row count as two."""
    if halve:
        long = lengths > capacity // 2
        owner = np.repeat(np.arange(len(per_document)), per_document)
        per_document = per_document + np.bincount(owner[long], minlength=len(per_document))
        lengths = np.repeat(lengths, np.where(long, 2, 1))
        first = np.cumsum(np.where(long, 2, 1))[long] - 2
        lengths[first], lengths[first + 1] = lengths[first] // 2, -(-lengths[first] // 2)
    ends = np.cumsum(lengths)
    starts: list[int] = []
    stops: list[int] = []
    documents: list[int] = []
    first_sentence = begin = 0
    for number, last in enumerate(np.cumsum(per_document).tolist()):
        inside, first_sentence = np.unique(np.concatenate([[begin], ends[first_sentence:last]])), last
        if (size := int(inside[-1]) - begin) >= least:
            cut = [begin + place for place in rule((inside - begin).tolist(), capacity)]
            starts += [begin, *cut[:-1]]
            stops += cut
            documents += [number] * len(cut)
        begin += size
    first_tokens = np.array(starts, np.int64)
    uniforms = np.random.default_rng(0).random(len(starts))
    parts = divide(first_tokens, np.array(stops, np.int64), ends, uniforms)
    return Pairs(first_tokens, parts, np.array(documents, np.int64))


RULES: dict[str, tuple[Rule, bool]] = {
    "as long as a row allows": (full, False),
    "at sentence ends": (sentence_ends, False),
    "the same, half of the documents from their end": (from_a_random_end(sentence_ends), False),
    "at sentence ends, a smaller span joined to its neighbour": (joined, False),
    "at a sentence end where the next span would have one sentence": (later_ends, False),
    "a sentence of more than half a row halved, both halves segments": (full, True),
}
"""Each rule, and whether it halves long sentences."""
