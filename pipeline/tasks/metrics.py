"""What predictions are worth: the figures that GLUE, SQuAD and RACE are reported in.

Pure functions of predictions and labels. Figures of GLUE and RACE are shares and correlations, from -1 or 0 to 1;
those of SQuAD are percentages, as the official scripts print them.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from sklearn.metrics import f1_score, matthews_corrcoef

METRICS: dict[str, tuple[str, ...]] = {
    "cola": ("matthews", "accuracy"),
    "sst2": ("accuracy",),
    "mrpc": ("accuracy", "f1"),
    "stsb": ("pearson", "spearman"),
    "qqp": ("accuracy", "f1"),
    "mnli": ("accuracy",),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "wnli": ("accuracy",),
    "race": ("accuracy",),
}
"""The metrics of each task; the first is the one of the paper's tables, and the one that chooses the best step."""


def accuracy(predictions: NDArray, labels: NDArray) -> float:
    """Share of the predictions (N,) that equal their labels (N,)."""
    return float((predictions == labels).mean())


def f1(predictions: NDArray, labels: NDArray) -> float:
    """F1 of class 1 among predictions (N,) and labels (N,) of 0 and 1; 0 where the class is in neither."""
    return float(f1_score(labels, predictions, pos_label=1, average="binary", zero_division=0.0))


def matthews(predictions: NDArray, labels: NDArray) -> float:
    """Matthews correlation of predictions (N,) and labels (N,) of 0 and 1; 0 where either is of one class alone."""
    if _constant(predictions) or _constant(labels):
        return 0.0
    return float(matthews_corrcoef(labels, predictions))


def pearson(predictions: NDArray, labels: NDArray) -> float:
    """Pearson correlation of predictions (N,) and labels (N,); 0 where either is constant, or N is 1."""
    if _constant(predictions) or _constant(labels):
        return 0.0
    return float(stats.pearsonr(predictions, labels).statistic)


def spearman(predictions: NDArray, labels: NDArray) -> float:
    """Pearson correlation of the ranks, equal values sharing their mean rank; 0 where either is constant, or N is 1."""
    return pearson(stats.rankdata(predictions), stats.rankdata(labels))


def _constant(values: NDArray) -> bool:
    return bool(np.ptp(values) <= 1e-12 * np.abs(values).max(initial=0.0))


