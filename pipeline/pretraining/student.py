"""The student of a teacher: its architecture, and its initial weights.

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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from common.errors import UserError
from model import AlbertConfig, AlbertForPreTraining, AlbertModel
from model.config import ExecutionOptions
from model.distillation import PARTS, AlbertForDistillation, principal_directions, taught_layers
from pipeline.checkpoint.initial_weights import InitialWeights, read_initial_weights

EMBEDDING_SIZE = 128
FITTED_POSITIONS = 64
"""The positions of the words to which the projection of the embeddings is fitted."""


@dataclass(frozen=True)
class Teacher:
    """The teacher of a run.

    Attributes:
        directory: that the command line names.
        weights: its weights.
        digest: of the weights.
        loss: the weight of each part, see `parse_parts`.
    """

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
        (count, width), (given, wide) = (
            (one.num_attention_heads, one.head_dim) for one in (student, self.weights.config)
        )
        if "attention" in self.loss and (count, width) != (given, wide):
            raise UserError(
                f"--teacher-loss attention compares heads, but the teacher has {given} of {wide} units and the student "
                f"{count} of {width}; leave that part out (--teacher-loss states=1 layers=0.5 pooled=1 similarity=5), "
                "or give both the same heads"
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


@torch.no_grad()
def start_as_teacher(model: AlbertForPreTraining, teacher: Teacher, counts: Tensor) -> None:
    """Gives `model` initial weights that follow from those of the teacher. What does not fit its sizes stays random.

    Args:
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
    """Sets the embeddings of the student.

    Args:
        counts: (V,) the weight of each word in the fits, above 0.
    """
    own, goal, project = student.embeddings, teacher.embeddings, student.embeddings.projection
    is_factorised = isinstance(project, nn.Linear)
    width = own.word_embeddings.embedding_dim  # E
    axes = principal_directions(teacher, width, counts) if is_factorised else directions  # (E, H')
    counts_in_both = []
    for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        table, source = getattr(own, name).weight, getattr(goal, name).weight
        count = min(len(table), len(source))
        counts_in_both.append(count)
        table[:count] = goal.projection(source[:count]) @ axes.T  # (count, E)
    if not is_factorised and len(axes) == axes.shape[1]:
        own.layer_norm.load_state_dict(goal.layer_norm.state_dict())
    if isinstance(project, nn.Linear):
        # The student normalises vectors of width E, the teacher of width H'. So the projection is fitted to what both
        # make of each word at some position.
        words = torch.arange(len(own.word_embeddings.weight))[None]  # (1, V)
        limit = min(FITTED_POSITIONS, counts_in_both[1])
        positions, types = words % limit, words // limit % min(2, counts_in_both[2])  # (1, V)
        narrow = own.layer_norm(
            own.word_embeddings(words) + own.position_embeddings(positions) + own.token_type_embeddings(types)
        )[0]  # (V, E)
        wanted = goal(words, types, positions)[0] @ directions.T  # (V, H)
        solution = _fit_linear(functional.pad(narrow, (0, 1), value=1.0), wanted, counts)  # (E + 1, H)
        project.weight.copy_(solution[:-1].T)
        project.bias.copy_(solution[-1])


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
