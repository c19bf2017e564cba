"""Tasks that cannot work are refused when they are made; those of the paper are complete."""

import dataclasses

import numpy as np
import pytest

from common.errors import UserError
from pipeline.tasks.files import reading
from pipeline.tasks.files.glue import GlueFiles
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import CLASSIFICATION, KINDS
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


def test_a_task_made_at_run_time_needs_no_registry(tmp_path):
    task = Task(
        "topics",
        CLASSIFICATION,
        HYPERPARAMETERS,
        labels=("culture", "politics", "sport"),
        metrics=("matthews", "accuracy"),
        files=GlueFiles("Topics", ("headline",), label="topic", index="number"),
    )
    (tmp_path / "train.tsv").write_text("headline\ttopic\na\tsport\nb\tculture\n")
    (tmp_path / "test.tsv").write_text("number\theadline\n100\tc\n101\td\n")
    splits = reading.read(task, str(tmp_path))
    assert [example.label for example in splits["train"]] == [2, 0]
    right = Logits(np.array([example.id for example in splits["test"]]), np.eye(3)[[2, 0]], np.array([2, 0]))
    assert task.kind.metrics(task, right) == {"matthews": pytest.approx(1.0), "accuracy": 1.0}
    (path,) = task.write_submission("test", right, tmp_path)
    assert (path.name, path.read_text()) == ("Topics.tsv", "index\tprediction\n100\tsport\n101\tculture\n")
    without_files = dataclasses.replace(task, files=None)
    with pytest.raises(UserError, match="holds no file of task topics; name the directory with its train split"):
        reading.read(without_files, str(tmp_path))
