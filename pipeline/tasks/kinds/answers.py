"""Questions, passages and answers of SQuAD, and the JSON files of predicted answers."""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.files import atomic
from common.files.json_files import Count, Finite, read_as


@dataclass(frozen=True)
class Passage:
    """A passage of SQuAD; several questions share it."""

    text: str


@dataclass(frozen=True)
class Question:
    """A question of SQuAD.

    Attributes:
        answers: (text, start): the passage has the text at character `start`; empty for an unanswerable question.
        labelled: whether the file gives the answers.
    """

    id: str
    text: str
    passage: Passage
    answers: tuple[tuple[str, int], ...] = ()
    labelled: bool = True


def problem_of(question: Question, must_have_answer: bool) -> str:
    """The error in a question's answers, with what to do about it; "" if they are right."""
    for answer, start in question.answers:
        if not answer:
            return f"question {question.id} has an answer without text; remove it"
        there = question.passage.text[max(0, start) :][: len(answer)]
        if start < 0 or there != answer:
            return (
                f"question {question.id} says that {answer!r} is at character {start} of its passage, where {there!r} "
                "is; correct answer_start, or get the file again"
            )
    if must_have_answer and question.labelled and not question.answers:
        return f"question {question.id} has no answer; use --task squad2, or remove it"
    return ""


@dataclass(frozen=True)
class Span:
    """A span of a passage that may be the answer.

    Attributes:
        text: the passage's own characters.
        start, end: the span in characters of the passage, [start, end).
        score: a log-probability plus a constant; the constant is the same for all spans of a question.
    """

    text: str
    start: Count
    end: Count
    score: Finite


@dataclass(frozen=True)
class Answers:
    """The predicted answers to one question of SQuAD.

    Attributes:
        nbest: the best spans; may be empty for an empty passage.
        null_score: the log-odds that there is no answer; None for SQuAD 1.1.
        gold: the accepted answers, empty for an unanswerable question; None if they are not known.
    """

    nbest: tuple[Span, ...]
    null_score: Finite | None
    gold: tuple[str, ...] | None

    def best(self) -> str:
        """The text of the best span; "" if there is no span."""
        return max(self.nbest, key=lambda span: span.score).text if self.nbest else ""

    def answer(self, threshold: float = 0.0) -> str:
        """The text of the best span; "" if the null score is above `threshold`."""
        return "" if self.null_score is not None and self.null_score > threshold else self.best()

    def record(self) -> dict[str, Any]:
        """The answer as plain values: text, probability among the best spans, place in the passage, no-answer score.

        No answer is "", with a start and an end of null. Only a model that has a no-answer score gives it.
        """
        text = self.answer()
        best = max(self.nbest, key=lambda span: span.score, default=None)
        record: dict[str, Any] = {"prediction": text, "probability": None, "start": None, "end": None}
        if best is not None and text:
            weights = [math.exp(span.score - best.score) for span in self.nbest]
            record |= {"probability": 1.0 / math.fsum(weights), "start": best.start, "end": best.end}
        return record if self.null_score is None else record | {"no_answer_score": self.null_score}


AnswersById = dict[str, Answers]
"""The predictions of one split: the answers to each question, by its id."""


def squad_answers(answers: AnswersById, threshold: float = 0.0) -> dict[str, str]:
    """The answer to every question; "" where the null score is above `threshold`."""
    return {question: given.answer(threshold) for question, given in answers.items()}


def null_odds(answers: AnswersById) -> dict[str, float]:
    """The log-odds that a question has no answer, for those questions that have a null score."""
    return {question: given.null_score for question, given in answers.items() if given.null_score is not None}


def gold_of(answers: AnswersById) -> dict[str, tuple[str, ...]]:
    """The accepted answers to each question, empty for an unanswerable one. They must be known."""
    return {question: given.gold or () for question, given in answers.items()}


def average_answers(members: Sequence[Answers]) -> Answers:
    """The mean probability of every span over the members' answers to one question, and the mean of the null scores.

    The probabilities of a member are the softmax over its own n-best list. A model that does not list a span
    contributes zero. (The paper averages over the members that list the span. Then a span that only one model lists
    can win over a span that all models agree on.)
    """
    probabilities: dict[tuple[int, int, str], float] = defaultdict(float)
    for member in members:
        highest = max((span.score for span in member.nbest), default=0.0)
        weights = [math.exp(span.score - highest) for span in member.nbest]
        for span, weight in zip(member.nbest, weights):
            probabilities[span.start, span.end, span.text] += weight / math.fsum(weights) / len(members)
    nbest = [
        Span(text, start, end, math.log(probability))
        for (start, end, text), probability in probabilities.items()
        if probability > 0
    ]
    nulls = [member.null_score for member in members if member.null_score is not None]
    return Answers(
        nbest=tuple(sorted(nbest, key=lambda span: (-span.score, span.start, span.end))),
        null_score=math.fsum(nulls) / len(nulls) if nulls else None,
        gold=members[0].gold,
    )


def save_answers(path: Path, answers: AnswersById) -> None:
    """Writes the answers to SQuAD's questions, by id, as JSON."""
    # vars, because dataclasses.asdict copies every value: it took longer than everything else after the model.
    content = {name: vars(given) | {"nbest": [vars(span) for span in given.nbest]} for name, given in answers.items()}
    atomic.write_text(path, json.dumps(content) + "\n")


def load_answers(path: Path) -> AnswersById:
    """Reads a file that `save_answers` wrote. Raises UserError for any other file."""
    return read_as(path, dict[str, Answers], "fine-tune again, or name another run")
