"""All tasks by name. The paper's tasks (sections 4.2 and A.4) have the hyperparameters of Table 14."""

from typing import Any

from common.errors import UserError
from pipeline.tasks.files.official import DIAGNOSTIC, GlueFiles, RaceFiles, SquadFiles
from pipeline.tasks.kinds import KINDS
from pipeline.tasks.task import Hyperparameters, Task

CLASSIFICATION = KINDS["classification"]
_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_PAIR = ("sentence1", "sentence2")
_QUESTIONS = ("question1", "question2")
_COLA = GlueFiles("CoLA", ("sentence",), columns=("source", "label", "mark", "sentence"))
_MNLI = GlueFiles(
    "MNLI",
    _PAIR,
    label="gold_label",
    extra_splits={"diagnostic": DIAGNOSTIC},
    hub_texts=("premise", "hypothesis"),
    hub_order=("entailment", "neutral", "contradiction"),
    extra_subsets={"ax": "diagnostic"},
    submitted={"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv", "diagnostic": "AX.tsv"},
)
_QQP = GlueFiles("QQP", _QUESTIONS, label="is_duplicate", index="id", may_lack_columns=True)
_MRPC = GlueFiles("MRPC", ("#1 String", "#2 String"), label="Quality", hub_texts=_PAIR)


def _glue(
    name: str, numbers: Hyperparameters, files: GlueFiles, labels: tuple[str, ...] = _BINARY, **more: Any
) -> Task:
    return Task(name, CLASSIFICATION, numbers, labels, files=files, **more)


PAPER_TASKS = (
    _glue("cola", Hyperparameters(1e-5, 16, 0.0, 5336, 320), _COLA, metrics=("matthews", "accuracy")),
    Task(
        "stsb",
        KINDS["regression"],
        Hyperparameters(2e-5, 16, 0.0, 3598, 214),
        labels=("similarity",),
        metrics=("pearson", "spearman"),
        value_range=(0.0, 5.0),
        files=GlueFiles("STS-B", _PAIR, label="score"),
    ),
    _glue("sst2", Hyperparameters(1e-5, 32, 0.0, 20935, 1256), GlueFiles("SST-2", ("sentence",))),
    _glue(
        "mnli",
        Hyperparameters(3e-5, 128, 0.0, 10000, 1000),
        _MNLI,
        labels=("contradiction", "entailment", "neutral"),
        dev_splits=("dev_matched", "dev_mismatched"),
    ),
    _glue(
        "qnli", Hyperparameters(1e-5, 32, 0.0, 33112, 1986), GlueFiles("QNLI", ("question", "sentence")), _ENTAILMENT
    ),
    _glue("qqp", Hyperparameters(5e-5, 128, 0.1, 14000, 1000), _QQP, metrics=("accuracy", "f1")),
    _glue("rte", Hyperparameters(3e-5, 32, 0.1, 800, 200), GlueFiles("RTE", _PAIR), _ENTAILMENT),
    _glue("mrpc", Hyperparameters(2e-5, 32, 0.0, 800, 200), _MRPC, metrics=("accuracy", "f1")),
    _glue("wnli", Hyperparameters(2e-5, 16, 0.1, 2000, 250), GlueFiles("WNLI", _PAIR)),
    Task(
        "squad1",
        KINDS["spans"],
        Hyperparameters(5e-5, 48, 0.0, 3649, 365, max_length=384),
        metrics=("f1", "exact"),
        files=SquadFiles("v1.1"),
    ),
    Task(
        "squad2",
        KINDS["conditioned_spans"],
        Hyperparameters(3e-5, 48, 0.0, 8144, 814),
        metrics=("f1", "exact"),
        best_by="best_f1",  # with the best threshold, as the paper's code reports it
        files=SquadFiles("v2.0"),
    ),
    Task("race", KINDS["choice"], Hyperparameters(2e-5, 32, 0.1, 12000, 1000), tuple("ABCD"), files=RaceFiles()),
)
"""The tasks of Table 14, in its order."""

TASKS: dict[str, Task] = {task.name: task for task in PAPER_TASKS}  # all tasks by name


def find_task(name: str) -> Task:
    """The task called `name`. Raises UserError for an unknown name."""
    if name not in TASKS:
        raise UserError(f"there is no task {name!r}; choose one of {', '.join(TASKS)}")
    return TASKS[name]
