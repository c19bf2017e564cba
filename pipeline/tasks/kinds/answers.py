"""Questions and answers of SQuAD, the JSON files of predicted answers, and the metrics.

The metrics are in percent, as the official scripts of versions 1.1 and 2.0 print them.
"""

import json
import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from common.files import atomic
from common.files.json_files import Count, Finite, read_as

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


@dataclass(frozen=True)
class Question:
    """A question of SQuAD.

    Attributes:
        answers: (text, start): the passage has the text at character `start`; empty for an unanswerable question.
        labelled: whether the file gives the answers.
    """

    id: str
    text: str
    passage: str
    answers: tuple[tuple[str, int], ...] = ()
    labelled: bool = True

    @property
    def label(self) -> tuple[tuple[str, int], ...] | None:
        return self.answers if self.labelled else None


@dataclass(frozen=True)
class Span:
    """A span of a passage that may be the answer.

    `text` are the passage's own characters from `start` to `end`.
    """

    text: str
    start: Count
    end: Count
    score: Finite  # a log-probability plus a constant, which is the same for all spans of a question


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

    def answer(self) -> str:
        """The text of the best span; "" if no answer is more probable than any."""
        return "" if self.null_score is not None and self.null_score > 0 else self.best()

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


class AnswersById(dict[str, Answers]):
    """The answers to each question of one split, by its id, in a JSON file; the methods are those of `Logits`."""

    @property
    def labelled(self) -> bool:
        return bool(self) and all(given.gold is not None for given in self.values())

    def save(self, path: Path) -> None:
        # vars, because dataclasses.asdict copies every value: it took longer than everything else after the model.
        content = {name: vars(given) | {"nbest": [vars(span) for span in given.nbest]} for name, given in self.items()}
        atomic.write_text(path, json.dumps(content) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls(read_as(path, dict[str, Answers], "fine-tune again, or name another run"))

    def aligned(self, like: Self) -> Self:
        if self.keys() != like.keys():
            raise ValueError("the questions are not the same")
        if any(self[question].gold != given.gold for question, given in like.items()):
            raise ValueError("the accepted answers differ")
        return type(self)({question: self[question] for question in like})

    @property
    def null_odds(self) -> dict[str, float] | None:
        """The log-odds that each question has no answer; None from a model that answers every question."""
        odds = {question: given.null_score for question, given in self.items() if given.null_score is not None}
        return odds or None

    @property
    def scored(self) -> tuple[dict[str, str], dict[str, tuple[str, ...]], dict[str, float] | None]:
        """The best answer to each question, the accepted answers, and the null odds: what `squad` compares."""
        gold = {question: given.gold or () for question, given in self.items()}
        return {question: given.best() for question, given in self.items()}, gold, self.null_odds


def normalise_answer(text: str) -> str:
    """An answer in the form that SQuAD compares: lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _overlap(prediction: str, answer: str, empty_equals_empty: bool) -> float:
    """F1 of the words of two normalised answers; a word counts as often as it occurs in both. Of two empty ones it is
    1 if `empty_equals_empty`, else 0.
    """
    predicted, accepted = prediction.split(), answer.split()
    if empty_equals_empty and not (predicted and accepted):
        return float(predicted == accepted)
    common = (Counter(predicted) & Counter(accepted)).total()
    return 2 * common / (len(predicted) + len(accepted)) if common else 0.0


Scores = dict[str, tuple[float, float]]  # exact match and F1 of each question, 0 to 1


def squad_scores(
    predictions: Mapping[str, str], gold: Mapping[str, Sequence[str]], null_odds: Mapping[str, float] | None = None
) -> tuple[Scores, Scores]:
    """The scores of the answers, and the scores with "" in the place of those whose null odds are above 0.

    An answer has the best score over its question's accepted answers. If every accepted answer of a question consists
    of articles and punctuation, version 2.0 expects "", but counts the question as answerable. The versions also differ
    in the F1 of an answer that is empty after normalisation. It is version 1.1 if there are no null odds, and no
    unanswerable question.

    Args: each by the id of a question.
        predictions: the answer.
        gold: the accepted answers, empty for an unanswerable question.
        null_odds: the higher they are, the less likely there is an answer.
    """
    is_second, odds = is_version_2(gold, null_odds), null_odds or {}
    raw, scores = {}, {}
    for question, answers in gold.items():
        predicted, accepted = normalise_answer(predictions[question]), [normalise_answer(answer) for answer in answers]
        if is_second:
            accepted = list(filter(None, accepted)) or [""]
        best = max(_overlap(predicted, answer, is_second) for answer in accepted)
        raw[question] = (float(predicted in accepted), best)
        scores[question] = (float(not answers),) * 2 if odds.get(question, 0) > 0 else raw[question]
    return raw, scores


def is_version_2(gold: Mapping[str, Sequence[str]], null_odds: Mapping[str, float] | None) -> bool:
    """Whether the metrics are those of SQuAD 2.0."""
    return null_odds is not None or not all(gold.values())


def squad(
    predictions: Mapping[str, str], gold: Mapping[str, Sequence[str]], null_odds: Mapping[str, float] | None = None
) -> dict[str, float]:
    """The metrics that the official scripts of SQuAD 1.1 and 2.0 print, in percent. Arguments: see `squad_scores`.

    Returns:
        "exact", "f1", "total", "missing" (0). For 2.0 also "HasAns_exact", "HasAns_f1", "HasAns_total" and the same for
        "NoAns", if there are such questions. With null odds also "best_exact", "best_exact_thresh", "best_f1" and
        "best_f1_thresh": the values at the best threshold, which is chosen on these same questions.
    """
    raw, scores = squad_scores(predictions, gold, null_odds)
    parts = {"": list(gold)}
    if is_version_2(gold, null_odds):
        parts["HasAns_"] = [question for question, answers in gold.items() if answers]
        parts["NoAns_"] = [question for question, answers in gold.items() if not answers]
    metrics: dict[str, float] = {}
    for part, questions in parts.items():
        if questions:
            exact, f1 = (100 * sum(of) / len(questions) for of in zip(*(scores[question] for question in questions)))
            metrics |= {f"{part}exact": exact, f"{part}f1": f1, f"{part}total": float(len(questions))}
            metrics |= {} if part else {"missing": 0.0}
    if null_odds is not None:
        for index, name in enumerate(("exact", "f1")):
            # Of each question: what the score of all gains if it is answered.
            gains = {name: score[index] if gold[name] else -bool(predictions[name]) for name, score in raw.items()}
            best, at = _best_threshold(gains, null_odds, sum(not answers for answers in gold.values()))
            metrics |= {f"best_{name}": 100 * best / len(gold), f"best_{name}_thresh": at}
    return metrics


def _best_threshold(
    gains: Mapping[str, float], null_odds: Mapping[str, float], unanswerable: int
) -> tuple[float, float]:
    """The highest sum of scores over all thresholds on the null odds, and the lowest threshold that reaches it.

    As in the official script, questions are answered one by one, those with the lowest null odds first, which changes
    the sum by the question's `gains`. Questions of equal null odds are answered in the order of `null_odds`. The search
    starts from a threshold of 0 with no question answered.
    """
    total = best = float(unanswerable)
    threshold = 0.0
    for question in sorted(null_odds, key=null_odds.__getitem__):
        total += gains[question]
        if total > best:
            best, threshold = total, null_odds[question]
    return best, threshold
