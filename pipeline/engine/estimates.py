"""What a run will need, by formulas: what DeepSpeed 0.19.8 and this model allocate, compute and send in training.

Psi: parameters. N: ranks. b: bytes of a number in the training precision. tests/pipeline/engine/test_estimates.py
compares the memory with that of real engines.

    stage   weights                         gradients       optimizer (fp32 weights, m, v)
    0       b Psi                           b Psi           12 Psi; 8 Psi in fp32
    1, 2    b Psi                           b Psi           12 Psi / N
    3       b Psi / N, gathered + b Psi     b Psi / N       12 Psi / N

At stage 2 a rank keeps b Psi / N of the gradients, but the gradient of a shared matrix is complete, and whole on each
rank, only at the end of the backward pass. If gradients are accumulated in fp32 (data_types.grad_accum_dtype in the
JSON), they take another 4 Psi at stage 1, another 4 Psi / N at stage 2, and 4 Psi / N in total at stage 3.
"""

import bisect
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from model import AlbertConfig
from model.config import flash_supports
from model.counts import executed_flops, model_flops, parameter_counts
from model.layers.heads import CHUNK
from pipeline.data.collate import BatchShape
from pipeline.data.packed_rows import offset_count
from pipeline.engine.engine_config import EngineConfig
from pipeline.engine.hardware import Cluster

BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}  # bytes of one number, by precision
USABLE = 0.92  # part of a GPU's memory that a run can use; the rest goes to the CUDA context, NCCL and fragments
DEFAULT_BUCKET = 500_000_000  # elements of `reduce_bucket_size` if the JSON has none (stages 1 to 3)
NETWORK_EFFICIENCY = 0.8  # part of a link's nominal speed that collectives reach


class Memory(NamedTuple):
    """Bytes on one GPU. weights: gathered ones included; gradients: at the end of the backward pass; buffers: temporary
    memory of the passes or of the reduction; update: copies of the gradients, when activations and buffers are gone."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    buffers: float
    update: float

    @property
    def total(self) -> float:
        """The peak: in the backward pass or in the update."""
        return self.weights + self.gradients + self.optimizer + max(self.activations + self.buffers, self.update)


@dataclass(frozen=True)
class Plan:
    """A run, and what it needs."""

    model: AlbertConfig
    engine: EngineConfig
    cluster: Cluster
    shape: BatchShape
    checkpointing: str  # of activations: "none" or "layer"
    tflops: float  # speed of a GPU in TFLOP/s, counting all operations that are executed
    steps: int  # optimizer steps of the run

    @cached_property
    def parameters(self) -> int:
        """Of the model."""
        return parameter_counts(self.model).total

    @cached_property
    def width(self) -> int:
        """Bytes of a number in the training precision."""
        return BYTES[self.engine.precision]

    @cached_property
    def summed_width(self) -> int:
        """Bytes of an accumulated gradient."""
        return BYTES[self.engine.json.get("data_types", {}).get("grad_accum_dtype") or self.engine.precision]

    @cached_property
    def sent_width(self) -> int:
        """Bytes of a gradient that the ranks send each other."""
        return BYTES[self.engine.json.get("communication_data_type") or self.engine.precision]

    @cached_property
    def bucket_width(self) -> int:
        """Bytes of a gradient in a reduce bucket: in fp16 at stage 1 as it is accumulated, at stage 3 as it is sent."""
        if self.engine.zero_stage == 3:
            return self.sent_width
        return self.summed_width if self.engine.zero_stage == 1 and self.engine.precision == "fp16" else self.width

    @cached_property
    def bucket_size(self) -> int:
        """Elements of a reduce bucket."""
        return int(self.engine.json.get("zero_optimization", {}).get("reduce_bucket_size", DEFAULT_BUCKET))

    @cached_property
    def memory(self) -> Memory:
        """On the rank that has most."""
        return Memory(*parameter_bytes(self), activation_bytes(self), buffer_bytes(self), update_bytes(self))

    @property
    def usable_memory(self) -> float:
        """Bytes of one GPU that a run can use."""
        return USABLE * self.cluster.gpu.memory_bytes

    @property
    def fits(self) -> bool:
        """Whether the micro-batch fits into a GPU's memory."""
        return self.memory.total <= self.usable_memory

    @cached_property
    def largest_micro_batch(self) -> int:
        """The most rows that fit; 0 if not even one does."""

        def total(rows: int) -> float:
            return replace(self, engine=replace(self.engine, micro_batch_size=rows)).memory.total

        return bisect.bisect_right(range(1, 2**30), self.usable_memory, key=total)

    @cached_property
    def step_seconds(self) -> float:
        """Of one step. Computation and collectives are assumed not to overlap. Empty rows take as long as others."""
        rows, length = self.engine.micro_batch_size * self.engine.accumulation_steps, self.shape.sequence_length
        flops = executed_flops(self.model, length, self.shape.predictions, self.checkpointing)
        return rows * flops / (1e12 * self.tflops) + collective_seconds(self)

    @property
    def days(self) -> float:
        """Of all steps."""
        return self.steps * self.step_seconds / 86400

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation, from 0 to 1."""
        flops = model_flops(self.model, self.shape.sequence_length, self.shape.predictions)
        rows = self.engine.train_batch_size / self.cluster.world_size
        return rows * flops / self.step_seconds / (1e12 * self.cluster.gpu.tflops[self.engine.precision])


def assumed_efficiency(config: AlbertConfig) -> float:
    """The part of a GPU's peak that training is assumed to reach: wider matrices keep a GPU busier."""
    return 0.5 if config.hidden_size >= 2048 else 0.4 if config.hidden_size >= 1024 else 0.3


