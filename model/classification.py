"""Fine-tuning models that classify: texts, regression, multiple choice (on the pooled [CLS]), and tokens.

The first three serve GLUE and RACE (section 4.2.2), the last one tagging.

Legend of the shapes: B rows, S positions in a row, P sequences in a row, C classes, N texts or questions, K options,
T labelled tokens, H hidden_size.
"""

from typing import NamedTuple, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.albert import EncoderInputs, ModelWithHead
from model.config import AlbertConfig, ExecutionOptions
from model.layers.heads import ClassificationSums, classification_sums
from model.layers.processor import Dropout


class ClassificationOutput(NamedTuple):
    """Logits, and sums over the labels that were given: fp32 scalars on the device.

    The caller divides the sums by the total of its whole batch.
    """

    logits: Tensor  # (N, C); (N, K) for multiple choice; (T, C) for tokens
    # () cross entropies, in nats (of each label if a text may have several); of a regression, squared errors
    loss_sum: Tensor | None = None
    correct: Tensor | None = None  # () labels that have the highest logit; 0 for a regression
    total: Tensor | None = None  # () labels


class _Classifier(ModelWithHead):
    """Dropout and a linear map on states of the encoder."""

    has_pooler = True

    def __init__(self, config: AlbertConfig, num_labels: int, execution: ExecutionOptions | None = None) -> None:
        super().__init__(config, execution, add_pooling_layer=self.has_pooler)
        self.dropout = Dropout(config.classifier_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, num_labels)
        self.initialise_head()


class _PooledClassifier(_Classifier):
    """Classifies the pooled [CLS] of some sequences. Subclasses turn the outputs into logits."""

    def forward(
        self,
        input_ids: Tensor,
        *,
        sequences: Tensor | None = None,
        labels: Tensor | None = None,
        **inputs: Unpack[EncoderInputs],
    ) -> ClassificationOutput:
        """Computes the logits and, given labels, their sums.

        Args:
            input_ids: int64 (B, S).
            sequences: int64, the index of each text, row * P + place in the row (the row alone without
                `cls_positions`). Classification: (N,); None takes all texts in this order. Multiple choice: (N, K);
                None takes all texts as the options of one question.
            labels: (N,), int64 classes or options, -100 where unused; or floats for a regression, NaN where unused; or
                (N, C), floats of 0 and 1 if a text has any number of labels, NaN where unused.
            inputs: see `EncoderInputs`, and for errors `AlbertModel.forward`.
        """
        pooled = self.albert(input_ids, **inputs).pooled_output  # (B, P, H)
        texts = pooled.flatten(0, -2)  # (B * P, H)
        if sequences is not None:
            texts = texts[sequences]  # (N, H), or (N, K, H)
        logits = self._logits(self.classifier(self.dropout(texts)))  # (N, C), or (N, K)
        if labels is None:
            return ClassificationOutput(logits)
        sums = classification_sums
        if labels.is_floating_point():
            sums = regression_sums if labels.dim() == 1 else multi_label_sums
        return ClassificationOutput(logits, *sums(logits, labels))

    def _logits(self, outputs: Tensor) -> Tensor:
        return outputs


class AlbertForSequenceClassification(_PooledClassifier):
    """Classifies a text or pair into `num_labels` classes; with `num_labels` 1 it predicts a number (regression)."""


class AlbertForMultipleChoice(_PooledClassifier):
    """Gives one logit to each option of a question; the softmax goes over the options (RACE)."""

    def __init__(self, config: AlbertConfig, execution: ExecutionOptions | None = None) -> None:
        super().__init__(config, 1, execution)

    def _logits(self, outputs: Tensor) -> Tensor:
        logits = outputs.squeeze(-1)  # (N, K), or (K,) of the only question
        return logits if logits.dim() > 1 else logits[None]  # (N, K)


class AlbertForTokenClassification(_Classifier):
    """Classifies tokens into `num_labels` classes by dropout and a linear map on their hidden states."""

    has_pooler = False

    def forward(
        self,
        input_ids: Tensor,
        *,
        token_positions: Tensor | None = None,
        labels: Tensor | None = None,
        **inputs: Unpack[EncoderInputs],
    ) -> ClassificationOutput:
        """Computes the logits and, given labels, their sums.

        Args:
            input_ids: int64 (B, S).
            token_positions: int64 (T,), the flat positions (row * S + position) of the tokens to classify. None: all
                positions, T = B * S.
            labels: int64 (T,), -100 where unused.
            inputs: see `EncoderInputs`, and for errors `AlbertModel.forward`.
        """
        hidden = self.albert(input_ids, **inputs).last_hidden_state.flatten(0, 1)  # (B * S, H)
        if token_positions is not None:
            hidden = hidden[token_positions]  # (T, H)
        logits = self.classifier(self.dropout(hidden))  # (T, C)
        if labels is None:
            return ClassificationOutput(logits)
        return ClassificationOutput(logits, *classification_sums(logits, labels))


def regression_sums(logits: Tensor, labels: Tensor) -> ClassificationSums:
    """Squared errors of logits (..., 1) against float labels (...), NaN where ignored, as fp32 sums; hits are 0."""
    counted = ~labels.isnan()  # (...)
    errors = torch.where(counted, logits.squeeze(-1).float() - labels, 0.0)  # (...)
    zero = torch.zeros((), device=logits.device)  # ()
    return ClassificationSums(errors.square().sum(), zero, counted.sum(dtype=torch.float32))


def multi_label_sums(logits: Tensor, labels: Tensor) -> ClassificationSums:
    """Cross entropy of each label, hits and count of logits (N, C) against labels (N, C) of 0 and 1, NaN where ignored.

    Fp32 sums.
    """
    counted = ~labels.isnan()  # (N, C)
    losses = functional.binary_cross_entropy_with_logits(
        logits.float(), labels.nan_to_num(), reduction="none"
    )  # (N, C)
    hits = counted & ((logits > 0) == (labels > 0.5))  # (N, C)
    loss = torch.where(counted, losses, 0.0).sum()
    return ClassificationSums(loss, hits.sum(dtype=torch.float32), counted.sum(dtype=torch.float32))
