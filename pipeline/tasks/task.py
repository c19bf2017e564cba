"""The paper's tasks (sections 4.2 and A.4): what they are, and how the paper fine-tunes on them (Table 14)."""

from dataclasses import dataclass
from typing import Literal

from data_prep.errors import UserError
from pipeline.tasks.submissions import LABELS

Kind = Literal["classification", "regression", "choice", "spans", "conditioned_spans"]


@dataclass(frozen=True)
class Task:
    """A task and its defaults.

    Attributes:
        name: on the command line.
        kind: which head it has: classes, a number, one of several options, a stretch of a passage, or a stretch or
            the verdict that there is none.
        learning_rate: peak of a linear warm-up and decay.
        batch_size: texts or pairs, windows of SQuAD, questions of RACE, in an optimizer step.
        dropout: inside the encoder; that of the classifier is 0.1 throughout.
        steps, warmup_steps: optimizer steps.
        max_length: tokens of the longest sequence, special ones included.
        dev_splits: what is evaluated while training; the first chooses the best step.
    """

    name: str
    kind: Kind
    learning_rate: float
    batch_size: int
    dropout: float
    steps: int
    warmup_steps: int
    max_length: int = 512
    dev_splits: tuple[str, ...] = ("dev",)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes (of RACE: the options), in the order of the logits; none for other kinds."""
        return LABELS.get(self.name, ())


_MNLI_DEV = ("dev_matched", "dev_mismatched")

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("cola", "classification", 1e-5, 16, 0.0, 5336, 320),
        Task("stsb", "regression", 2e-5, 16, 0.0, 3598, 214),
        Task("sst2", "classification", 1e-5, 32, 0.0, 20935, 1256),
        Task("mnli", "classification", 3e-5, 128, 0.0, 10000, 1000, dev_splits=_MNLI_DEV),
        Task("qnli", "classification", 1e-5, 32, 0.0, 33112, 1986),
        Task("qqp", "classification", 5e-5, 128, 0.1, 14000, 1000),
        Task("rte", "classification", 3e-5, 32, 0.1, 800, 200),
        Task("mrpc", "classification", 2e-5, 32, 0.0, 800, 200),
        Task("wnli", "classification", 2e-5, 16, 0.1, 2000, 250),
        Task("squad1", "spans", 5e-5, 48, 0.0, 3649, 365, max_length=384),
        Task("squad2", "conditioned_spans", 3e-5, 48, 0.0, 8144, 814),
        Task("race", "choice", 2e-5, 32, 0.1, 12000, 1000),
    )
}
"""Table 14 of the paper."""


def find_task(name: str) -> Task:
    """The task called `name`. Raises UserError for another name."""
    if name not in TASKS:
        raise UserError(f"there is no task {name!r}; choose one of {', '.join(TASKS)}")
    return TASKS[name]