def parameter_bytes(plan: Plan) -> tuple[float, float, float]:
    """Bytes of weights, gradients and optimizer state: the table above."""
    parameters, width, summed, stage = plan.parameters, plan.width, plan.summed_width, plan.engine.zero_stage
    if stage == 0:
        return parameters * width, parameters * width, parameters * (8 if width == 4 else 12)
    part = parameters / plan.engine.world_size
    if stage == 3:
        gathered = parameters if plan.engine.world_size > 1 else 0
        return (part + gathered) * width, part * summed, part * 12
    gradients: float = parameters * width
    if summed > width:
        gradients += summed * (parameters if stage == 1 else part)
    return parameters * width, gradients, part * 12


def layer_bytes(plan: Plan) -> float:
    """Bytes that one layer saves if nothing is recomputed.

    It saves 8 H + 2 FFN numbers per token: input, query, key, value, context, both sums before a LayerNorm, the first
    LayerNorm's output; and the feed-forward layer before and after GELU. Each LayerNorm saves two statistics in fp32, a
    dropout mask one byte per number. GPU kernels save no attention weights.
    """
    model, tokens = plan.model, plan.engine.micro_batch_size * plan.shape.sequence_length
    masks = 2 * model.hidden_size if model.hidden_dropout_prob > 0 else 0
    return tokens * ((8 * model.hidden_size + 2 * model.intermediate_size) * plan.width + 2 * 2 * 4 + masks)


def activation_bytes(plan: Plan) -> float:
    """Bytes that the forward pass saves for the backward pass.

    These are: the layers and the last states; the ids, and embeddings of width E before and after their LayerNorm; the
    head's hidden values of predicted positions, whose logits the chunked loss does not keep; and once per attention
    block with its own parameters, the query, key and value matrices as one.
    """
    model, shape, width, rows = plan.model, plan.shape, plan.width, plan.engine.micro_batch_size
    hidden, embedding, tokens = model.hidden_size, model.embedding_size, rows * shape.sequence_length
    layer = tokens * hidden * width if plan.checkpointing == "layer" else layer_bytes(plan)
    fused = model.num_attention_blocks * 3 * hidden * (hidden + 1) * width
    masks = embedding if model.hidden_dropout_prob > 0 else 0
    embeddings = tokens * ((2 if model.has_embedding_projection else 1) * embedding * width + masks + 3 * 8)
    head = rows * shape.predictions * (hidden + 3 * embedding) * width
    pooler = rows * shape.pairs * 2 * hidden * width if model.sentence_head is not None else 0
    return model.num_hidden_layers * layer + tokens * hidden * width + fused + embeddings + head + pooler


