"""Distillation: a model learns the states of a trained one, the teacher, on the same tokens.

The teacher's weights are no parameters of the model: checkpoints, ZeRO and exports have those of the student only.
Every loss is a sum over the tokens, the sequences or the pairs of sequences of a row, so that it does not depend on how
a batch is divided. If the teacher is wider, its states are projected onto `principal_directions`.

Legend of the shapes: B rows, S positions in a row, P sequences in a row, H hidden_size, H' that of the teacher,
R relation heads.
"""

from typing import NamedTuple, Unpack

import torch
from torch import Tensor
from torch.nn import functional

from model.albert import AlbertModel, AlbertModelOutput, EncoderInputs
from model.config import AlbertConfig, ExecutionOptions
from model.layers.heads import gather_positions
from model.layers.processor import linear
from model.pretraining import AlbertForPreTraining, PreTrainingOutput


class DistillationSums(NamedTuple):
    """Sums of the distances between the student and the teacher: fp32 scalars on the device.

    A part that is not asked for is 0.
    """

    states: Tensor
    """1 - cosine of the last states, over the tokens."""

    layers: Tensor
    """1 - cosine of the states after each layer, a mean over the layers, over the tokens. The teacher's layers are
    taken evenly."""

    cls: Tensor
    """1 - cosine of the last state of [CLS], over the sequences."""

    pooled: Tensor
    """1 - cosine of the mean of the last states, over the sequences."""

    similarity: Tensor
    """Squared difference of the cosines of the mean states of two sequences in a row, over all such pairs."""

    relations: Tensor
    """Kullback-Leibler divergence of the relations of queries, of keys and of values in the last layer, in nats, a mean
    over the three and over the heads, over the tokens (MiniLMv2, arXiv 2012.15828)."""


PARTS = DistillationSums._fields


class AlbertForDistillation(AlbertForPreTraining):
    """`AlbertForPreTraining` that also computes how far its states are from those of a teacher.

    Args:
        teacher: has the same vocabulary. It is moved to the device and the dtype of the model.
        parts: the distances to compute, of `PARTS`.
        uses_heads: whether a loss of the heads counts; False leaves their logits and losses 0 in training.
    """

    def __init__(
        self,
        config: AlbertConfig,
        execution: ExecutionOptions | None,
        teacher: AlbertModel,
        parts: frozenset[str],
        uses_heads: bool,
    ) -> None:
        super().__init__(config, execution)
        self._teacher = (teacher.eval().requires_grad_(False),)  # in a tuple, torch does not see a module of this one
        self._parts, self._uses_heads = parts, uses_heads
        self._directions = None
        if teacher.config.hidden_size != config.hidden_size:
            self._directions = principal_directions(teacher, config.hidden_size)

    def forward(
        self,
        input_ids: Tensor,
        *,
        masked_positions: Tensor | None = None,
        masked_labels: Tensor | None = None,
        sentence_labels: Tensor | None = None,
        **inputs: Unpack[EncoderInputs],
    ) -> PreTrainingOutput:
        """Computes the output of `AlbertForPreTraining`, and the sums of the distances. The rows are packed."""
        encoded = self.albert(input_ids, **inputs)
        (teacher,) = self._teacher
        teacher.to(input_ids.device, encoded.last_hidden_state.dtype)
        with torch.no_grad():
            taught = teacher(input_ids, **inputs)
        sums = self._distances(encoded, taught, teacher, inputs["sequence_ids"], inputs["cls_positions"])
        if self._uses_heads:
            last, pooled = encoded.last_hidden_state, encoded.pooled_output
            output = self.predict(last, pooled, masked_positions, masked_labels, sentence_labels)
        else:
            output = self._without_heads(sums.states)
        return output._replace(distillation=sums)

    def _without_heads(self, zero: Tensor) -> PreTrainingOutput:
        """An output without logits. Its MLM loss is 0 and gives the heads a gradient of 0, which ZeRO wants.

        Args:
            zero: any scalar () on the device.
        """
        unused = [*self.mlm_head.parameters()]
        for module in (self.sentence_head, self.albert.pooler):
            unused += [] if module is None else module.parameters()
        none = torch.zeros_like(zero)  # ()
        nothing = torch.stack([0.0 * parameter.float().sum() for parameter in unused]).sum()  # ()
        return PreTrainingOutput(none, None, nothing, none, none, none, none, none)

    def _distances(
        self,
        student: AlbertModelOutput,
        taught: AlbertModelOutput,
        teacher: AlbertModel,
        sequence_ids: Tensor | None,
        cls_positions: Tensor | None,
    ) -> DistillationSums:
        assert sequence_ids is not None, "the rows are packed"
        assert cls_positions is not None, "the rows are packed"
        parts, own, goal = self._parts, student.last_hidden_state, self._project(taught.last_hidden_state)  # (B, S, H)
        is_token = sequence_ids >= 0  # (B, S)
        zero = torch.zeros((), device=own.device)  # ()
        sums = dict.fromkeys(PARTS, zero)
        members = sequence_members(sequence_ids, cls_positions.shape[1])  # (B, P, S)
        is_sequence = members.any(-1)  # (B, P)
        if "states" in parts:
            sums["states"] = _distance(own, goal, is_token)
        if "layers" in parts:
            sums["layers"] = self._layer_distance(student.hidden_states, taught.hidden_states, is_token)
        if "cls" in parts:
            sums["cls"] = _distance(
                gather_positions(own, cls_positions), gather_positions(goal, cls_positions), is_sequence
            )
        if {"pooled", "similarity"} & parts:
            mean, wanted = mean_states(own, members), mean_states(goal, members)  # (B, P, H)
            if "pooled" in parts:
                sums["pooled"] = _distance(mean, wanted, is_sequence)
            if "similarity" in parts:
                # With all of the teacher's width: a projection changes cosines.
                full = wanted if self._directions is None else mean_states(taught.last_hidden_state, members)
                error = (_cosines(mean) - _cosines(full)).square().triu(1)  # (B, P, P)
                sums["similarity"] = 2.0 * (error * is_sequence[:, :, None] * is_sequence[:, None, :]).sum()
        if "relations" in parts:
            sums["relations"] = self._relation_distance(student, taught, teacher, sequence_ids)
        return DistillationSums(**sums)

    def _project(self, hidden: Tensor) -> Tensor:
        """The teacher's states (B, S, H') at the width of the student, (B, S, H)."""
        if self._directions is None:
            return hidden
        self._directions = self._directions.to(hidden)
        return hidden @ self._directions.T

    def _layer_distance(self, own: tuple[Tensor, ...], taught: tuple[Tensor, ...], is_token: Tensor) -> Tensor:
        layers = len(own) - 1
        distances = [
            _distance(own[layer], self._project(taught[round(layer * (len(taught) - 1) / layers)]), is_token)
            for layer in range(1, layers + 1)
        ]
        return torch.stack(distances).mean()

    def _relation_distance(
        self, student: AlbertModelOutput, taught: AlbertModelOutput, teacher: AlbertModel, sequence_ids: Tensor
    ) -> Tensor:
        heads = self.config.num_attention_heads  # R
        same = (sequence_ids[:, :, None] == sequence_ids[:, None, :])[:, None, None]  # (B, 1, 1, S, S)
        own = _relations(self.albert, student.hidden_states[-2], heads, same)  # (B, 3, R, S, S), log
        with torch.no_grad():
            goal = _relations(teacher, taught.hidden_states[-2], heads, same)  # (B, 3, R, S, S), log
        divergence = goal.exp() * (goal - own).masked_fill(~same, 0.0)  # (B, 3, R, S, S)
        per_token = divergence.sum(-1).mean((1, 2))  # (B, S)
        return (per_token * (sequence_ids >= 0)).sum()


