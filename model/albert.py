"""ALBERT whole: the encoder with its embeddings (`AlbertModel`) and the pre-training model
(`AlbertForPreTraining`).

Legend of the shapes: B rows, S positions in a row, P sequences (pairs) in a row, M predictions in a row, V
vocabulary, E embedding size, H hidden size.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.attention import AttentionLayout, QueryKeyValue
from model.attention_kernels import Case, choose_kernel
from model.config import AlbertConfig, Implementation
from model.embeddings import FactorisedEmbeddings
from model.encoder import SharedEncoder
from model.heads import (
    ClassificationSums,
    MaskedTokenHead,
    Pooler,
    SentenceHead,
    classification_sums,
    gather_positions,
)


class AlbertModelOutput(NamedTuple):
    """What the encoder gives."""

    last_hidden_state: Tensor
    """(B, S, H)"""

    pooled_output: Tensor | None
    """(B, P, H) where `cls_positions` were given, else (B, H) from each row's first position; None without a
    pooler."""

    hidden_states: tuple[Tensor, ...]
    """The first layer's input, then every layer's output: num_hidden_layers + 1 tensors (B, S, H)."""


class PreTrainingOutput(NamedTuple):
    """Logits, and sums over the labels that were given: the caller divides by the counts of its whole batch.

    The sums are fp32 scalars that stay on the device. A model without a sentence head has zeros for the
    sentence sums.
    """

    mlm_logits: Tensor
    """(B, M, V) at `masked_positions`, or (B, S, V) without them."""

    sentence_logits: Tensor | None = None
    """(B, P, 2) at `cls_positions`, or (B, 2) without them; None without a sentence head."""

    mlm_loss_sum: Tensor | None = None
    """Sum of the masked tokens' cross entropies, in nats."""

    mlm_correct: Tensor | None = None
    """Masked tokens whose label has the highest logit."""

    mlm_count: Tensor | None = None
    """Masked tokens."""

    sentence_loss_sum: Tensor | None = None
    """Sum of the sentence labels' cross entropies, in nats."""

    sentence_correct: Tensor | None = None
    """Pairs whose label has the highest logit."""

    sentence_count: Tensor | None = None
    """Pairs with a label."""


class AlbertModel(nn.Module):
    """Embeddings, shared encoder and, where there is a sentence head or `add_pooling_layer` asks for it, the
    pooler."""

    def __init__(
        self,
        config: AlbertConfig,
        implementation: Implementation | None = None,
        add_pooling_layer: bool | None = None,
    ) -> None:
        super().__init__()
        if add_pooling_layer is None:
            add_pooling_layer = config.sentence_head is not None
        self.config = config
        self.embeddings = FactorisedEmbeddings(config)
        implementation = implementation or Implementation()
        implementation.check(config)
        self.encoder = SharedEncoder(config, implementation)
        self._implementation = implementation
        self.pooler = Pooler(config) if add_pooling_layer else None
        initialise(self, config.initializer_range)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cls_positions: Tensor | None = None,
    ) -> AlbertModelOutput:
        """Encodes int64 `input_ids` (B, S); every optional tensor is (B, S) but `cls_positions` (B, P).

        Packed rows: `sequence_ids` numbers the sequences of a row (-1 on padding), which then cannot see each
        other, and `position_ids` restart with each. Else each row is one sequence whose padding
        `attention_mask` marks with 0. Raises ValueError for packed rows without `position_ids`, or with an
        `attention_mask`.
        """
        if sequence_ids is None:
            layout = AttentionLayout.for_padded_rows(attention_mask)
        elif position_ids is None:
            raise ValueError("packed rows (sequence_ids) need position_ids, which restart with each sequence")
        elif attention_mask is not None:
            raise ValueError("packed rows (sequence_ids) take no attention_mask; mark padding with sequence id -1")
        else:
            layout = self._packed_layout(sequence_ids, cls_positions)
        hidden = self.embeddings(input_ids, token_type_ids, position_ids)  # (B, S, H)
        states = self.encoder(hidden, layout)  # layers + 1 times (B, S, H)
        return AlbertModelOutput(states[-1], self._pool(states[-1], cls_positions), tuple(states))

    def _packed_layout(self, sequence_ids: Tensor, cls_positions: Tensor | None) -> AttentionLayout:
        # Each sequence has a [CLS]; padding counts as one more.
        most_in_a_row = None if cls_positions is None else cls_positions.shape[1] + 1
        case = Case(
            device=sequence_ids.device,
            dtype=self.embeddings.word_embeddings.weight.dtype,
            length=sequence_ids.shape[1],
            most_in_a_row=most_in_a_row,
            heads=self.config.num_attention_heads,
            width=self.config.hidden_size // self.config.num_attention_heads,
            dropout=self.config.attention_probs_dropout_prob if self.training else 0.0,
        )
        kernel = choose_kernel(self._implementation, case, sequence_ids)
        return AttentionLayout.for_packed_rows(sequence_ids, kernel, most_in_a_row)

    def _pool(self, hidden: Tensor, cls_positions: Tensor | None) -> Tensor | None:
        if self.pooler is None:
            return None
        if cls_positions is None:
            return self.pooler(hidden[:, 0])  # (B, H)
        return self.pooler(gather_positions(hidden, cls_positions))  # (B, P, H)


