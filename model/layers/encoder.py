"""Cross-layer parameter sharing (section 3.1): many layers apply few blocks of parameters.

Legend of the shapes: B rows, S positions in a row, H hidden_size, FFN intermediate_size.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from model.attention.self_attention import AttentionPattern, FusedProjection, SelfAttention
from model.config import AlbertConfig, ExecutionOptions
from model.layers.linear import Linear
from model.layers.shared_gradients import GradientSums, begin_sums, of_one_layer

_APPROXIMATION = {"gelu_new": "tanh", "gelu": "none"}


def activation(config: AlbertConfig) -> nn.GELU:
    """Returns the activation function that `config.hidden_act` names."""
    return nn.GELU(approximate=_APPROXIMATION[config.hidden_act])


class FeedForwardSums(NamedTuple):
    """Where the layers of a pass add up the gradients of a feed-forward block's products; None: autograd does it."""

    intermediate: GradientSums | None = None
    output: GradientSums | None = None


_NO_SUMS = FeedForwardSums()


class FeedForward(nn.Module):
    """The feed-forward network H -> FFN -> H, dropout, and the LayerNorm after the residual.

    Parameter sharing calls this block "ffn" (section 3.1). The paper's code has this dropout; `transformers` does not.
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.intermediate = Linear(config.hidden_size, config.intermediate_size)
        self.activation = activation(config)
        self.output = Linear(config.intermediate_size, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def begin_sums(self) -> FeedForwardSums:
        """Sums for the gradients of all layers of a pass that use this block."""
        return FeedForwardSums(*(begin_sums(part.weight, part.bias) for part in (self.intermediate, self.output)))

    def forward(self, hidden: Tensor, sums: FeedForwardSums = _NO_SUMS) -> Tensor:
        """Maps (B, S, H) to (B, S, H)."""
        inner = self.activation(self.intermediate(hidden, sums.intermediate))  # (B, S, FFN)
        return self.layer_norm(hidden + self.dropout(self.output(inner, sums.output)))  # (B, S, H)


def block_indices(config: AlbertConfig) -> list[tuple[int, int]]:
    """Returns the indices of the (attention, feed-forward) parameters that each layer uses."""
    layers = range(config.num_hidden_layers)
    groups = [int(layer / (config.num_hidden_layers / config.num_hidden_groups)) for layer in layers]
    attention = groups if config.parameter_sharing in ("all", "attention") else layers
    ffn = groups if config.parameter_sharing in ("all", "ffn") else layers
    return list(zip(attention, ffn))


class SharedEncoder(nn.Module):
    """Applies `num_hidden_layers` layers. `block_indices` tells which parameters each layer uses."""

    def __init__(self, config: AlbertConfig, execution: ExecutionOptions) -> None:
        super().__init__()
        self.attention = nn.ModuleList(SelfAttention(config) for _ in range(config.num_attention_blocks))
        self.feed_forward = nn.ModuleList(FeedForward(config) for _ in range(config.num_ffn_blocks))
        self.indices = block_indices(config)
        self._run_block = _block_runner(execution)
        self._uses = [Counter(numbers) for numbers in zip(*self.indices)] if execution.sum_gradients else None

    def forward(self, hidden: Tensor, pattern: AttentionPattern) -> list[Tensor]:
        """Returns the input of the first layer and the output of every layer: num_hidden_layers + 1 times (B, S, H)."""
        states = [hidden]  # (B, S, H) each
        fused: dict[int, FusedProjection] = {}  # one for each block, because autograd would keep every copy
        sums: dict[int, FeedForwardSums] = {}
        for attention, feed_forward in self.indices:
            block = cast(SelfAttention, self.attention[attention])
            inner = cast(FeedForward, self.feed_forward[feed_forward])
            if attention not in fused:
                fused[attention] = block.project(self._sums_gradients(0, attention))
            if feed_forward not in sums:
                summed = self._sums_gradients(1, feed_forward)
                sums[feed_forward] = inner.begin_sums() if summed else _NO_SUMS
            layer_sums = FeedForwardSums(*map(of_one_layer, sums[feed_forward]))
            hidden = self._run_block(
                block, inner, hidden, pattern, fused[attention].of_one_layer(), layer_sums
            )  # (B, S, H)
            states.append(hidden)
        return states

    def _sums_gradients(self, kind: int, number: int) -> bool:
        """Whether a pass sums the gradients of a block: of attention (0) or feed-forward (1)."""
        return self._uses is not None and self._uses[kind][number] > 1 and torch.is_grad_enabled()


_BlockRunner = Callable[[nn.Module, nn.Module, Tensor, AttentionPattern, FusedProjection, FeedForwardSums], Tensor]


def _block(
    attention: nn.Module,
    feed_forward: nn.Module,
    hidden: Tensor,
    pattern: AttentionPattern,
    fused: FusedProjection,
    sums: FeedForwardSums,
) -> Tensor:
    return feed_forward(attention(hidden, pattern, fused), sums)  # (B, S, H)


def _block_runner(execution: ExecutionOptions) -> _BlockRunner:
    """Returns the function that applies one block. Compiled, one graph serves every block of a model."""
    run: _BlockRunner = _block
    if execution.compile:
        run = torch.compile(run, backend=execution.compile_backend, fullgraph=True)
    if execution.activation_checkpointing == "layer":
        run = partial(checkpoint, run, use_reentrant=False)
    return run