FUNCTIONS: dict[str, Callable[[NDArray, NDArray], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}
"""The metrics by name; each takes predictions (N,) and labels (N,)."""


def compute(task_name: str, predictions: ArrayLike, labels: ArrayLike) -> dict[str, float]:
    """The figures of a GLUE task (or of RACE as a whole).

    Args:
        task_name: a key of `METRICS`.
        predictions: (N,) classes; of STS-B the similarities.
        labels: (N,) of the same kind.

    Raises:
        ValueError: an unknown task, no examples, another number of predictions than labels, or a figure that is no
            number.
    """
    if task_name not in METRICS:
        raise ValueError(f"no metrics are known for task {task_name!r}; choose one of {', '.join(METRICS)}")
    guesses, truths = np.asarray(predictions), np.asarray(labels)
    if guesses.shape != truths.shape or guesses.ndim != 1 or guesses.size == 0:
        raise ValueError(
            f"{task_name}: predictions {guesses.shape} and labels {truths.shape} are not lists of one length above 0"
        )
    if task_name == "stsb":
        guesses, truths = guesses.astype(np.float64), truths.astype(np.float64)
        if not (np.isfinite(guesses).all() and np.isfinite(truths).all()):
            raise ValueError(f"{task_name}: predictions or labels hold NaN or infinity; the training has diverged")
    return {name: FUNCTIONS[name](guesses, truths) for name in METRICS[task_name]}


def race(predictions: ArrayLike, labels: ArrayLike, levels: Sequence[str]) -> dict[str, float]:
    """Accuracies of RACE: "accuracy" of all questions, "middle" and "high" of those that `levels` (N,) marks so.

    A level without questions has no figure. Raises ValueError as `compute` does.
    """
    figures = compute("race", predictions, labels)
    right = np.asarray(predictions) == np.asarray(labels)
    for level in ("middle", "high"):
        marked = np.array([given == level for given in levels], dtype=bool)
        if marked.any():
            figures[level] = float(right[marked].mean())
    return figures


_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def normalise_answer(text: str) -> str:
    """An answer as SQuAD compares it: lower case, without ASCII punctuation, without articles, single spaces."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _overlap(prediction: str, answer: str, empty_equals_empty: bool) -> float:
    """F1 of the words that two normalised answers have in common, each counted as often as it occurs in both."""
    guess, truth = prediction.split(), answer.split()
    if empty_equals_empty and not (guess and truth):
        return float(guess == truth)
    common = (Counter(guess) & Counter(truth)).total()
    return 2 * common / (len(guess) + len(truth)) if common else 0.0


def squad_scores(
    predictions: Mapping[str, str], gold: Mapping[str, Sequence[str]], version: str | None = None
) -> dict[str, tuple[float, float]]:
    """Exact match and F1, 0 to 1, of every question in `gold`; the best over its answers.

    Args:
        predictions: question id to answer, "" for none. Ids that are not in `gold` are ignored.
        gold: question id to the accepted answers; none is "unanswerable". Where only articles and punctuation are
            accepted, version 2.0 wants "", though the question counts as answerable.
        version: "1.1" or "2.0"; by default 2.0 if any question is unanswerable. They differ in what F1 an answer
            has of which nothing is left after normalisation.

    Raises:
        ValueError: version 1.1 and a question without any answer.
    """
    version = version or squad_version(gold)
    scores = {}
    for question, answers in gold.items():
        if version == "1.1":
            if not answers:
                raise ValueError(f"question {question} has no answer; SQuAD 1.1 has one for each")
            accepted = [normalise_answer(answer) for answer in answers]
        else:
            accepted = [left for left in map(normalise_answer, answers) if left] or [""]
        prediction = predictions.get(question)
        if prediction is None:
            scores[question] = (0.0, 0.0)
            continue
        guess = normalise_answer(prediction)
        scores[question] = (
            float(guess in accepted),
            max(_overlap(guess, answer, version != "1.1") for answer in accepted),
        )
    return scores


def squad_version(gold: Mapping[str, Sequence[str]]) -> str:
    """ "2.0" where a question has no answer, else "1.1"."""
    return "1.1" if all(gold.values()) else "2.0"


def squad(
    predictions: Mapping[str, str],
    gold: Mapping[str, Sequence[str]],
    null_odds: Mapping[str, float] | None = None,
    *,
    version: str | None = None,
    threshold: float = 1.0,
) -> dict[str, float]:
    """What the official scripts of SQuAD 1.1 and 2.0 print, in percent.

    The 2.0 script fails where a prediction is missing; here, as in the 1.1 script, it counts as wrong.

    Args:
        predictions: question id to answer, "" for none.
        gold: question id to the accepted answers; none is "unanswerable".
        null_odds: question id to a number that is the higher the less there seems to be an answer.
        version: "1.1" or "2.0"; by default 2.0 if any question is unanswerable or there are null odds.
        threshold: null odds above it stand for the answer "" (the 2.0 script's default, 1).

    Returns:
        "exact", "f1", "total", "missing"; for 2.0 also "HasAns_exact", "HasAns_f1", "HasAns_total" and the same for
        "NoAns" where there are such questions; with null odds also "best_exact", "best_exact_thresh", "best_f1" and
        "best_f1_thresh": what the best threshold would give, which was chosen on these very questions.

    Raises:
        ValueError: no questions; null odds that lack a question; version 1.1 and a question without any answer.
    """
    if not gold:
        raise ValueError("there is no question to evaluate")
    version = version or ("2.0" if null_odds is not None else squad_version(gold))
    raw = squad_scores(predictions, gold, version)
    answerable = {question: bool(answers) for question, answers in gold.items()}
    scores = raw
    if null_odds is not None:
        if lacking := next((question for question in gold if question not in null_odds), None):
            raise ValueError(f"the null odds lack question {lacking}; they must cover every question")
        scores = {
            question: (float(not answerable[question]),) * 2
            if null_odds[question] > threshold and question in predictions
            else score
            for question, score in raw.items()
        }
    figures = {
        "exact": _percent(scores, gold, 0),
        "f1": _percent(scores, gold, 1),
        "total": float(len(gold)),
        "missing": float(sum(question not in predictions for question in gold)),
    }
    if version == "1.1":
        return figures
    for name, wanted in (("HasAns", True), ("NoAns", False)):
        if chosen := [question for question in gold if answerable[question] == wanted]:
            figures |= {
                f"{name}_exact": _percent(scores, chosen, 0),
                f"{name}_f1": _percent(scores, chosen, 1),
                f"{name}_total": float(len(chosen)),
            }
    if null_odds is not None:
        for index, name in enumerate(("exact", "f1")):
            chosen_scores = {question: score[index] for question, score in raw.items() if question in predictions}
            best, at = _best_threshold(predictions, chosen_scores, null_odds, answerable)
            figures |= {f"best_{name}": 100 * best / len(gold), f"best_{name}_thresh": at}
    return figures


def _percent(scores: Mapping[str, tuple[float, float]], questions: Collection[str], index: int) -> float:
    return 100 * sum(scores[question][index] for question in questions) / len(questions)


def _best_threshold(
    predictions: Mapping[str, str],
    scores: Mapping[str, float],
    null_odds: Mapping[str, float],
    answerable: Mapping[str, bool],
) -> tuple[float, float]:
    """The highest sum of scores that any threshold on the null odds gives, and the lowest such threshold.

    Questions are let through one by one, those that most seem to have an answer first, in the order of `null_odds`
    where these are equal: so the official script does it. It starts from a threshold of 0 that lets none through.
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
