"""Several runs' predictions made into one (section 4.9 of the paper, the ensembles of Tables 9 and 10)."""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from pipeline.tasks.predictions import Answers, Logits, Span


def average_logits(members: Sequence[Logits]) -> Logits:
    """The mean of the members' logits, example by example, whatever their order.

    Raises ValueError if the members do not hold the same examples with the same labels and as many logits each.
    """
    first = members[0]
    aligned = [first, *(member.aligned(first.ids) for member in members[1:])]
    for member in aligned[1:]:
        if member.logits.shape != first.logits.shape:
            raise ValueError(f"logits are {member.logits.shape} and {first.logits.shape}")
        if first.labels is not None and member.labels is not None and not np.array_equal(first.labels, member.labels):
            raise ValueError("the labels differ")
    mean = np.stack([member.logits for member in aligned]).mean(axis=0, dtype=np.float64)  # (N, C)
    return Logits(first.ids, mean.astype(np.float32), first.labels, first.levels)


def average_answers(members: Sequence[dict[str, Answers]]) -> dict[str, Answers]:
    """The mean probability of every span over the members, and their mean null score.

    A member's probabilities are the softmax over its own n-best list; a span that it does not list has none. (The
    paper averages over those that list the span; then a span that one model alone believes in would win over one
    that all agree on.)

    Raises ValueError if the members do not hold the same questions.
    """
    questions = members[0].keys()
    if any(member.keys() != questions for member in members[1:]):
        raise ValueError("the questions are not the same in all runs")
    return {question: _average([member[question] for member in members]) for question in questions}


def _average(given: Sequence[Answers]) -> Answers:
    shares: dict[tuple[int, int, str], float] = defaultdict(float)
    for member in given:
        highest = max((span.score for span in member.nbest), default=0.0)
        weights = [math.exp(span.score - highest) for span in member.nbest]
        for span, weight in zip(member.nbest, weights):
            shares[span.start, span.end, span.text] += weight / math.fsum(weights) / len(given)
    nbest = [Span(text, start, end, math.log(share)) for (start, end, text), share in shares.items() if share > 0]
    nulls = [member.null_score for member in given if member.null_score is not None]
    return Answers(
        nbest=tuple(sorted(nbest, key=lambda span: (-span.score, span.start, span.end))),
        null_score=math.fsum(nulls) / len(nulls) if nulls else None,
        gold=given[0].gold,
    )
