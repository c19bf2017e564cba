"""ALBERT (Lan et al., arXiv 1909.11942): the models, their configurations, and their checkpoint files.

Comments such as "section 3.1" refer to that paper. A user's mistake raises ValueError with one line that says what is
wrong and what to do.

    config            the architecture (`AlbertConfig`), the paper's presets, how to run a model (`ExecutionOptions`)
    albert            the encoder, `AlbertModel`, and the base class of all models with a head
    initialisation    initial weights
    pretraining       `AlbertForPreTraining`: masked tokens and sentence order
    distillation      `AlbertForDistillation`: learns the states of a trained model
    classification    fine-tuning: classification, regression, multiple choice
    spans             fine-tuning: question answering
    layers/           embeddings, attention, shared layers, heads, and what is fast on a CPU
    checkpoint        the project's own checkpoint format; JSON and tensor files, written atomically
    huggingface       the format of `transformers`
    bert              BERT's names and configuration there
    counts            parameters, and floating-point operations
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from model.config import AlbertConfig, ExecutionOptions

if TYPE_CHECKING:
    from model.albert import AlbertModel, AlbertModelOutput
    from model.pretraining import AlbertForPreTraining, PreTrainingOutput

__all__ = [
    "AlbertConfig",
    "AlbertForPreTraining",
    "AlbertModel",
    "AlbertModelOutput",
    "ExecutionOptions",
    "PreTrainingOutput",
]


def __getattr__(name: str) -> Any:
    """Imports torch when a model is asked for, so that a command line that names a preset is read without it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{'albert' if name.startswith('AlbertModel') else 'pretraining'}"), name)
