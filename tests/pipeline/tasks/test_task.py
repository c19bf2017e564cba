"""Tasks that cannot work are refused when they are made; those of the paper are complete."""

import pytest

from pipeline.tasks.registry import KINDS
from pipeline.tasks.task import Hyperparameters, Task

HYPERPARAMETERS = Hyperparameters(1e-5, 16, 0.0, 100, 10)


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("classification", {"labels": ("good",)}, "needs at least two labels; it has 1"),
        ("classification", {"labels": ("good", "good")}, "has a label twice: good, good"),
        ("regression", {"labels": ("low", "high")}, "needs one label; it has 2"),
    ],
)
def test_a_task_that_cannot_work_is_refused(kind, more, message):
    with pytest.raises(ValueError, match=message):
        Task("made up", KINDS[kind], HYPERPARAMETERS, **more)
