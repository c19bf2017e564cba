"""The head of each kind of task."""

from model.classification import AlbertForMultipleChoice, AlbertForSequenceClassification
from model.config import AlbertConfig, Implementation
from model.spans import AlbertForConditionedQuestionAnswering, AlbertForQuestionAnswering
from pipeline.tasks.task import Task

FinetunedModel = (
    AlbertForSequenceClassification
    | AlbertForMultipleChoice
    | AlbertForQuestionAnswering
    | AlbertForConditionedQuestionAnswering
)


def make_model(task: Task, config: AlbertConfig, implementation: Implementation | None = None) -> FinetunedModel:
    """The model of a task: the encoder with the head that its kind asks for, from random weights."""
    if task.kind == "spans":
        return AlbertForQuestionAnswering(config, implementation)
    if task.kind == "conditioned_spans":
        return AlbertForConditionedQuestionAnswering(config, implementation)
    if task.kind == "choice":
        return AlbertForMultipleChoice(config, implementation)
    return AlbertForSequenceClassification(config, max(1, len(task.labels)), implementation)
