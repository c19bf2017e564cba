"""Fine-tuning heads that find the answer to a question in a passage: SQuAD 1.1's plain spans, SQuAD 2.0's conditioned.

A window is [CLS] question [SEP] passage [SEP]; rows may hold several, and `window_positions` says where.

Legend of the shapes: B rows, S positions in a row, N windows, L positions in the longest window, T tokens of a beam.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.albert import AlbertModel, initialise
from model.config import AlbertConfig, Implementation
from model.heads import IGNORED_LABEL

START_BEAM = 5


class SpanOutput(NamedTuple):
    """What a window's tokens are worth as start and end, and sums over the windows whose positions were given."""

    start_logits: Tensor
    """(N, L), -inf where no answer may start."""

    end_logits: Tensor
    """(N, L) likewise; (N, T, L) after each of the `start_beam` tokens in a conditioned model without labels."""

    loss_sum: Tensor | None = None
    """Sum of the windows' losses, in nats: fp32 scalar."""

    correct: Tensor | None = None
    """Windows whose start and end have the highest logits: fp32 scalar."""

    total: Tensor | None = None
    """Windows: fp32 scalar."""

    start_beam: Tensor | None = None
    """(N, T) the most probable starts of a conditioned model."""

    null_logits: Tensor | None = None
    """(N,) log-odds that the window holds no answer, of a conditioned model."""


def gather_windows(hidden: Tensor, window_positions: Tensor | None) -> Tensor:
    """The hidden states (N, L, H) at flat positions (N, L), row * S + place, of (B, S, H); -1 gives the first one.

    None: each row is a window.
    """
    if window_positions is None:
        return hidden
    return hidden.flatten(0, 1)[window_positions.clamp(min=0)]


class AlbertForQuestionAnswering(nn.Module):
    """Two linear maps of every token: is it where the answer starts, is it where it ends."""

    def __init__(self, config: AlbertConfig, implementation: Implementation | None = None) -> None:
        super().__init__()
        self.config = config
        self.albert = AlbertModel(config, implementation, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        initialise(self.qa_outputs, config.initializer_range)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        window_positions: Tensor | None = None,
        allowed: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
    ) -> SpanOutput:
        """Logits and, given the positions, sums. See `AlbertModel.forward` for the first five.

        window_positions: int64 (N, L), flat places of each window's tokens, -1 behind its end; None: a row is a
        window. allowed (N, L): not 0 where an answer may start or end; None: everywhere. start_positions and
        end_positions: int64 (N,), places in the window, that of [CLS] (0) where it holds no answer.
        """
        encoded = self.albert(input_ids, token_type_ids, position_ids, sequence_ids, attention_mask)
        windows = gather_windows(encoded.last_hidden_state, window_positions)  # (N, L, H)
        start, end = _where_allowed(self.qa_outputs(windows).float().movedim(-1, 0), allowed)  # (N, L) each
        if start_positions is None or end_positions is None:
            return SpanOutput(start, end)
        loss = 0.5 * (_losses(start, start_positions) + _losses(end, end_positions))  # (N,)
        hits = (start.argmax(-1) == start_positions) & (end.argmax(-1) == end_positions)  # (N,)
        return SpanOutput(start, end, loss.sum(), hits.sum(dtype=torch.float32), _count(start_positions))


