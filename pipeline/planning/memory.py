"""Bytes on a GPU during training, by kind, as DeepSpeed 0.19.8 and this model allocate them.

Psi: parameters. N: ranks. b: bytes of a number in the training precision. tests/pipeline/planning/test_memory.py
compares the results with the memory of real engines.

    stage   weights                         gradients                           optimizer (fp32 weights, m, v)
    0       b Psi                           b Psi                               12 Psi; 8 Psi in fp32
    1       b Psi                           as 2; b Psi with accumulation       12 Psi / N
    2       b Psi                           b Psi / N, cut tensors whole        12 Psi / N
    3       b Psi / N, gathered + b Psi     b Psi / N                           12 Psi / N

If gradients are accumulated in fp32 (data_types.grad_accum_dtype in the JSON), they take another 4 Psi at stage 1. At
stages 2 and 3 the gradients take 4 Psi / N in total.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from model import AlbertConfig
from model.checkpoint import empty_model
from model.config import flash_supports
from model.counts import parameter_counts
from pipeline.checkpoint.manifest import BYTES_A_PARAMETER
from pipeline.data.collate import BatchShape
from pipeline.data.packed_rows import offset_count
from pipeline.engine.optimizers import parameter_groups

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
"""Bytes of one number, by precision."""

MAX_ROWS = 2**30
"""Rows of the largest micro-batch that is looked for."""
DEFAULT_BUCKET = 500_000_000
"""Elements of `reduce_bucket_size` and `allgather_bucket_size` if the JSON has none (stages 1 to 3)."""


@dataclass(frozen=True)
class MemorySettings:
    """The settings of a run that decide how much memory it needs.

    Attributes:
        precision: of training: "fp16", "bf16" or "fp32".
        zero_stage: 0 to 3.
        world_size: ranks.
        checkpointing: of activations: "none" or "layer".
        accumulation: micro-steps in a step.
        accumulates: precision in which gradients are accumulated; None for that of training.
        bucket: elements of the reduce bucket.
        overlap: True if stages 1 and 2 have two reduce buckets (overlap_comm).
        max_live: the largest number of parameters that stage 3 keeps gathered.
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


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU, by kind.

    Attributes:
        weights: of the model, gathered ones included.
        gradients: at the end of the backward pass.
        optimizer: fp32 weights, first and second moments.
        activations: saved by the forward pass for the backward pass.
        buffers: temporary memory of the backward pass, the reduction or the update, whichever needs most. It holds
            logits with their gradient or what FlashAttention takes, a recomputed block, reduce buckets with their
            copies, and fp32 gradients.
    """

    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float

    @property
    def total(self) -> float:
        """All kinds together: the peak."""
        return self.weights + self.gradients + self.optimizer + self.activations + self.buffers


def parameter_bytes(config: AlbertConfig, settings: MemorySettings) -> tuple[float, float, float]:
    """Bytes of weights, gradients and optimizer state, on the rank that has most."""
    width, parameters = BYTES[settings.precision], parameter_counts(config).total
    slice_size = parameters / settings.world_size
    summed = BYTES[settings.accumulates or settings.precision]
    if settings.zero_stage == 0:
        masters = 0 if settings.precision == "fp32" else 4
        return parameters * width, parameters * width, parameters * (8 + masters)
    if settings.zero_stage < 3:
        gradients: float = width * elements_in_slice(tensor_sizes(config), settings.world_size)
        if summed > width:
            gradients = parameters * (width + summed) if settings.zero_stage == 1 else slice_size * summed
        elif settings.zero_stage == 1 and settings.accumulation > 1:
            gradients = parameters * width
        return parameters * width, gradients, slice_size * 12
    gathered = min(parameters, settings.max_live) if settings.world_size > 1 else 0
    return (slice_size + gathered) * width, slice_size * summed, slice_size * 12


@cache
def tensor_sizes(config: AlbertConfig) -> list[list[int]]:
    """Elements of each tensor, one list per parameter group of the optimizer, in ZeRO's order."""
    groups = parameter_groups(empty_model(config))
    return [[parameter.numel() for parameter in group["params"]] for group in groups]


