"""The kinds of tasks: each is one object with its examples, features, predictions and metrics.

texts        classes, numbers, or any number of labels of texts and pairs: GLUE
choices      questions with options: RACE
tagging      a class for each token
questions    answers in a passage: SQuAD
logits       what the first three share: logits in .npz files, and their metrics
answers      questions and answers of SQuAD, their JSON files and metrics
row_packing  texts as tokens, and sequences packed into rows
"""

from pipeline.tasks.kinds.choices import Choice
from pipeline.tasks.kinds.questions import ConditionedSpans, Spans
from pipeline.tasks.kinds.tagging import Tagging
from pipeline.tasks.kinds.texts import Classification, MultiLabel, Regression
from pipeline.tasks.task import Kind

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Classification(),
        Regression(),
        MultiLabel(),
        Choice(),
        Tagging(),
        Spans(),
        ConditionedSpans(),
    )
}
"""All kinds by name."""
OWN_TASKS = {name: kind for kind in KINDS.values() for name in kind.own_tasks}
"""What --task calls tasks on files of the user (`pipeline.tasks.own_tasks`), and their kinds."""
