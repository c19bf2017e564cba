"""The pre-training model: masked language modelling and the sentence head (sections 3.1 and 4.1).

Legend of the shapes: B rows, S positions in a row, P pairs in a row, M predictions in a row, H hidden_size,
V vocab_size.
"""

from typing import NamedTuple, Unpack

import torch
from torch import Tensor

from model.albert import EncoderInputs, ModelWithHead
from model.config import AlbertConfig, ExecutionOptions
from model.initialisation import apply_to_sentence_head
from model.layers.heads import ClassificationSums, MaskedTokenHead, SentenceHead, classification_sums, gather_positions


class PreTrainingOutput(NamedTuple):
    """Logits, and sums over the labels that were given.

    The sums are fp32 scalars on the device; the caller divides them by the counts of its whole batch. Without a
    sentence head the sentence sums are zeros.
    """

    mlm_logits: Tensor | None  # (B, M, V); (B, S, V) without `masked_positions`; None in training with `chunked_loss`
    sentence_logits: Tensor | None = None  # (B, P, 2), or (B, 2) without `cls_positions`; None without a sentence head
    mlm_loss_sum: Tensor | None = None  # () cross entropies of the masked tokens, in nats
    mlm_correct: Tensor | None = None  # () masked tokens whose label has the highest logit
    mlm_count: Tensor | None = None  # () masked tokens
    sentence_loss_sum: Tensor | None = None  # () cross entropies of the sentence labels, in nats
    sentence_correct: Tensor | None = None  # () pairs whose label has the highest logit
    sentence_count: Tensor | None = None  # () pairs with a label


class AlbertForPreTraining(ModelWithHead):
    """ALBERT with the masked-token head and the sentence head that the configuration asks for."""

    def __init__(self, config: AlbertConfig, execution: ExecutionOptions | None = None) -> None:
        super().__init__(config, execution)
        execution = execution or ExecutionOptions()
        self.mlm_head = MaskedTokenHead(config, execution)
        self._chunked_loss = execution.chunked_loss
        self.sentence_head = SentenceHead(config) if config.sentence_head is not None else None
        self.initialise_head()
        if self.sentence_head is not None:
            apply_to_sentence_head(self.sentence_head.classifier, config)

    def forward(
        self,
        input_ids: Tensor,
        *,
        masked_positions: Tensor | None = None,
        masked_labels: Tensor | None = None,
        sentence_labels: Tensor | None = None,
        **inputs: Unpack[EncoderInputs],
    ) -> PreTrainingOutput:
        """Computes the logits, and the sums of the losses whose labels are given.

        Args:
            input_ids: int64 (B, S).
            masked_positions: int64 (B, M), the positions to predict, 0 where unused. None: all positions.
            masked_labels: int64 (B, M), or (B, S) without `masked_positions`; -100 where unused.
            sentence_labels: int64 (B, P), or (B,) without `cls_positions`; -100 where unused.
            inputs: see `EncoderInputs`.

        Raises:
            ValueError: packed rows without `cls_positions` for the sentence head; or see `AlbertModel.forward`.
        """
        packed = inputs.get("sequence_ids") is not None
        if packed and inputs.get("cls_positions") is None and self.sentence_head is not None:
            raise ValueError("packed rows (sequence_ids) need cls_positions, one [CLS] for each pair")
        encoded = self.albert(input_ids, **inputs)
        hidden, pooled = encoded.last_hidden_state, encoded.pooled_output  # (B, S, H), (B, P, H)
        del encoded  # the states of the other layers: autograd keeps those that it needs
        return self.predict(hidden, pooled, masked_positions, masked_labels, sentence_labels)

    def predict(
        self,
        predicted: Tensor,
        pooled: Tensor | None,
        masked_positions: Tensor | None,
        masked_labels: Tensor | None,
        sentence_labels: Tensor | None,
    ) -> PreTrainingOutput:
        """Computes the output of `forward` from the last states (B, S, H) and the pooled ones (B, P, H)."""
        if masked_positions is not None:
            predicted = gather_positions(predicted, masked_positions)  # (B, M, H)
        mlm_logits, mlm_sums, sentence_logits = None, _NO_SUMS, None
        word_embeddings = self.albert.embeddings.word_embeddings.weight  # (V, E)
        if self._chunked_loss and self.training and masked_labels is not None:
            mlm_sums = self.mlm_head(predicted, word_embeddings, masked_labels)
        else:
            mlm_logits = self.mlm_head(predicted, word_embeddings)  # (B, M, V)
            if masked_labels is not None:
                mlm_sums = classification_sums(mlm_logits, masked_labels)
        if self.sentence_head is not None:
            sentence_logits = self.sentence_head(pooled)  # (B, P, 2)
        sentence_sums = _NO_SUMS
        if sentence_labels is not None and sentence_logits is not None:
            sentence_sums = classification_sums(sentence_logits, sentence_labels)
        elif sentence_labels is not None:
            sentence_sums = ClassificationSums(*torch.zeros(3, device=sentence_labels.device))  # () each
        return PreTrainingOutput(mlm_logits, sentence_logits, *mlm_sums, *sentence_sums)


_Sums = ClassificationSums | tuple[None, None, None]
_NO_SUMS: _Sums = (None, None, None)
