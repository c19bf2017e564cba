"""Fine-tuning models that find the answer to a question in a passage (SQuAD, section 4.2.2).

`AlbertForQuestionAnswering` predicts start and end independently (SQuAD 1.1). `AlbertForConditionedQuestionAnswering`
predicts the end given the start, and whether there is an answer (SQuAD 2.0).

A window is [CLS] question [SEP] passage [SEP]. A row may hold several windows; `window_positions` says where they are.

Legend of the shapes: B rows, S positions in a row, N windows, L positions in the longest window, T tokens of a beam,
H hidden_size.
"""

from abc import ABC, abstractmethod
from functools import partial
from typing import NamedTuple, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.albert import EncoderInputs, ModelWithHead
from model.config import IGNORED_LABEL, AlbertConfig, ExecutionOptions
from model.layers.processor import Dropout, LayerNorm

START_BEAM = 5  # number of starts for which a conditioned model computes the ends, when no positions are given


class SpanOutput(NamedTuple):
    """Logits of each window's tokens as start and end, and sums over the windows whose positions were given."""

    start_logits: Tensor  # (N, L) fp32, -inf where no answer may start
    # (N, L) fp32, -inf where no answer may end; from a conditioned model without positions (N, T, L), for each start
    end_logits: Tensor
    loss_sum: Tensor | None = None  # () fp32, the windows' losses, in nats
    correct: Tensor | None = None  # () fp32, windows whose start and end both have the highest logits
    total: Tensor | None = None  # () fp32, windows
    start_beam: Tensor | None = None  # int64 (N, T), the most probable starts; of a conditioned model without positions
    null_logits: Tensor | None = None  # (N,) fp32, log-odds that the window holds no answer; of a conditioned model


class _SpanModel(ModelWithHead, ABC):
    """Encodes rows without a pooler and cuts them into windows. Subclasses predict the spans (`_find`)."""

    def forward(
        self,
        input_ids: Tensor,
        *,
        window_positions: Tensor | None = None,
        allowed: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        **inputs: Unpack[EncoderInputs],
    ) -> SpanOutput:
        """Computes the logits and, given both positions, the sums.

        Args:
            input_ids: int64 (B, S).
            window_positions: int64 (N, L), flat positions (row * S + position) of each window's tokens, -1 behind
                its end. None: each row is a window.
            allowed: (N, L), not 0 where an answer may start or end. None: everywhere.
            start_positions, end_positions: int64 (N,), first and last token of the answer, counted in the window;
                0 (that of [CLS]) where it holds no answer.
            inputs: see `EncoderInputs`, and for errors `AlbertModel.forward`.
        """
        windows = self.albert(input_ids, **inputs).last_hidden_state  # (B, S, H)
        if window_positions is not None:
            windows = windows.flatten(0, 1)[window_positions.clamp(min=0)]  # (N, L, H), of position 0 behind an end
        scored = start_positions is not None and end_positions is not None
        logits = self._find(windows, allowed, start_positions if scored else None)
        if start_positions is None or end_positions is None:
            return logits
        start, end = logits.start_logits, logits.end_logits  # (N, L) each
        cross_entropy = partial(functional.cross_entropy, ignore_index=IGNORED_LABEL, reduction="none")
        losses = 0.5 * (cross_entropy(start, start_positions) + cross_entropy(end, end_positions))  # (N,)
        if logits.null_logits is not None:
            impossible = (start_positions == 0).float()  # (N,)
            losses = losses + 0.5 * functional.binary_cross_entropy_with_logits(
                logits.null_logits, impossible, reduction="none"
            )  # (N,)
        hits = (start.argmax(-1) == start_positions) & (end.argmax(-1) == end_positions)  # (N,)
        total = (start_positions != IGNORED_LABEL).sum(dtype=torch.float32)  # ()
        return logits._replace(loss_sum=losses.sum(), correct=hits.sum(dtype=torch.float32), total=total)

    @abstractmethod
    def _find(self, windows: Tensor, allowed: Tensor | None, start_positions: Tensor | None) -> SpanOutput:
        """The logits of `windows` (N, L, H), without sums. `start_positions` (N,) are the true ones, if given."""


