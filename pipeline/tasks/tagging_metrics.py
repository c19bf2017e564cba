"""The metrics of tagging: entities of BIO tags, as `seqeval` and CoNLL-2000's script count them, and tokens.

An entity is right if its type and both of its ends are. A tag is "O", or a prefix and a type, such as "B-PER". The
prefix is B (first token), I (inside), E (last) or S (single). An I or E that continues no entity of its type begins
one.
"""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.tasks import metrics
from pipeline.tasks.predictions import TagLogits
from pipeline.tasks.task import Task

_TAG = re.compile("O|[BIES]-.+", re.DOTALL)

Entity = tuple[str, int, int]
"""Type, first token, and the token behind the last one."""


def is_entity_scheme(labels: Sequence[str]) -> bool:
    """Whether the tags mark entities; otherwise each token has a class of its own, such as a part of speech."""
    return all(_TAG.fullmatch(label) for label in labels) and any(label != "O" for label in labels)


def entities(tags: Sequence[str]) -> set[Entity]:
    """The entities in the tags of one text."""
    found = set()
    kind, start, previous = "", -1, "O"
    for index, tag in enumerate([*tags, "O"]):
        prefix, _, type_ = tag.partition("-")
        continues = start >= 0 and prefix in ("I", "E") and type_ == kind and previous in ("B", "I")
        if start >= 0 and not continues:
            found.add((kind, start, index))
            start = -1
        if prefix != "O" and not continues:
            kind, start = type_, index
        previous = prefix
    return found


def entity_counts(task: Task, predictions: TagLogits, predicted: NDArray[np.int64]) -> NDArray[np.int64]:
    """(N, 3): of each text the number of entities that are right, predicted and true.

    Args:
        predicted: (T,) a tag for each token.
    """
    assert predictions.labels is not None
    counts = np.zeros((len(predictions.ids), 3), dtype=np.int64)
    names = np.array(task.labels, dtype=object)
    end = 0
    for number, length in enumerate(predictions.lengths.tolist()):
        start, end = end, end + length
        ours = entities(names[predicted[start:end]].tolist())
        true = entities(names[predictions.labels[start:end]].tolist())
        counts[number] = len(ours & true), len(ours), len(true)
    return counts


def compute(task: Task, predictions: TagLogits) -> dict[str, float]:
    """The task's metrics. The tags must be known."""
    assert predictions.labels is not None
    predicted = predictions.predictions()  # (T,)
    of_tokens = [name for name in task.metrics if not name.startswith("entity_")]
    found = metrics.compute(of_tokens, predicted, predictions.labels)
    if len(of_tokens) < len(task.metrics):
        right, ours, true = entity_counts(task, predictions, predicted).sum(axis=0).tolist()
        found["entity_precision"] = right / ours if ours else 0.0
        found["entity_recall"] = right / true if true else 0.0
        found["entity_f1"] = 2 * right / (ours + true) if ours + true else 0.0
    return {name: found[name] for name in task.metrics}


def parts_of_score(
    task: Task, predictions: TagLogits, predicted: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two numbers (N,) for each text; the task's first metric is the sum of the first over the sum of the second.

    Args:
        predicted: (T,) a tag for each token.
    """
    if task.metrics[0] == "entity_f1":
        counts = entity_counts(task, predictions, predicted).astype(np.float64)  # (N, 3)
        return 2 * counts[:, 0], counts[:, 1] + counts[:, 2]
    right = (predicted == predictions.labels).astype(np.float64)  # (T,)
    starts = np.cumsum(predictions.lengths) - predictions.lengths  # (N,)
    return np.add.reduceat(right, starts), predictions.lengths.astype(np.float64)
