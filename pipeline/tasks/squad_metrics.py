"""The metrics of SQuAD, in percent, as the official scripts of versions 1.1 and 2.0 print them."""

import re
import string
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


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
