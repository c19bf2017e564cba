"""Fine-tuning heads on the pooled [CLS]: one text or pair into classes or onto a scale, and the choice among options.

Legend of the shapes: B rows, S positions in a row, P sequences in a row, C classes, N texts or questions, K options.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from model.albert import AlbertModel, initialise
from model.config import AlbertConfig, Implementation
from model.heads import IGNORED_LABEL, ClassificationSums, classification_sums


class ClassificationOutput(NamedTuple):
    """Logits, and sums over the labels that were given: the caller divides by the total of its whole batch.

    The sums are fp32 scalars that stay on the device.
    """

    logits: Tensor
    """(N, C), or (N, K) of a choice."""

    loss_sum: Tensor | None = None
    """Sum of the cross entropies, in nats, or of the squared errors."""

    correct: Tensor | None = None
    """Labels that have the highest logit; 0 for a regression."""

    total: Tensor | None = None
    """Labels."""


class AlbertForSequenceClassification(nn.Module):
    """`num_labels` classes or, where that is 1, a number: a linear map of the pooled [CLS] after dropout."""

    def __init__(self, config: AlbertConfig, num_labels: int, implementation: Implementation | None = None) -> None:
        super().__init__()
        self.config = config
        self.num_labels = num_labels
        self.albert = AlbertModel(config, implementation, add_pooling_layer=True)
        self.dropout = nn.Dropout(config.classifier_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, num_labels)
        initialise(self.classifier, config.initializer_range)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cls_positions: Tensor | None = None,
        sequences: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> ClassificationOutput:
        """Logits (N, C) and, given `labels`, their sums. See `AlbertModel.forward` for the first six.

        sequences: int64 (N,), which sequence each text is, counted as row * P + place in the row (by row alone without
        cls_positions). None: all of them, in this order. labels (N,): int64 classes, or floats for a regression; -100
        where unused.
        """
        pooled = self.albert(
            input_ids, token_type_ids, position_ids, sequence_ids, attention_mask, cls_positions
        ).pooled_output  # (B, P, H)
        logits = self.classifier(self.dropout(_chosen(pooled, sequences)))  # (N, C)
        if labels is None:
            return ClassificationOutput(logits)
        sums = classification_sums if self.num_labels > 1 else regression_sums
        return ClassificationOutput(logits, *sums(logits, labels))


class AlbertForMultipleChoice(nn.Module):
    """One logit for each option, a linear map of its pooled [CLS] after dropout; softmax over a question's options."""

    def __init__(self, config: AlbertConfig, implementation: Implementation | None = None) -> None:
        super().__init__()
        self.config = config
        self.albert = AlbertModel(config, implementation, add_pooling_layer=True)
        self.dropout = nn.Dropout(config.classifier_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, 1)
        initialise(self.classifier, config.initializer_range)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cls_positions: Tensor | None = None,
        sequences: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> ClassificationOutput:
        """Logits (N, K) and, given `labels` (N,), their sums. See `AlbertModel.forward` for the first six.

        sequences: int64 (N, K), which sequence each option is, counted as row * P + place in the row (by row alone
        without cls_positions). None: all are the options of one question.
        """
        pooled = self.albert(
            input_ids, token_type_ids, position_ids, sequence_ids, attention_mask, cls_positions
        ).pooled_output  # (B, P, H)
        options = _chosen(pooled, sequences)  # (N, K, H)
        logits = self.classifier(self.dropout(options)).squeeze(-1)  # (N, K)
        logits = logits[None] if sequences is None else logits
        if labels is None:
            return ClassificationOutput(logits)
        return ClassificationOutput(logits, *classification_sums(logits, labels))


def _chosen(pooled: Tensor, sequences: Tensor | None) -> Tensor:
    """The rows of `pooled`, flattened to (sequences, H), that `sequences` (...) names: (..., H)."""
    flat = pooled.flatten(0, -2)
    return flat if sequences is None else flat[sequences]


def regression_sums(logits: Tensor, labels: Tensor) -> ClassificationSums:
    """Squared errors of logits (..., 1) against float labels (...), -100 where ignored; nothing is a hit."""
    counted = labels != IGNORED_LABEL  # (...)
    errors = torch.where(counted, logits.squeeze(-1).float() - labels, 0.0)  # (...)
    zero = torch.zeros((), device=logits.device)
    return ClassificationSums(errors.square().sum(), zero, counted.sum(dtype=torch.float32))
