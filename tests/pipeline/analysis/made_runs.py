"""Makes up the files of finished runs, with metrics that a test can compute by hand."""

import json

import numpy as np

from pipeline.tasks.kinds.answers import Answers, AnswersById, Span
from pipeline.tasks.kinds.logits import Logits


def finetuning(directory, task, init, metrics, **more):
    """A fine-tuning run with these metrics by split."""
    directory.mkdir(parents=True)
    results = {"task": task, "init": str(init), "metrics": metrics, **more}
    (directory / "results.json").write_text(json.dumps(results))
    return directory


def logits(run, split, right, wrong, seed=0, classes=2):
    """Adds logits to a run: so many right and wrong examples of two classes, the same ones for every run.

    With more `classes`, no example is of one of the others; with one, the logits and labels are numbers.
    """
    (run / "logits").mkdir(exist_ok=True)
    labels = np.random.default_rng(0).integers(0, 2, right + wrong)
    order = np.random.default_rng(seed).permutation(right + wrong)
    predicted = np.where(np.arange(right + wrong) < right, labels, 1 - labels)
    rows = np.zeros((right + wrong, classes), np.float32)
    if classes == 1:
        rows[:, 0], labels = predicted, labels.astype(np.float32)
    else:
        rows[np.arange(right + wrong), predicted] = 1
    Logits(order.astype(str), rows[order], labels[order]).save(run / "logits" / f"{split}.npz")


def answers(run, split, right, wrong, null_score=None):
    """Adds answers to SQuAD to a run, of which the first `right` are right."""
    (run / "logits").mkdir(exist_ok=True)
    given = {
        str(number): Answers((Span("a cat" if number < right else "a dog", 0, 5, -0.5),), null_score, ("cat",))
        for number in range(right + wrong)
    }
    AnswersById(given).save(run / "logits" / f"{split}.json")
