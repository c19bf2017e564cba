"""Distillation: a model learns the states of a trained one, the teacher, on the same tokens.

The teacher's weights are no parameters of the model: checkpoints, ZeRO and exports have those of the student only.
Every loss is a sum over the tokens, the sequences or the pairs of sequences of a row, so that it does not depend on how
a batch is divided. If the teacher is wider, its states are projected onto `principal_directions`.

Legend of the shapes: B rows, S positions in a row, P sequences in a row, H hidden_size, H' that of the teacher.
"""

from typing import NamedTuple, Unpack

import torch
from torch import Tensor
from torch.nn import functional

from model.albert import AlbertModel, AlbertModelOutput, EncoderInputs
from model.config import AlbertConfig, ExecutionOptions
from model.pretraining import AlbertForPreTraining, PreTrainingOutput


class DistillationSums(NamedTuple):
    """Sums of the distances between the student and the teacher: fp32 scalars on the device.

    A part that is not asked for is 0.
    """

    # over the tokens
    states: Tensor  # 1 - cosine of the last states
    layers: Tensor  # 1 - cosine of the states after each layer, a mean over the layers; the teacher's, taken evenly
    attention: Tensor  # 1 - cosine of what each head reads, a mean over heads and these layers; both have equal heads
    # over the sequences, and over the pairs of two in a row
    pooled: Tensor  # 1 - cosine of the mean of the last states
    similarity: Tensor  # squared difference of the cosines of the two mean states


PARTS = DistillationSums._fields


class DistillationOutput(NamedTuple):
    """What a student returns."""

    heads: PreTrainingOutput
    distances: DistillationSums


class AlbertForDistillation(AlbertForPreTraining):
    """`AlbertForPreTraining` that also computes how far its states are from those of a teacher.

    Args:
        teacher: has the same vocabulary. It is moved to the device and the dtype of the model.
        parts: the distances to compute, of `PARTS`; "attention" only if both have heads of one number and width.
    """

    def __init__(
        self, config: AlbertConfig, execution: ExecutionOptions | None, teacher: AlbertModel, parts: frozenset[str]
    ) -> None:
        super().__init__(config, execution)
        self._teacher = (teacher.eval().requires_grad_(False),)  # in a tuple, torch does not see a module of this one
        self._parts = parts
        is_narrower = teacher.config.hidden_size != config.hidden_size
        self._directions = principal_directions(teacher, config.hidden_size) if is_narrower else None

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,
        *,
        masked_positions: Tensor | None = None,
        masked_labels: Tensor | None = None,
        sentence_labels: Tensor | None = None,
        **inputs: Unpack[EncoderInputs],
    ) -> DistillationOutput:
        """Computes the output of `AlbertForPreTraining`, and the sums of the distances. The rows are packed."""
        keep_contexts = "attention" in self._parts
        encoded = self.albert(input_ids, keep_contexts=keep_contexts, **inputs)
        (teacher,) = self._teacher
        teacher.to(device=input_ids.device, dtype=encoded.last_hidden_state.dtype)
        with torch.no_grad():
            taught = teacher(input_ids, keep_contexts=keep_contexts, **inputs)
        assert inputs["cls_positions"] is not None, "the rows are packed"
        members = sequence_members(inputs["sequence_ids"], inputs["cls_positions"].shape[1])  # (B, P, S)
        heads = self.predict(
            encoded.last_hidden_state, encoded.pooled_output, masked_positions, masked_labels, sentence_labels
        )
        return DistillationOutput(heads, self._distances(encoded, taught, members))

    def _distances(self, encoded: AlbertModelOutput, taught: AlbertModelOutput, members: Tensor) -> DistillationSums:
        """Those of what student and teacher computed, for sequences of `sequence_members`."""
        states, goals = encoded.hidden_states, taught.hidden_states  # (B, S, H) and (B, S, H') each
        own, goal = states[-1], self._project(goals[-1])  # (B, S, H)
        # The layer of the teacher for each of the student's.
        chosen = taught_layers(len(states) - 1, len(goals) - 1)
        is_token, is_sequence = members.any(1), members.any(-1)  # (B, S) and (B, P)
        sums = dict.fromkeys(PARTS, torch.zeros((), device=own.device))  # () each
        if "states" in self._parts:
            sums["states"] = _distance(own, goal, is_token)
        if "layers" in self._parts:
            wanted_states = [self._project(goals[layer]) for layer in chosen]  # (B, S, H) each
            sums["layers"] = torch.stack([_distance(*pair, is_token) for pair in zip(states[1:], wanted_states)]).mean()
        if "attention" in self._parts:
            heads = self.config.num_attention_heads
            read = [context.unflatten(-1, (heads, -1)) for context in encoded.contexts]  # (B, S, heads, D) each
            wanted_read = [taught.contexts[layer - 1].unflatten(-1, (heads, -1)) for layer in chosen]
            of_layers = [_distance(*pair, is_token[..., None]) for pair in zip(read, wanted_read)]  # () each
            sums["attention"] = torch.stack(of_layers).mean() / heads
        if {"pooled", "similarity"} & self._parts:
            mean, wanted = mean_states(own, members), mean_states(goal, members)  # (B, P, H)
            if "pooled" in self._parts:
                sums["pooled"] = _distance(mean, wanted, is_sequence)
            if "similarity" in self._parts:
                # With all of the teacher's width: a projection changes cosines.
                full = wanted if self._directions is None else mean_states(goals[-1], members)
                error = (_cosines(mean) - _cosines(full)).square().triu(1)  # (B, P, P)
                sums["similarity"] = 2.0 * (error * is_sequence[:, :, None] * is_sequence[:, None, :]).sum()
        return DistillationSums(**sums)

    def _project(self, hidden: Tensor) -> Tensor:
        """The teacher's states (B, S, H') at the width of the student, (B, S, H)."""
        if self._directions is None:
            return hidden
        self._directions = self._directions.to(hidden)
        return hidden @ self._directions.T


def taught_layers(layers: int, of_teacher: int) -> list[int]:
    """The layer of a teacher, from 1, that each of the student's layers learns: taken evenly, the last one last."""
    return [-(-layer * of_teacher // layers) for layer in range(1, layers + 1)]


def sequence_members(sequence_ids: Tensor | None, sequences: int) -> Tensor:
    """Returns bool (B, P, S): whether a token belongs to a sequence, of int64 `sequence_ids` (B, S), -1 on padding."""
    assert sequence_ids is not None, "the rows are packed"
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
