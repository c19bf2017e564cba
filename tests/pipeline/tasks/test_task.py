"""Tasks that cannot work are refused when they are made; those of the paper are complete."""

import dataclasses

import pytest

from common.errors import UserError
from pipeline.tasks.files import reading
from pipeline.tasks.registry import CLASSIFICATION, KINDS, PAPER_TASKS, TASKS, find_task
from pipeline.tasks.task import Hyperparameters, Task

HYPERPARAMETERS = Hyperparameters(1e-5, 16, 0.0, 100, 10)


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("classification", {}, "needs at least two labels; it has 0"),
        ("classification", {"labels": ("good",)}, "needs at least two labels; it has 1"),
        ("classification", {"labels": ("good", "good")}, "has a label twice: good, good"),
        ("choice", {"labels": ("A",)}, "is a choice and needs at least two labels"),
        ("regression", {"labels": ("low", "high")}, "needs one label; it has 2"),
        ("classification", {"labels": ("a", "b"), "metrics": ("acuracy",)}, "unknown metric: acuracy"),
        ("classification", {"labels": ("a", "b"), "metrics": ()}, "has no metrics"),
        ("classification", {"labels": ("a", "b"), "dev_splits": ()}, "no dev splits"),
        ("classification", {"labels": ("a", "b"), "best_by": "f1"}, "no metric 'f1' to choose the best step by"),
        ("spans", {"labels": ("a", "b")}, "answers with spans; it has no labels"),
    ],
)
def test_a_task_that_cannot_work_is_refused(kind, more, message):
    with pytest.raises(ValueError, match=message):
        Task("made up", KINDS[kind], HYPERPARAMETERS, **more)


def test_the_first_metric_is_the_default_score():
    task = Task("made up", CLASSIFICATION, HYPERPARAMETERS, labels=("a", "b"), metrics=("f1", "accuracy"))
    assert task.score == "f1"
    assert dataclasses.replace(task, best_by="accuracy").score == "accuracy"
    assert dataclasses.replace(task, metrics=("matthews",)).score == "matthews"


def test_sequences_and_percentages():
    sequences = {name: task.kind.sequences_per_sample(task) for name, task in TASKS.items()}
    assert {name: count for name, count in sequences.items() if count > 1} == {"race": 4}
    assert TASKS["race"].in_percent(0.25) == 25.0
    assert TASKS["squad2"].in_percent(25.0) == 25.0


def test_the_tasks_of_the_paper_are_found_by_name_and_have_files():
    assert [find_task(task.name) for task in PAPER_TASKS] == list(PAPER_TASKS)
    assert all(task.files is not None for task in PAPER_TASKS)


def test_a_task_without_any_source_of_data_says_what_is_missing(tmp_path):
    task = Task("made up", CLASSIFICATION, HYPERPARAMETERS, labels=("a", "b"))
    with pytest.raises(UserError, match="holds no file of task made up; name the directory with its train split"):
        reading.read(task, str(tmp_path))
