"""Counts what a configuration costs: its parameters and its floating-point operations.

Of the operations only matrix products count; a multiply and an add are two operations. LayerNorm, GELU, softmax and
the optimizer are left out: they are below 2 % of the operations of every preset, but take a larger share of the time.
"""

from dataclasses import dataclass, fields
from functools import cache
from typing import NamedTuple

from model.checkpoint import empty_model
from model.config import AlbertConfig


@dataclass(frozen=True)
class ParameterCounts:
    """Trainable parameters by part. Shared and tied parameters count once."""

    embeddings: int  # the tables, their LayerNorm, and the projection to hidden_size
    encoder: int  # all attention and feed-forward blocks
    pooler: int  # the dense layer on [CLS]; 0 without a sentence head
    heads: int  # the masked-token head without its tied matrix, and the sentence head: only pre-training has them

    @property
    def backbone(self) -> int:
        """Everything but the heads: what fine-tuning starts from, and what the paper's tables count."""
        return self.embeddings + self.encoder + self.pooler

    @property
    def total(self) -> int:
        """Everything that pre-training trains."""
        return self.backbone + self.heads


@cache
def parameter_counts(config: AlbertConfig) -> ParameterCounts:
    """Counts the parameters of the model that `config` describes, without allocating them."""
    counts = dict.fromkeys((field.name for field in fields(ParameterCounts)), 0)
    for name, parameter in empty_model(config).named_parameters():
        part = name.split(".")[1] if name.startswith("albert.") else "heads"
        counts[part] += parameter.numel()
    return ParameterCounts(**counts)


class ForwardFlops(NamedTuple):
    """Floating-point operations, by part, of the forward pass of one row of S positions with M predictions."""

    attention: int  # the four projections and the two products of all blocks; attention over the whole row
    ffn: int  # the two matrices of all blocks
    ends: int  # the projection E -> H, the masked-token head with its V logits, and the pooler of one [CLS]


def forward_flops(
    config: AlbertConfig, sequence_length: int, predictions: int, squares: float | None = None
) -> ForwardFlops:
    """Counts L*S*2*(4H^2 + 2HI) + 4*L*S^2*H + 2*S*E*H + M*(2HE + 2EV) + 2H^2 operations, for L blocks.

    `squares` stands for S^2: the sum of the squared lengths of the sequences in the row. None: one sequence.
    """
    squares = sequence_length**2 if squares is None else squares
    hidden, inner, embedding = config.hidden_size, config.intermediate_size, config.embedding_size
    blocks = config.num_hidden_layers
    projection = 2 * sequence_length * embedding * hidden if config.has_embedding_projection else 0
    pooler = 2 * hidden * hidden if config.sentence_head is not None else 0
    return ForwardFlops(
        attention=blocks * (sequence_length * 8 * hidden * hidden + round(4 * squares * hidden)),
        ffn=blocks * sequence_length * 4 * hidden * inner,
        ends=projection + predictions * (2 * hidden * embedding + 2 * embedding * config.vocab_size) + pooler,
    )


def model_flops(config: AlbertConfig, sequence_length: int, predictions: int, squares: float | None = None) -> int:
    """Counts the operations of training on one row: forward, and twice as many backward. MFU is based on it."""
    return 3 * sum(forward_flops(config, sequence_length, predictions, squares))


def executed_flops(config: AlbertConfig, sequence_length: int, predictions: int, checkpointing: str) -> int:
    """Counts `model_flops`, plus what activation `checkpointing` ("none" or "layer") recomputes."""
    forward = forward_flops(config, sequence_length, predictions)
    return 3 * sum(forward) + (forward.attention + forward.ffn if checkpointing == "layer" else 0)
