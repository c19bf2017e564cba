"""The lines of Python in a model card that use the exported model."""

from collections.abc import Mapping
from typing import Any

from pipeline.tasks.task import Task

PIPELINE_TAGS = {
    "AlbertForPreTraining": "fill-mask",
    "AlbertForMaskedLM": "fill-mask",
    "AlbertForSequenceClassification": "text-classification",
    "AlbertForTokenClassification": "token-classification",
    "AlbertForQuestionAnswering": "question-answering",
    "AlbertForMultipleChoice": "multiple-choice",
}
"""The hub's name of what a model of each class of `transformers` does."""

_FILL_MASK = """
from transformers import pipeline

fill_mask = pipeline("fill-mask", model={model})
for guess in fill_mask("This is the [MASK] of the text."):
    print(guess["token_str"], round(guess["score"], 3))
"""
_CLASSIFY = """
from transformers import pipeline

classify = pipeline("text-classification", model={model})
print(classify({inputs}))
"""
_CLASSIFY_TOKENS = """
from transformers import pipeline

tag = pipeline("token-classification", model={model})
print(tag("This is a text."))
"""
_ANSWER = """
import torch
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({model})
model = AutoModelForQuestionAnswering.from_pretrained({model})
question, passage = "Who wrote the book?", "The book was written by a friend."
inputs = tokenizer(question, passage, return_tensors="pt")
with torch.no_grad():
    outputs = model(**inputs)
in_passage = torch.tensor([part == 1 for part in inputs.sequence_ids(0)])
start = outputs.start_logits[0].masked_fill(~in_passage, -torch.inf).argmax()
end = start + outputs.end_logits[0].masked_fill(~in_passage, -torch.inf)[start:].argmax()
print(tokenizer.decode(inputs["input_ids"][0, start : end + 1]))
"""
_CHOOSE = """
import torch
from transformers import AutoModelForMultipleChoice, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({model})
model = AutoModelForMultipleChoice.from_pretrained({model})
passage, question = "A friend wrote the book.", "Who wrote the book?"
options = ["A friend.", "A teacher.", "A queen.", "Nobody."]
texts = [passage] * len(options)
inputs = tokenizer(texts, [f"{{question}} {{option}}" for option in options], padding=True, return_tensors="pt")
with torch.no_grad():
    logits = model(**{{name: tensor[None] for name, tensor in inputs.items()}}).logits
print(options[logits.argmax()])
"""
_OWN_PRETRAINED = """
from pathlib import Path

import torch

from data_prep.text.normalization import normalize
from data_prep.text.vocabulary import CLS_ID, SEP_ID, Vocabulary
from model import checkpoint

directory = Path({model})
model = checkpoint.load(directory).eval()
vocabulary = Vocabulary.load(directory / "spiece.model")
(ids,) = vocabulary.encode([normalize("This is a text.", vocabulary.normalization)])
with torch.no_grad():
    hidden = model.albert(torch.tensor([[CLS_ID, *ids, SEP_ID]])).last_hidden_state
print(hidden.shape)
"""
_OWN_SPANS = """
from pathlib import Path

import torch

from data_prep.text.normalization import normalize
from data_prep.text.vocabulary import CLS_ID, SEP_ID, Vocabulary
from model import checkpoint
from model.spans import AlbertForConditionedQuestionAnswering

directory = Path({model})
config, tensors = checkpoint.read(directory)
model = AlbertForConditionedQuestionAnswering(config).eval()
model.load_state_dict(tensors)
vocabulary = Vocabulary.load(directory / "spiece.model")
texts = ["Who wrote the book?", "The book was written by a friend."]
texts = [normalize(text, vocabulary.normalization) for text in texts]
question, passage = vocabulary.encode(texts)
ids = torch.tensor([[CLS_ID, *question, SEP_ID, *passage, SEP_ID]])
first = len(question) + 2
positions = torch.arange(ids.shape[1])
in_passage = (positions >= first) & (positions < ids.shape[1] - 1)
allowed = in_passage | (positions == 0)
with torch.no_grad():
    found = model(ids, token_type_ids=(positions >= first).long()[None], allowed=allowed[None])
start = int(found.start_beam[0, 0])
end = start + int(found.end_logits[0, 0, start:].argmax())
print("no answer" if found.null_logits[0] > 0 else [vocabulary.pieces[n] for n in ids[0, start : end + 1]])
"""

_BY_CLASS = {
    "AlbertForSequenceClassification": _CLASSIFY,
    "AlbertForTokenClassification": _CLASSIFY_TOKENS,
    "AlbertForQuestionAnswering": _ANSWER,
    "AlbertForMultipleChoice": _CHOOSE,
}


def class_of(head: Mapping[str, Any] | None) -> str | None:
    """The class of `transformers` for a fine-tuned model with the fields `head` in config.json; None if there is none.

    A model without a head, a pre-trained one, is AlbertForPreTraining.
    """
    if head is None:
        return "AlbertForPreTraining"
    return head["architectures"][0] if "architectures" in head else None


def example(head: Mapping[str, Any] | None, task: Task | None, in_layout: bool, model: str) -> str | None:
    """Python that opens the model and uses it once; None for a kind of model without an example.

    Args:
        head: the fields of config.json for a fine-tuning head; None after pre-training.
        task: of a fine-tuned model.
        in_layout: whether the export is in the layout of `transformers`.
        model: name of a directory or of a repository of the hub.
    """
    if not in_layout:
        if head is None:
            template = _OWN_PRETRAINED
        elif task is not None and task.kind == "conditioned_spans":
            template = _OWN_SPANS
        else:
            return None
    else:
        template = _BY_CLASS.get(class_of(head) or "", _FILL_MASK)
    two = '{"text": "This is the first text.", "text_pair": "This is the second one."}'
    inputs = two if task is not None and is_of_pairs(task) else '"This is a text."'
    return template.strip().format(model=f'"{model}"', inputs=inputs)


def is_of_pairs(task: Task) -> bool:
    """Whether an example of a task of texts has two texts."""
    if task.columns is not None:
        return task.columns.second_text is not None
    return len(getattr(task.files, "texts", ()) or getattr(task.hub, "texts", ())) == 2
