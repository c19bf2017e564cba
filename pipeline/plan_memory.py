"""Bytes that a rank holds while it trains, by kind, as DeepSpeed 0.19.8 and this model allocate them.

Psi: parameters, N: ranks, b: bytes of a weight in the training precision. tests/pipeline/test_plan.py compares with
what real engines hold.

    stage   weights                         gradients                           optimizer (fp32 weights, m, v)
    0       b Psi                           b Psi                               12 Psi; 8 Psi in fp32
    1       b Psi                           as 2; b Psi where it accumulates    12 Psi / N
    2       b Psi                           b Psi / N and what is cut, whole    12 Psi / N
    3       b Psi / N, gathered + b Psi     b Psi / N                           12 Psi / N

Gradients that the JSON has accumulated in fp32 (data_types.grad_accum_dtype) take, beside those of the training
precision, 4 Psi at stage 1; at stages 2 and 3 they take 4 Psi / N.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache

from model import AlbertConfig
from model.checkpoint import empty_model
from model.parameter_counts import parameter_counts
from pipeline.lamb import parameter_groups

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
"""Of one number."""

DEFAULT_BUCKET = 500_000_000
"""Elements of `reduce_bucket_size` and `allgather_bucket_size` where the JSON has none (stages 1 to 3)."""


@dataclass(frozen=True)
class RowShape:
    """What one row of a batch amounts to: S positions, M predictions, P pairs."""

    sequence_length: int
    predictions: int
    pairs: int


@dataclass(frozen=True)
class Engine:
    """The part of a run's settings that decides about memory.

    Attributes:
        checkpointing: of activations: "none", "ffn" or "layer".
        accumulation: micro-steps in a step.
        accumulates: the precision that gradients are summed in; None for that of the training.
        bucket: elements of the reduce bucket.
        overlap: whether stages 1 and 2 have two of them.
        max_live: parameters that stage 3 keeps gathered at most.
        offload: whether the optimizer's state is in the host's memory.
    """

    precision: str
    zero_stage: int
    world_size: int
    checkpointing: str = "none"
    accumulation: int = 1
    accumulates: str | None = None
    bucket: int = DEFAULT_BUCKET
    overlap: bool = False
    max_live: int = 1_000_000_000
    offload: bool = False


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU, by kind.

    Attributes:
        weights: the model's, gathered ones included.
        gradients: when the backward pass ends.
        optimizer: fp32 weights, first and second moments.
        activations: what the forward pass keeps for the backward pass.
        buffers: logits and their gradient, the block that is computed again, reduce buckets and what is copied out of
            them, and the fp32 gradients of the update, whichever of backward pass, reduction and update needs most.
    """

    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float

    @property
    def total(self) -> float:
        """All of it: the most that is held at one time."""
        return sum(asdict(self).values())


def parameter_bytes(config: AlbertConfig, engine: Engine) -> tuple[float, float, float]:
    """(weights, gradients, optimizer) of a model, on the rank that has most."""
    width, parameters = BYTES[engine.precision], parameter_counts(config).total
    share = parameters / engine.world_size
    summed = BYTES[engine.accumulates or engine.precision]
    if engine.zero_stage == 0:
        masters = 0 if engine.precision == "fp32" else 4
        return parameters * width, parameters * width, parameters * (8 + masters)
    if engine.zero_stage < 3:
        gradients: float = width * elements_in_slice(tensor_sizes(config), engine.world_size)
        if summed > width:
            gradients = parameters * (width + summed) if engine.zero_stage == 1 else share * summed
        elif engine.zero_stage == 1 and engine.accumulation > 1:
            gradients = parameters * width
        return parameters * width, gradients, share * 12
    gathered = min(parameters, engine.max_live) if engine.world_size > 1 else 0
    return (share + gathered) * width, share * summed, share * 12


@cache
def tensor_sizes(config: AlbertConfig) -> list[list[int]]:
    """Elements of each tensor, for each parameter group of the optimizer, in the order in which ZeRO lays them out."""
    groups = parameter_groups(empty_model(config))
    return [[parameter.numel() for parameter in group["params"]] for group in groups]


