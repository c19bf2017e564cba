"""Distillation as a `TrainingTask`: pre-training whose loss is the distance from a teacher's states.

The parts of the loss are those of `model.distillation.DistillationSums`. Each is a weighted mean over the global batch.

The student has the teacher's vocabulary. Its embedding table is the best of width E for the teacher's words, by
singular values, and a projection fitted by least squares turns it into the teacher's embeddings. In both, a word counts
as often as it stands in the text. Without this, the embeddings of running text are much farther off
(benchmarks/results/student/notes.md).
A block begins as the mean of the teacher's layers that fall to it. What does not fit the sizes of the student stays
random.

Legend of the shapes: V vocab_size, S positions, E embedding_size, H hidden_size, H' that of the teacher.
"""

import dataclasses
import math
from collections import namedtuple
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from common.errors import UserError
from model import AlbertConfig, AlbertForPreTraining, AlbertModel
from model.config import ExecutionOptions
from model.distillation import PARTS, AlbertForDistillation, DistillationOutput, principal_directions, taught_layers
from model.layers.embeddings import FactorisedEmbeddings
from pipeline.checkpoint.initial_weights import InitialWeights, read_initial_weights
from pipeline.data.collate import Batch, Collator
from pipeline.pretraining.pretraining_task import PreTraining
from pipeline.settings.pretrain_flags import MaskingFlags
from pipeline.training.step_metrics import Meter, sum_over_ranks
from pipeline.training.training_run import Evaluation, Monitor

if TYPE_CHECKING:
    from pipeline.engine.engine_state import Engine

EMBEDDING_SIZE = 128
FITTED_POSITIONS = 64  # the positions of the words to which the projection of the embeddings is fitted
SAMPLED_ROWS = 1024  # rows in which the pieces are counted for the start from a teacher
DistillationCounts = namedtuple("DistillationCounts", "tokens sequences neighbours")
"""What the sums of a loss are divided by: the numbers of tokens, of sequences and of ordered pairs of two of a row."""
_FIELDS = (*PARTS, *DistillationCounts._fields, "rows", "finite_tokens")
DistillationTotals = cast(Any, namedtuple)("DistillationTotals", _FIELDS)
"""Sums over batches: of `DistillationSums`, their counts, the rows that hold a token, the tokens of finite sums."""
_COUNT_OF = dict.fromkeys(PARTS, "tokens") | {"pooled": "sequences", "similarity": "neighbours"}


@dataclass(frozen=True)
class Teacher:
    """The teacher of a run, the digest of its weights, and the weight of each part of the loss (`parse_parts`)."""

    directory: Path
    weights: InitialWeights
    digest: str
    loss: dict[str, float]

    def student_config(self) -> AlbertConfig:
        """The student of a run without --model: the teacher's sizes, a narrow embedding, and no dropout.

        If the teacher shares nothing, all layers of the student share one feed-forward network. Each has an attention
        of its own: a mean of all layers has lost the heads that compare words (docs/experiments.md).
        """
        config = self.weights.config
        shares = config.parameter_sharing != "none"
        return dataclasses.replace(
            config,
            embedding_size=min(EMBEDDING_SIZE, config.embedding_size),
            embedding_projection=None,
            parameter_sharing=config.parameter_sharing if shares else "ffn",
            num_hidden_groups=config.num_hidden_groups if shares else 1,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            sentence_head=config.sentence_head and "sop",
        )

    def check_heads(self, student: AlbertConfig) -> None:
        """Raises UserError if the loss compares the heads of attention, and these differ in number or width."""
        teacher = self.weights.config
        own, given = ((each.num_attention_heads, each.head_dim) for each in (student, teacher))
        if "attention" in self.loss and own != given:
            raise UserError(
                f"--teacher-loss attention compares heads, but the teacher has {given[0]} of {given[1]} units and the "
                f"student {own[0]} of {own[1]}; leave that part out (--teacher-loss states=1 layers=0.5 pooled=1 "
                "similarity=5), or give both the same heads"
            )

    def encoder(self) -> AlbertModel:
        """The teacher, fp32, on the CPU."""
        with torch.device("meta"):
            model = AlbertModel(self.weights.config, add_pooling_layer=False)
        tensors = {name: self.weights.tensors["albert." + name] for name in model.state_dict()}
        model.load_state_dict(tensors, assign=True)
        return model.eval()

    def make_student(self, config: AlbertConfig, execution: ExecutionOptions) -> AlbertForDistillation:
        """The model to train, with random weights."""
        return AlbertForDistillation(config, execution, self.encoder(), frozenset(self.loss))