def buffer_bytes(plan: Plan) -> float:
    """Bytes of temporary memory beside the activations.

    The passes hold a recomputed layer, and the logits of a chunk or what FlashAttention takes. Of the logits there are
    three tensors in fp32: log-probabilities, their gradient, and that of the logits. A full reduce bucket is copied for
    the reduction, and cast if the ranks send another precision.
    """
    engine, rows = plan.engine, plan.engine.micro_batch_size
    layer_input = rows * plan.shape.sequence_length * plan.model.hidden_size * plan.width
    again = layer_bytes(plan) - layer_input if plan.checkpointing == "layer" else 0
    logits = min(rows * plan.shape.predictions, CHUNK) * plan.model.vocab_size * 12
    reduced = 0
    if engine.zero_stage or engine.world_size > 1:
        sent = plan.bucket_width + (plan.sent_width if plan.sent_width != plan.bucket_width else 0)
        reduced = min(plan.bucket_size, plan.parameters) * sent
    return max(again + max(logits, attention_bytes(plan)), reduced) + bucket_bytes(plan)


def attention_bytes(plan: Plan) -> int:
    """Bytes that the backward pass of FlashAttention takes at most for the gradient of the queries, in fp32.

    The rows are full of pairs, and the padding of a row is a sequence, too. Each sequence, an empty one as well, has
    128 more tokens (`mha_varlen_bwd` of FlashAttention 2). The kernel pads heads to a multiple of 32. The other kernels
    keep the gradients in the training precision.
    """
    head_dim, rows = plan.model.head_dim, plan.engine.micro_batch_size
    if plan.width == 4 or not flash_supports(head_dim):
        return 0
    padded = -(-head_dim // 32) * 32 if head_dim <= 192 else 256
    tokens = rows * plan.shape.sequence_length + 128 * offset_count(rows * (plan.shape.pairs + 1))
    return tokens * plan.model.num_attention_heads * padded * 4


def bucket_bytes(plan: Plan) -> float:
    """Bytes of the reduce buckets. DeepSpeed allocates them in full size, even for few parameters."""
    if plan.engine.zero_stage == 0:
        return 0
    is_double = plan.engine.json["zero_optimization"].get("overlap_comm") and plan.engine.zero_stage < 3
    return (2 if is_double else 1) * plan.bucket_size * plan.bucket_width


def update_bytes(plan: Plan) -> float:
    """Bytes of the copies of the gradients that the optimizer reads: from stage 1 on in one piece, then in fp32."""
    if plan.engine.zero_stage == 0:
        return 4 * plan.parameters if plan.width < 4 else 0
    copied = plan.parameters / plan.engine.world_size * (plan.summed_width + (4 if plan.summed_width < 4 else 0))
    return copied + (bucket_bytes(plan) if plan.engine.zero_stage == 3 else 0)  # stage 3 never frees its bucket


def collective_seconds(plan: Plan) -> float:
    """Seconds of the collectives in a step, for gradients and weights.

    A reduce-scatter or an all-gather is one pass of a ring, in which each of n GPUs sends (n - 1) / n of the bytes; an
    all-reduce is two. The ring uses the GPUs' links inside a node and the network between nodes; the slower decides.
    DeepSpeed 0.19.8 all-reduces the gradients at stages 0 to 2 (`use_multi_rank_bucket_allreduce`), although a rank
    keeps only a slice from stage 1 on. It does so once per step, and at stage 2 in every micro-step. Stages 1 and 2
    gather the weights after the update. Stage 3 gathers and scatters in every micro-step.
    """
    micro_steps, cluster = plan.engine.accumulation_steps, plan.cluster
    gradients = {0: 2, 1: 2, 2: 2 * micro_steps, 3: micro_steps}[plan.engine.zero_stage]
    weights = {0: 0, 1: 1, 2: 1, 3: micro_steps}[plan.engine.zero_stage]
    ring = (cluster.world_size - 1) / cluster.world_size
    size = ring * plan.parameters * (gradients * plan.sent_width + weights * plan.width)
    inside = size / cluster.gpu.link_bytes_per_second if cluster.gpus_per_node > 1 else 0.0
    between = size / (cluster.gpu.network_gbit * 1e9 / 8) if cluster.nodes > 1 else 0.0
    return max(inside, between) / NETWORK_EFFICIENCY
