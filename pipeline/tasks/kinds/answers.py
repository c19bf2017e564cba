"""Questions, passages and answers of SQuAD, the JSON files of predicted answers, and the metrics.

The metrics are in percent, as the official scripts of versions 1.1 and 2.0 print them.
"""

import json
import math
import re
import string
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.files import atomic
from common.files.json_files import Count, Finite, read_as

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


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


def normalise_answer(text: str) -> str:
    """An answer in the form that SQuAD compares: lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _overlap(prediction: str, answer: str, empty_equals_empty: bool) -> float:
    """F1 of the words of two normalised answers; a word counts as often as it occurs in both.

    Args:
        empty_equals_empty: whether two empty answers have an F1 of 1; otherwise it is 0.
    """
    predicted, accepted = prediction.split(), answer.split()
    if empty_equals_empty and not (predicted and accepted):
        return float(predicted == accepted)
    common = (Counter(predicted) & Counter(accepted)).total()
    return 2 * common / (len(predicted) + len(accepted)) if common else 0.0


def squad_scores(
    predictions: Mapping[str, str], gold: Mapping[str, Sequence[str]], version: str | None = None
) -> dict[str, tuple[float, float]]:
    """Exact match and F1, 0 to 1, of every question in `gold`: the best value over its accepted answers.

    Args:
        predictions: question id to answer, "" for none. Ids that are not in `gold` are ignored.
        gold: question id to the accepted answers, empty for an unanswerable question. If every accepted answer of a
            question consists of articles and punctuation, version 2.0 expects "", but counts the question as
            answerable.
        version: "1.1" or "2.0"; by default 2.0 if any question is unanswerable. The versions differ in the F1 of an
            answer that is empty after normalisation.
    """
    version = version or squad_version(gold)
    scores = {}
    for question, answers in gold.items():
        if version == "1.1":
            accepted = [normalise_answer(answer) for answer in answers]
        else:
            accepted = [left for left in map(normalise_answer, answers) if left] or [""]
        prediction = predictions.get(question)
        if prediction is None:
            scores[question] = (0.0, 0.0)
            continue
        predicted = normalise_answer(prediction)
        scores[question] = (
            float(predicted in accepted),
            max(_overlap(predicted, answer, version != "1.1") for answer in accepted),
        )
    return scores


def squad_version(gold: Mapping[str, Sequence[str]]) -> str:
    """The version of these questions: "2.0" if one has no answer, else "1.1"."""
    return "1.1" if all(gold.values()) else "2.0"


def squad(
    predictions: Mapping[str, str],
    gold: Mapping[str, Sequence[str]],
    null_odds: Mapping[str, float] | None = None,
    *,
    threshold: float = 1.0,
) -> dict[str, float]:
    """The metrics that the official scripts of SQuAD 1.1 and 2.0 print, in percent.

    A missing prediction counts as wrong, as in the 1.1 script; the 2.0 script fails instead.

    Args:
        predictions: question id to answer, "" for none.
        gold: question id to the accepted answers, empty for an unanswerable question.
        null_odds: question id to a number; the higher it is, the less likely there is an answer.
        threshold: the answer is "" if the null odds are above it (the 2.0 script's default, 1).

    Returns:
        "exact", "f1", "total", "missing". For 2.0 also "HasAns_exact", "HasAns_f1", "HasAns_total" and the same for
        "NoAns", if there are such questions. With null odds also "best_exact", "best_exact_thresh", "best_f1" and
        "best_f1_thresh": the values at the best threshold, which is chosen on these same questions.

    Raises:
        ValueError: no questions, or null odds that lack a question.
    """
    if not gold:
        raise ValueError("there is no question to evaluate")
    version = "2.0" if null_odds is not None else squad_version(gold)
    raw = squad_scores(predictions, gold, version)
    answerable = {question: bool(answers) for question, answers in gold.items()}
    scores = raw
    if null_odds is not None:
        if missing := next((question for question in gold if question not in null_odds), None):
            raise ValueError(f"the null odds lack question {missing}; they must cover every question")
        scores = {
            question: (float(not answerable[question]),) * 2
            if null_odds[question] > threshold and question in predictions
            else score
            for question, score in raw.items()
        }
    metrics = {
        "exact": _percent(scores, gold, 0),
        "f1": _percent(scores, gold, 1),
        "total": float(len(gold)),
        "missing": float(sum(question not in predictions for question in gold)),
    }
    if version == "1.1":
        return metrics
    for name, wanted in (("HasAns", True), ("NoAns", False)):
        if chosen := [question for question in gold if answerable[question] == wanted]:
            metrics |= {
                f"{name}_exact": _percent(scores, chosen, 0),
                f"{name}_f1": _percent(scores, chosen, 1),
                f"{name}_total": float(len(chosen)),
            }
    if null_odds is not None:
        for index, name in enumerate(("exact", "f1")):
            chosen_scores = {question: score[index] for question, score in raw.items() if question in predictions}
            best, at = _best_threshold(predictions, chosen_scores, null_odds, answerable)
            metrics |= {f"best_{name}": 100 * best / len(gold), f"best_{name}_thresh": at}
    return metrics


def _percent(scores: Mapping[str, tuple[float, float]], questions: Collection[str], index: int) -> float:
    return 100 * sum(scores[question][index] for question in questions) / len(questions)


def _best_threshold(
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    null_odds: Mapping[str, float],
    answerable: Mapping[str, bool],
) -> tuple[float, float]:
    """The highest sum of scores over all thresholds on the null odds, and the lowest threshold that reaches it.

    As in the official script, questions are answered one by one, those with the lowest null odds first. Questions of
    equal null odds are answered in the order of `null_odds`. The search starts from a threshold of 0 with no question
    answered.
    """
    total = best = float(sum(not answerable[question] for question in scores))
    threshold = 0.0
    for question in sorted(null_odds, key=lambda question: null_odds[question]):
        if question not in scores:
            continue
        if answerable[question]:
            total += scores[question]
        elif predictions[question]:
            total -= 1
        if total > best:
            best, threshold = total, null_odds[question]
    return best, threshold