class AlbertForQuestionAnswering(_SpanModel):
    """Predicts start and end by two independent linear maps of every token (SQuAD 1.1)."""

    def __init__(self, config: AlbertConfig, execution: ExecutionOptions | None = None) -> None:
        super().__init__(config, execution, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.initialise_head()

    def _find(self, windows: Tensor, allowed: Tensor | None, start_positions: Tensor | None) -> SpanOutput:
        logits = self.qa_outputs(windows).float().movedim(-1, 0)  # (2, N, L)
        start, end = _where_allowed(logits, allowed)  # (N, L) each
        return SpanOutput(start, end)


class AlbertForConditionedQuestionAnswering(_SpanModel):
    """Predicts the end given the start, and whether there is an answer (the paper's SQuAD 2.0 model).

    In training the end is conditioned on the true start, else on each start of a beam of `START_BEAM`. The answerable
    logit reads [CLS] and the mean of the tokens, weighted by their probability of being the start. A window whose
    start position is 0, that of [CLS], holds no answer.
    """

    def __init__(self, config: AlbertConfig, execution: ExecutionOptions | None = None) -> None:
        super().__init__(config, execution, add_pooling_layer=False)
        hidden_size = config.hidden_size
        self.start = nn.Linear(hidden_size, 1)
        # Two halves of one matrix over [token, start]: each half is applied once, instead of once for every pair.
        self.end_of_token = nn.Linear(hidden_size, hidden_size)
        self.end_of_start = nn.Linear(hidden_size, hidden_size, bias=False)
        self.end_layer_norm = LayerNorm(hidden_size, eps=config.layer_norm_eps)
        self.end = nn.Linear(hidden_size, 1)
        self.verdict_dense = nn.Linear(2 * hidden_size, hidden_size)
        self.verdict_dropout = Dropout(config.classifier_dropout_prob)
        self.verdict = nn.Linear(hidden_size, 1, bias=False)
        self.initialise_head()

    def _find(self, windows: Tensor, allowed: Tensor | None, start_positions: Tensor | None) -> SpanOutput:
        start = _where_allowed(self.start(windows).squeeze(-1).float(), allowed)  # (N, L)
        null = self._null_logits(windows, start)  # (N,)
        if start_positions is not None:
            end = self._end_logits(windows, start_positions[:, None], allowed).squeeze(1)  # (N, L)
            return SpanOutput(start, end, null_logits=null)
        in_passage = start.clone()  # (N, L)
        in_passage[:, 0] = -torch.inf  # (N,), [CLS] is no start in the passage
        beam = in_passage.topk(min(START_BEAM, start.shape[1]), dim=-1).indices  # (N, T)
        return SpanOutput(start, self._end_logits(windows, beam, allowed), start_beam=beam, null_logits=null)

    def _end_logits(self, windows: Tensor, starts: Tensor, allowed: Tensor | None) -> Tensor:
        """(N, T, L) fp32, for every token as the end of an answer that begins at each of `starts` (N, T)."""
        chosen = windows.gather(1, starts[:, :, None].expand(-1, -1, windows.shape[2]))  # (N, T, H)
        pairs = self.end_of_token(windows)[:, None] + self.end_of_start(chosen)[:, :, None]  # (N, T, L, H)
        inner = self.end_layer_norm(torch.tanh(pairs))  # (N, T, L, H)
        logits = self.end(inner).squeeze(-1).float()  # (N, T, L)
        return _where_allowed(logits, None if allowed is None else allowed[:, None])  # (N, T, L)

    def _null_logits(self, windows: Tensor, start_logits: Tensor) -> Tensor:
        """(N,) fp32, log-odds that a window holds no answer."""
        weights = torch.softmax(start_logits, dim=-1).to(windows.dtype)  # (N, L)
        start_feature = (weights[:, None] @ windows).squeeze(1)  # (N, H)
        both = torch.cat((start_feature, windows[:, 0]), dim=-1)  # (N, 2H)
        inner = self.verdict_dropout(torch.tanh(self.verdict_dense(both)))  # (N, H)
        return self.verdict(inner).squeeze(-1).float()  # (N,)


def _where_allowed(logits: Tensor, allowed: Tensor | None) -> Tensor:
    """`logits` (..., L), -inf where `allowed` (..., L) is 0."""
    return logits if allowed is None else logits.masked_fill(allowed == 0, -torch.inf)  # (..., L)