def elements_in_slice(groups: Sequence[Sequence[int]], world_size: int) -> int:
    """The most elements that the tensors in one rank's slices have, whole, where every group is cut into equal slices.

    A rank's gradients are views of tensors' gradients, so that a tensor on a border is held by both of its ranks.
    """
    held = [0] * world_size
    for sizes in groups:
        piece = -(-sum(sizes) // world_size)
        start = 0
        for size in sizes:
            for rank in range(start // piece, (start + size - 1) // piece + 1):
                held[rank] += size
            start += size
    return max(held)


def block_bytes(config: AlbertConfig, positions: int, width: int, checkpointing: str = "none") -> float:
    """What one block keeps of `positions` tokens.

    Nothing recomputed, 8 H + 2 FFN numbers a token: input, query, key and value, context, both sums before a LayerNorm,
    the first LayerNorm's output; the feed-forward before and behind GELU. A LayerNorm keeps two statistics beside.
    Dropout's masks are of one byte as on a GPU; a processor keeps them as wide as the numbers. Attention keeps
    no weights: so do the GPU kernels, and on a processor `model/sequence_attention.py`, but not the mask of rows up to
    128 tokens.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    dropout = config.hidden_dropout_prob > 0
    statistics = 2 * 4
    if checkpointing == "layer":
        return positions * hidden * width
    attention = positions * (7 * hidden * width + statistics + dropout * hidden)
    if checkpointing == "ffn":
        return attention
    return attention + positions * ((hidden + 2 * inner) * width + statistics + dropout * hidden)


def activation_bytes(config: AlbertConfig, rows: int, shape: RowShape, engine: Engine) -> float:
    """What a forward pass over `rows` rows keeps for the backward pass.

    Blocks; embeddings of width E before and behind their LayerNorm; of the predicted positions the head's inside and
    the logarithms of all V probabilities, in fp32; and, once for each attention block that has parameters of its own,
    query, key and value matrices as one.
    """
    width = BYTES[engine.precision]
    positions, predictions = rows * shape.sequence_length, rows * shape.predictions
    blocks = config.num_hidden_layers * config.inner_group_num
    fused = config.num_attention_blocks * 3 * config.hidden_size * (config.hidden_size + 1) * width
    embeddings = positions * (
        (2 if config.has_embedding_projection else 1) * config.embedding_size * width
        + (config.hidden_dropout_prob > 0) * config.embedding_size
        + 3 * 8  # the ids
    )
    head = predictions * ((config.hidden_size + 3 * config.embedding_size) * width + 4 * config.vocab_size)
    pooler = rows * shape.pairs * 2 * config.hidden_size * width if config.sentence_head is not None else 0
    return blocks * block_bytes(config, positions, width, engine.checkpointing) + fused + embeddings + head + pooler


def buffer_bytes(config: AlbertConfig, parameters: int, rows: int, shape: RowShape, engine: Engine) -> float:
    """What comes and goes: see `Memory.buffers`."""
    width = BYTES[engine.precision]
    again = 0.0
    if engine.checkpointing != "none":
        positions = rows * shape.sequence_length
        again = block_bytes(config, positions, width) - block_bytes(config, positions, width, engine.checkpointing)
    # The logits, which the caller holds, and, in fp32, the gradient that comes back to them.
    logits = rows * shape.predictions * config.vocab_size * (width + 4)
    buckets = bucket_bytes(engine)
    # A full bucket is copied to be reduced.
    copied = min(engine.bucket, parameters) * width if engine.zero_stage or engine.world_size > 1 else 0
    update = parameters / (engine.world_size if engine.zero_stage else 1) * (0 if engine.precision == "fp32" else 4)
    if engine.zero_stage == 3:  # where the bucket is never freed
        return max(again + logits, copied, update) + buckets
    return max(max(again + logits, copied) + buckets, update)


def bucket_bytes(engine: Engine) -> float:
    """DeepSpeed allocates the bucket that it reduces gradients in whole, however few parameters there are.

    There is none at stage 0, nor at stage 1 in bf16 with gradients accumulated in fp32 (bf16_optimizer.py).
    """
    if engine.zero_stage == 0 or (engine.zero_stage, engine.precision, engine.accumulates) == (1, "bf16", "fp32"):
        return 0
    return engine.bucket * BYTES[engine.precision] * (2 if engine.overlap and engine.zero_stage < 3 else 1)


def memory(config: AlbertConfig, rows: int, shape: RowShape, engine: Engine) -> Memory:
    """Bytes on each GPU with a micro-batch of `rows`."""
    parameters = parameter_counts(config).total
    weights, gradients, optimizer = parameter_bytes(config, engine)
    return Memory(
        weights=weights,
        gradients=gradients,
        optimizer=0.0 if engine.offload else optimizer,
        activations=activation_bytes(config, rows, shape, engine),
        buffers=buffer_bytes(config, parameters, rows, shape, engine),
    )


def largest_micro_batch(config: AlbertConfig, shape: RowShape, engine: Engine, available: float) -> int:
    """The most rows whose `memory` is at most `available` bytes; 0 where not even one fits."""
    one, two = (memory(config, rows, shape, engine).total for rows in (1, 2))
    rows = max(0, math.floor((available - one) / (two - one)) + 1)
    # The estimate is a line, and `memory` has a bend where the update needs more than the backward pass.
    while rows and memory(config, rows, shape, engine).total > available:
        rows -= 1
    while memory(config, rows + 1, shape, engine).total <= available:
        rows += 1
    return rows