class AlbertForPreTraining(nn.Module):
    """ALBERT with the masked-token head and the sentence head that the configuration asks for."""

    def __init__(self, config: AlbertConfig, implementation: Implementation | None = None) -> None:
        super().__init__()
        self.config = config
        self.albert = AlbertModel(config, implementation)
        self.mlm_head = MaskedTokenHead(config)
        self.sentence_head = SentenceHead(config) if config.sentence_head is not None else None
        initialise(self.mlm_head, config.initializer_range)
        if self.sentence_head is not None:
            initialise(self.sentence_head, config.initializer_range)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        masked_positions: Tensor | None = None,
        masked_labels: Tensor | None = None,
        cls_positions: Tensor | None = None,
        sentence_labels: Tensor | None = None,
    ) -> PreTrainingOutput:
        """Logits, and the sums of the losses whose labels are given. All arguments int64; see
        `AlbertModel.forward` for the first five.

        masked_positions (B, M): the positions to predict, 0 where unused; None: all. masked_labels (B, M), or
        (B, S) without masked_positions: -100 where unused. cls_positions (B, P): each pair's [CLS], 0 where
        unused; None: position 0 of each row. sentence_labels (B, P), or (B,) without cls_positions: -100
        where unused. Raises ValueError for packed rows whose `cls_positions` a sentence head would need.
        """
        if sequence_ids is not None and cls_positions is None and self.sentence_head is not None:
            raise ValueError("packed rows (sequence_ids) need cls_positions, one [CLS] for each pair")
        encoded = self.albert(input_ids, token_type_ids, position_ids, sequence_ids, attention_mask, cls_positions)
        predicted = encoded.last_hidden_state  # (B, S, H)
        if masked_positions is not None:
            predicted = gather_positions(predicted, masked_positions)  # (B, M, H)
        mlm_logits = self.mlm_head(predicted, self.albert.embeddings.word_embeddings.weight)  # (B, M, V)
        sentence_logits = None
        if self.sentence_head is not None:
            sentence_logits = self.sentence_head(encoded.pooled_output)  # (B, P, 2)
        mlm_sums = classification_sums(mlm_logits, masked_labels) if masked_labels is not None else _NO_SUMS
        sentence_sums = _sentence_sums(sentence_logits, sentence_labels)
        return PreTrainingOutput(mlm_logits, sentence_logits, *mlm_sums, *sentence_sums)


_NO_SUMS = (None, None, None)


def _sentence_sums(logits: Tensor | None, labels: Tensor | None) -> ClassificationSums | tuple[None, None, None]:
    if labels is None:
        return _NO_SUMS
    if logits is None:
        zero = torch.zeros((), device=labels.device)
        return ClassificationSums(zero, zero, zero)
    return classification_sums(logits, labels)


def initialise(module: nn.Module, initializer_range: float) -> None:
    """Weights from a normal distribution cut at two standard deviations, biases 0, LayerNorm weights 1; in
    place.

    The cut is that of the paper's code (TensorFlow's truncated normal): what is left has 0.88 times
    `initializer_range` as its standard deviation.
    """
    for part in module.modules():
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)
        elif isinstance(part, (nn.Linear, nn.Embedding, QueryKeyValue)):
            for name, parameter in part.named_parameters(recurse=False):
                if name.endswith("weight"):
                    nn.init.trunc_normal_(
                        parameter, std=initializer_range, a=-2 * initializer_range, b=2 * initializer_range
                    )
                else:
                    nn.init.zeros_(parameter)