def sequence_members(sequence_ids: Tensor, sequences: int) -> Tensor:
    """Returns bool (B, P, S): whether a token belongs to a sequence, of int64 `sequence_ids` (B, S), -1 on padding."""
    return sequence_ids[:, None, :] == torch.arange(sequences, device=sequence_ids.device)[None, :, None]


def mean_states(hidden: Tensor, members: Tensor) -> Tensor:
    """Returns the mean state of each sequence, fp32 (B, P, H), of (B, S, H) and `sequence_members`; 0 of an empty one.

    [CLS] and [SEP] count as tokens.
    """
    counts = members.sum(-1, keepdim=True).clamp(min=1)  # (B, P, 1)
    return members.float() @ hidden.float() / counts


def principal_directions(teacher: AlbertModel, width: int, counts: Tensor | None = None) -> Tensor:
    """Returns orthonormal directions (width, H') in which the teacher's word embeddings are largest, largest first.

    Each rank computes them for itself. So the work is in fp64, a direction's largest element is positive, and where the
    embeddings are 0 (those of an ALBERT fill E + 1 of H' dimensions at most) the first axes come first.

    Args:
        counts: (V,) how much each word counts; None: all alike.
    """
    embeddings = teacher.embeddings
    words = embeddings.projection(embeddings.word_embeddings.weight).detach().double()  # (V, H')
    weighted = words if counts is None else words * counts.double()[:, None]  # (V, H')
    gram = words.T @ weighted  # (H', H')
    order = torch.linspace(1.0, 0.0, len(gram), dtype=gram.dtype)  # (H',)
    _, vectors = torch.linalg.eigh(gram + torch.diag(order * gram.diagonal().amax() * 1e-9))  # (H', H'), smallest first
    directions = vectors.flip(1).T[:width]  # (min(width, H'), H')
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))  # (min(width, H'), 1)
    return functional.pad((directions * largest.sign()).float(), (0, 0, 0, max(0, width - len(directions))))


def _distance(own: Tensor, goal: Tensor, counted: Tensor) -> Tensor:
    """Returns the sum of 1 - cosine of (..., H) and (..., H) where `counted` (...), a scalar ().

    It is half the squared difference of the unit vectors: 1 - cosine would lose its digits where they are alike.
    """
    difference = functional.normalize(own.float(), dim=-1) - functional.normalize(goal.float(), dim=-1)  # (..., H)
    return (0.5 * difference.square().sum(-1) * counted).sum()


def _cosines(vectors: Tensor) -> Tensor:
    """Returns the cosines (B, P, P) of vectors (B, P, H)."""
    unit = functional.normalize(vectors, dim=-1)  # (B, P, H)
    return unit @ unit.mT


def _relations(model: AlbertModel, hidden: Tensor, heads: int, same: Tensor) -> Tensor:
    """Returns the logarithms (B, 3, R, S, S) of softmax(x x^T / sqrt(D)) of queries, keys and values x.

    Args:
        hidden: (B, S, H), the input of the last layer.
        same: bool (B, 1, 1, S, S), whether two tokens belong to one sequence.
    """
    attention = model.encoder.attention[model.encoder.indices[-1][0]]
    weight, bias, *_ = attention.get_submodule("query_key_value")()
    projected = linear(hidden, weight, bias).unflatten(-1, (3, heads, -1))  # (B, S, 3, R, D)
    vectors = projected.permute(0, 2, 3, 1, 4)  # (B, 3, R, S, D)
    scores = vectors @ (vectors * vectors.shape[-1] ** -0.5).mT  # (B, 3, R, S, S)
    return scores.float().masked_fill(~same, -1e4).log_softmax(-1)