def parse_parts(words: Sequence[str]) -> dict[str, float]:
    """Reads `["states=1", "pooled=0.5"]`. Parts of weight 0 are left out. Raises UserError for a mistake."""
    weights: dict[str, float] = {}
    for word in words:
        name, _, number = word.partition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if name not in PARTS or not 0 <= weight < math.inf or name in weights:
            raise UserError(
                f"--teacher-loss {word!r}: give each part once, as PART=WEIGHT with a weight of at least 0; the parts "
                f"are {', '.join(PARTS)}"
            )
        weights[name] = weight
    weights = {name: weight for name, weight in sorted(weights.items()) if weight}
    if not weights:
        raise UserError(f"--teacher-loss asks nothing of the teacher; give one of {', '.join(PARTS)} a weight above 0")
    return weights


def find_teacher(directory: Path | None, loss: Sequence[str]) -> Teacher | None:
    """Reads --teacher. Raises UserError: it holds no model, or --teacher-loss is wrong."""
    if directory is None:
        return None
    parts, weights = parse_parts(loss), read_initial_weights(directory, "--teacher")
    return Teacher(directory, weights, weights.digest(), parts)


@dataclass
class Distillation(PreTraining):
    """Trains a student as `PreTraining` trains a model, on the distances from its teacher.

    teacher: whose states are learned.
    """

    teacher: Teacher

    name = "distil"
    sums_kind = DistillationTotals
    held_out_has_paper_masks = False  # a student reads the tokens as they are

    def make_model(self) -> nn.Module:
        """A student that begins as the teacher, unless --init fills it."""
        settings = self.settings
        model = self.teacher.make_student(settings.model, settings.execution)
        if self.initial is None:
            sample = self.training.read(np.arange(SAMPLED_ROWS)).input_ids
            counts = np.bincount(sample.reshape(-1), minlength=settings.model.vocab_size)
            start_as_teacher(model, self.teacher, torch.from_numpy(counts))
        return model

    def subject(self, new_tensors: Sequence[str] | None) -> list[str]:
        parts = ", ".join(f"{name} {weight:g}" for name, weight in self.teacher.loss.items())
        lines = [*super().subject(new_tensors), f"distilled from {self.teacher.directory}: {parts}"]
        masks = {field.name: field.default for field in dataclasses.fields(MaskingFlags)}
        if any(getattr(self.settings.flags, name) != default for name, default in masks.items()):
            lines.append("note: a student reads its text without masks, so the flags of masks change nothing")
        return lines

    def label_counts(self, micro_batches: Sequence[Batch]) -> DistillationCounts:  # type: ignore[override]
        sequences = np.concatenate([batch.sequence_ids.max(axis=1) + 1 for batch in micro_batches])  # of each row
        return DistillationCounts(
            tokens=float(sum((batch.sequence_ids >= 0).sum() for batch in micro_batches)),
            sequences=float(sequences.sum()),
            neighbours=float((sequences * (sequences - 1)).sum()),
        )

    def loss(  # type: ignore[override]
        self, output: DistillationOutput, label_counts: Any, micro_batches_per_step: int
    ) -> Tensor:
        """The weighted sum of the parts, each a mean over the global batch."""
        sums = output.distances._asdict()
        weights = {name: self.teacher.loss.get(name, 0.0) * micro_batches_per_step for name in sums}
        terms = [
            part * (weights[name] / max(getattr(label_counts, _COUNT_OF[name]), 1.0)) for name, part in sums.items()
        ]
        assert output.heads.mlm_loss_sum is not None
        assert output.heads.sentence_loss_sum is not None
        of_heads = output.heads.mlm_loss_sum + output.heads.sentence_loss_sum  # (), so that their gradients are 0
        return torch.stack(terms).sum() + 0.0 * of_heads

    def sums(self, output: DistillationOutput, tensors: dict[str, Tensor]) -> Any:  # type: ignore[override]
        sequences, tokens = tensors["sequence_ids"].amax(dim=1) + 1, (tensors["sequence_ids"] >= 0).sum()  # (B,), ()
        return DistillationTotals(
            *output.distances,
            tokens=tokens,
            finite_tokens=tokens,
            sequences=sequences.sum(),
            neighbours=(sequences * (sequences - 1)).sum(),
            rows=(sequences > 0).sum(),
        )

    def summarise(self, totals: Any) -> dict[str, Any]:
        """The loss, and the mean of each part as `distil_PART`; NaN if no batch had a finite loss."""
        counts = totals._asdict() | {"tokens": totals.finite_tokens}
        none = 1.0 if totals.finite_tokens else math.nan
        means = {name: counts[name] / (counts[_COUNT_OF[name]] or none) for name in self.teacher.loss}
        metrics = {f"distil_{name}": mean for name, mean in means.items()}
        loss = sum(self.teacher.loss[name] * mean for name, mean in means.items())
        return metrics | {"loss": loss, "interval_tokens": int(totals.tokens)}

    def _evaluate_rows(self, engine: "Engine", collator: Collator, limit: int | None, wrap: Monitor) -> dict[str, Any]:
        meter = Meter(DistillationTotals, engine.device)
        for tensors, output in self._outputs(engine, collator, limit, wrap):
            meter.add(self.sums(output, tensors))
        (totals,) = sum_over_ranks(self.control, meter.totals())
        return self.summarise(totals)

    def _score(self, metrics: dict[str, Any]) -> Evaluation:
        """The score is minus the loss on the first held-out directory."""
        return Evaluation(metrics, -metrics["loss"], "loss")


