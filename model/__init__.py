"""ALBERT (arXiv 1909.11942): the model, its configurations, and its checkpoints.

Knows tensors and checkpoint files only: no DeepSpeed, no MPI, no data format. User mistakes raise ValueError
with one line that says what is wrong and what to do.
"""

from model.albert import AlbertForPreTraining, AlbertModel, AlbertModelOutput, PreTrainingOutput
from model.config import AlbertConfig, Implementation

__all__ = [
    "AlbertConfig",
    "AlbertForPreTraining",
    "AlbertModel",
    "AlbertModelOutput",
    "Implementation",
    "PreTrainingOutput",
]