def elements_in_slice(groups: Sequence[Sequence[int]], world_size: int) -> int:
    """Elements of all tensors that a rank's slices touch, on the rank that has most.

    Every group is cut into `world_size` equal slices. A rank's gradients are views of whole tensors' gradients, so both
    ranks hold a tensor that is cut between them.
    """
    held = [0] * world_size
    for sizes in groups:
        slice_size = -(-sum(sizes) // world_size)
        start = 0
        for size in sizes:
            for rank in range(start // slice_size, (start + size - 1) // slice_size + 1):
                held[rank] += size
            start += size
    return max(held)


def block_bytes(config: AlbertConfig, positions: int, width: int, checkpointing: str = "none") -> float:
    """Bytes that one block saves for `positions` tokens.

    Without recomputation it saves 8 H + 2 FFN numbers per token: input, query, key, value, context, both sums before a
    LayerNorm, the first LayerNorm's output; and the feed-forward layer before and after GELU. Each LayerNorm also saves
    two statistics. A dropout mask takes one byte per number, as on a GPU; a CPU saves it in the training precision. No
    attention weights are counted: GPU kernels save none. A CPU does save them for rows of up to 128 tokens, which it
    computes with a mask.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    dropout = config.hidden_dropout_prob > 0
    statistics = 2 * 4
    if checkpointing == "layer":
        return positions * hidden * width
    return positions * ((8 * hidden + 2 * inner) * width + 2 * statistics + 2 * dropout * hidden)


def activation_bytes(config: AlbertConfig, rows: int, shape: BatchShape, settings: MemorySettings) -> float:
    """Bytes that the forward pass over `rows` rows saves for the backward pass.

    These are: the blocks; embeddings of width E before and after their LayerNorm; for predicted positions the head's
    hidden values and the V log-probabilities, in fp32; and once per attention block with its own parameters, the query,
    key and value matrices as one.
    """
    width = BYTES[settings.precision]
    positions, predictions = rows * shape.sequence_length, rows * shape.predictions
    blocks = config.num_hidden_layers
    fused = config.num_attention_blocks * 3 * config.hidden_size * (config.hidden_size + 1) * width
    embeddings = positions * (
        (2 if config.has_embedding_projection else 1) * config.embedding_size * width
        + (config.hidden_dropout_prob > 0) * config.embedding_size
        + 3 * 8  # the ids
    )
    head = predictions * ((config.hidden_size + 3 * config.embedding_size) * width + 4 * config.vocab_size)
    pooler = rows * shape.pairs * 2 * config.hidden_size * width if config.sentence_head is not None else 0
    return blocks * block_bytes(config, positions, width, settings.checkpointing) + fused + embeddings + head + pooler


def buffer_bytes(
    config: AlbertConfig, parameters: int, rows: int, shape: BatchShape, settings: MemorySettings
) -> float:
    """Bytes of temporary memory: see `Memory.buffers`."""
    in_pass, copied, update = _temporary_bytes(config, parameters, rows, shape, settings)
    buckets = bucket_bytes(settings)
    if settings.zero_stage == 3:  # stage 3 never frees the bucket
        return max(in_pass, copied, update) + buckets
    return max(max(in_pass, copied) + buckets, update)


def _temporary_bytes(
    config: AlbertConfig, parameters: int, rows: int, shape: BatchShape, settings: MemorySettings
) -> tuple[float, float, float]:
    """Bytes of temporary memory in the passes, in the reduction without its buckets, and in the update."""
    width = BYTES[settings.precision]
    positions = rows * shape.sequence_length
    again = block_bytes(config, positions, width) - block_bytes(config, positions, width, settings.checkpointing)
    # The caller holds the logits. Their gradient in fp32 is gone when the backward pass comes to the blocks.
    numbers = rows * shape.predictions * config.vocab_size
    logits = numbers * width + max(4 * numbers, attention_bytes(config, rows, shape, settings.precision))
    # A full bucket is copied for the reduction.
    copied = min(settings.bucket, parameters) * width if settings.zero_stage or settings.world_size > 1 else 0
    updated = parameters / (settings.world_size if settings.zero_stage else 1)
    update = 0 if settings.precision == "fp32" else 4 * updated  # gradients in fp32
    return again + logits, copied, update


def attention_bytes(config: AlbertConfig, rows: int, shape: BatchShape, precision: str) -> int:
    """Bytes that the backward pass of FlashAttention takes at most, in a micro-batch whose rows are full of pairs.

    0 where that kernel is no candidate. The others keep the gradients in the training precision.
    """
    if precision == "fp32" or not flash_supports(config.head_dim):
        return 0
    sequences = offset_count(rows * (shape.pairs + 1))  # the padding of a row is one
    return flash_backward_bytes(rows * shape.sequence_length, sequences, config.num_attention_heads, config.head_dim)


def flash_backward_bytes(tokens: int, sequences: int, heads: int, head_dim: int) -> int:
    """Bytes that one backward pass of FlashAttention takes for the gradient of the queries, in fp32.

    Each sequence, an empty one as well, has 128 more tokens (`mha_varlen_bwd` of FlashAttention 2). The kernel pads
    heads to a multiple of 32. With deterministic algorithms it takes a multiple of this where there are fewer
    sequences times heads than multiprocessors.
    """
    padded = -(-head_dim // 32) * 32 if head_dim <= 192 else 256
    return (tokens + 128 * sequences) * heads * padded * 4


def bucket_bytes(settings: MemorySettings) -> float:
    """Bytes of the reduce buckets. DeepSpeed allocates them in full size, even for few parameters.

    There is none at stage 0, and none at stage 1 in bf16 with gradients accumulated in fp32 (bf16_optimizer.py).
    """
    sums_in_fp32 = (settings.precision, settings.accumulates) == ("bf16", "fp32")
    if settings.zero_stage == 0 or (settings.zero_stage == 1 and sums_in_fp32):
        return 0
    return settings.bucket * BYTES[settings.precision] * (2 if settings.overlap and settings.zero_stage < 3 else 1)


def memory(config: AlbertConfig, rows: int, shape: BatchShape, settings: MemorySettings) -> Memory:
    """Bytes on each GPU with a micro-batch of `rows` rows."""
    parameters = parameter_counts(config).total
    weights, gradients, optimizer = parameter_bytes(config, settings)
    return Memory(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        activations=activation_bytes(config, rows, shape, settings),
        buffers=buffer_bytes(config, parameters, rows, shape, settings),
    )


def copy_bytes(config: AlbertConfig, world_size: int) -> float:
    """Bytes of the host's memory that one rank needs for the copy of its part of a checkpoint.

    The copy is written in the background. torch rounds pinned memory up to a power of two.
    """
    own = BYTES_A_PARAMETER * parameter_counts(config).total / world_size
    return float(2 ** math.ceil(math.log2(own)))


def largest_micro_batch(config: AlbertConfig, shape: BatchShape, settings: MemorySettings, available: float) -> int:
    """The most rows whose `memory` is at most `available` bytes; 0 if not even one row fits."""
    rows = range(1, MAX_ROWS + 1)
    return bisect.bisect_right(rows, available, key=lambda count: memory(config, count, shape, settings).total)