@torch.no_grad()
def start_as_teacher(model: AlbertForPreTraining, teacher: Teacher, counts: Tensor) -> None:
    """Gives `model` initial weights that follow from those of the teacher. What does not fit its sizes stays random.

    counts: (V,) how often each piece stands in a sample of the text.
    """
    encoder, config = teacher.encoder(), model.config
    directions = torch.eye(config.hidden_size)  # (H, H')
    if config.hidden_size != encoder.config.hidden_size:
        directions = principal_directions(encoder, config.hidden_size)
    given = teacher.weights.tensors
    _start_embeddings(model.albert, encoder, directions, counts.float() + 1.0)
    blocks = {"attention": config.num_attention_blocks, "feed_forward": config.num_ffn_blocks}
    for name, tensor in model.state_dict().items():
        if name.startswith("albert.encoder."):
            _, _, kind, block, rest = name.split(".", 4)
            source = _initial_tensor(encoder, kind, rest, int(block), blocks[kind], config.num_hidden_layers)
        elif name.startswith(("albert.pooler.", "mlm_head.")) and name in given:
            source = given[name]
        else:
            continue
        fitted = _fit(source, tensor.shape, directions)
        if fitted is not None:
            tensor.copy_(fitted)


def _initial_tensor(encoder: AlbertModel, kind: str, rest: str, block: int, blocks: int, layers: int) -> Tensor:
    """A tensor of a block of a student with `layers` layers.

    It is that of the teacher's layer which a layer with a block of its own learns, or the mean of the teacher's layers
    that fall to the block, if they are spread over the blocks.
    """
    modules: nn.ModuleList = getattr(encoder.encoder, kind)
    column, count = 0 if kind == "attention" else 1, len(encoder.encoder.indices)
    if blocks == layers:
        chosen = [taught_layers(layers, count)[block] - 1]
    else:
        chosen = [layer for layer in range(count) if layer * blocks // count == block] or [block * count // blocks]
    return torch.stack([modules[encoder.encoder.indices[layer][column]].state_dict()[rest] for layer in chosen]).mean(0)


def _fit(source: Tensor, shape: torch.Size, directions: Tensor) -> Tensor | None:
    """`source` with its axes of width H' projected to H; None if it does not have `shape` then."""
    narrow, wide = directions.shape
    if narrow != wide:
        for axis in range(source.ndim):
            if source.shape[axis] == wide:
                source = torch.tensordot(source, directions, dims=([axis], [1])).movedim(-1, axis)
    return source if source.shape == shape else None


def _start_embeddings(student: AlbertModel, teacher: AlbertModel, directions: Tensor, counts: Tensor) -> None:
    """Sets the tables of the student, and then what turns them into hidden states.

    A factorised student has narrow tables and a projection E -> H, which is fitted. Any other one has the teacher's
    LayerNorm, if it is as wide.

    counts: (V,) the weight of each word in the fits, above 0.
    """
    own, goal = student.embeddings, teacher.embeddings
    is_factorised = isinstance(own.projection, nn.Linear)
    width = own.word_embeddings.embedding_dim  # E
    axes = principal_directions(teacher, width, counts) if is_factorised else directions  # (E, H')
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        table, source = getattr(own, name).weight, getattr(goal, name).weight
        count = min(len(table), len(source))
        table[:count] = goal.projection(source[:count]) @ axes.T  # (count, E)
    if is_factorised:
        _fit_projection(own, goal, directions, counts)
    elif len(axes) == axes.shape[1]:
        own.layer_norm.load_state_dict(goal.layer_norm.state_dict())


def _fit_projection(own: FactorisedEmbeddings, goal: FactorisedEmbeddings, directions: Tensor, counts: Tensor) -> None:
    """Fits the projection so that the student's embeddings are nearest to the teacher's, by least squares.

    The student normalises vectors of width E, and the teacher those of width H'. So both are compared behind their
    LayerNorm: of each word, at a position and with a segment type that both have.
    """
    positions_in_both, types_in_both = (
        min(len(getattr(own, name).weight), len(getattr(goal, name).weight))
        for name in ("position_embeddings", "token_type_embeddings")
    )
    words = torch.arange(len(own.word_embeddings.weight))[None]  # (1, V)
    limit = min(FITTED_POSITIONS, positions_in_both)
    positions, types = words % limit, words // limit % min(2, types_in_both)  # (1, V)
    narrow = own.layer_norm(
        own.word_embeddings(words) + own.position_embeddings(positions) + own.token_type_embeddings(types)
    )[0]  # (V, E)
    wanted = goal(words, types, positions)[0] @ directions.T  # (V, H)
    solution = _fit_linear(functional.pad(narrow, (0, 1), value=1.0), wanted, counts)  # (E + 1, H)
    assert isinstance(own.projection, nn.Linear)
    own.projection.weight.copy_(solution[:-1].T)
    own.projection.bias.copy_(solution[-1])


def _fit_linear(inputs: Tensor, wanted: Tensor, weights: Tensor) -> Tensor:
    """Returns the smallest X (I, O) for which `inputs` @ X is nearest to `wanted`, fp64, the same in each run.

    Rows out of a LayerNorm sum to 0, so `inputs` may lack a dimension. `torch.linalg.lstsq` decides by rounding
    whether it does, and gives other bits each time.

    Args:
        inputs: (N, I).
        wanted: (N, O).
        weights: (N,) of the squared errors.
    """
    inputs, wanted = inputs.double(), wanted.double()
    weighted = inputs * weights.double()[:, None]  # (N, I)
    return torch.linalg.pinv(weighted.T @ inputs, rtol=1e-9, hermitian=True) @ (weighted.T @ wanted)