class AlbertForConditionedQuestionAnswering(nn.Module):
    """Ends that know where the answer starts, and a verdict whether there is one (the paper's SQuAD 2.0 model).

    The end's logits are conditioned on the start: the true one while training, each of a beam of five afterwards. The
    verdict reads [CLS] and the mean of the tokens weighted by their probability to be the start.
    """

    def __init__(self, config: AlbertConfig, implementation: Implementation | None = None) -> None:
        super().__init__()
        hidden_size = config.hidden_size
        self.config = config
        self.albert = AlbertModel(config, implementation, add_pooling_layer=False)
        self.start = nn.Linear(hidden_size, 1)
        # The matrix over the concatenation of token and start, in halves: each is applied once, not for every pair.
        self.end_of_token = nn.Linear(hidden_size, hidden_size)
        self.end_of_start = nn.Linear(hidden_size, hidden_size, bias=False)
        self.end_layer_norm = nn.LayerNorm(hidden_size, eps=config.layer_norm_eps)
        self.end = nn.Linear(hidden_size, 1)
        self.verdict_dense = nn.Linear(2 * hidden_size, hidden_size)
        self.verdict_dropout = nn.Dropout(config.classifier_dropout_prob)
        self.verdict = nn.Linear(hidden_size, 1, bias=False)
        for name, part in self.named_children():
            if name != "albert":
                initialise(part, config.initializer_range)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        window_positions: Tensor | None = None,
        allowed: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
    ) -> SpanOutput:
        """Logits and, given the positions, sums; as `AlbertForQuestionAnswering.forward`.

        A window whose start position is 0, that of [CLS], holds no answer.
        """
        encoded = self.albert(input_ids, token_type_ids, position_ids, sequence_ids, attention_mask)
        windows = gather_windows(encoded.last_hidden_state, window_positions)  # (N, L, H)
        start = _where_allowed(self.start(windows).squeeze(-1).float(), allowed)  # (N, L)
        null = self._null_logits(windows, start)  # (N,)
        if start_positions is None or end_positions is None:
            in_passage = start.clone()
            in_passage[:, 0] = -torch.inf
            beam = in_passage.topk(min(START_BEAM, start.shape[1]), dim=-1).indices  # (N, T)
            return SpanOutput(start, self._end_logits(windows, beam, allowed), start_beam=beam, null_logits=null)
        end = self._end_logits(windows, start_positions[:, None], allowed).squeeze(1)  # (N, L)
        impossible = (start_positions == 0).float()  # (N,)
        verdict_loss = functional.binary_cross_entropy_with_logits(null, impossible, reduction="none")  # (N,)
        loss = 0.5 * (_losses(start, start_positions) + _losses(end, end_positions)) + 0.5 * verdict_loss  # (N,)
        hits = (start.argmax(-1) == start_positions) & (end.argmax(-1) == end_positions)  # (N,)
        sums = (loss.sum(), hits.sum(dtype=torch.float32), _count(start_positions))
        return SpanOutput(start, end, *sums, null_logits=null)

    def _end_logits(self, windows: Tensor, starts: Tensor, allowed: Tensor | None) -> Tensor:
        """(N, T, L): of every token after each of the `starts` (N, T)."""
        chosen = windows.gather(1, starts[:, :, None].expand(-1, -1, windows.shape[2]))  # (N, T, H)
        pairs = self.end_of_token(windows)[:, None] + self.end_of_start(chosen)[:, :, None]  # (N, T, L, H)
        inner = self.end_layer_norm(torch.tanh(pairs))  # (N, T, L, H)
        logits = self.end(inner).squeeze(-1).float()  # (N, T, L)
        return _where_allowed(logits, None if allowed is None else allowed[:, None])

    def _null_logits(self, windows: Tensor, start_logits: Tensor) -> Tensor:
        weights = torch.softmax(start_logits, dim=-1).to(windows.dtype)  # (N, L)
        start_feature = (weights[:, None] @ windows).squeeze(1)  # (N, H)
        both = torch.cat((start_feature, windows[:, 0]), dim=-1)  # (N, 2H)
        return self.verdict(self.verdict_dropout(torch.tanh(self.verdict_dense(both)))).squeeze(-1).float()  # (N,)


def _where_allowed(logits: Tensor, allowed: Tensor | None) -> Tensor:
    return logits if allowed is None else logits.masked_fill(allowed == 0, -torch.inf)


def _losses(logits: Tensor, positions: Tensor) -> Tensor:
    """Cross entropy (N,) of logits (N, L) and int64 positions (N,); 0 where ignored (-100)."""
    return functional.cross_entropy(logits, positions, ignore_index=IGNORED_LABEL, reduction="none")


def _count(positions: Tensor) -> Tensor:
    return (positions != IGNORED_LABEL).sum(dtype=torch.float32)
