"""The model of each kind of task."""

from model.classification import (
    AlbertForMultipleChoice,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from model.config import AlbertConfig, ExecutionOptions
from model.spans import AlbertForConditionedQuestionAnswering, AlbertForQuestionAnswering
from pipeline.checkpoint.initial_weights import InitialWeights
from pipeline.tasks.task import Task

FinetunedModel = (
    AlbertForSequenceClassification
    | AlbertForMultipleChoice
    | AlbertForTokenClassification
    | AlbertForQuestionAnswering
    | AlbertForConditionedQuestionAnswering
)


def make_model(task: Task, config: AlbertConfig, execution: ExecutionOptions | None = None) -> FinetunedModel:
    """Makes the model of a task, with random weights: the encoder with the head for the task's kind."""
    if task.kind == "spans":
        return AlbertForQuestionAnswering(config, execution)
    if task.kind == "conditioned_spans":
        return AlbertForConditionedQuestionAnswering(config, execution)
    if task.kind == "choice":
        return AlbertForMultipleChoice(config, execution)
    if task.kind == "tagging":
        return AlbertForTokenClassification(config, len(task.labels), execution)
    return AlbertForSequenceClassification(config, len(task.labels), execution)


def has_head_of(initial: InitialWeights, task: Task) -> bool:
    """Whether the head of `initial` is that of `task`: its outputs mean the same."""
    return initial.task == task.name and (not task.labels or initial.labels in (None, task.labels))
