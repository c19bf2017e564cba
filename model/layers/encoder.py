"""Cross-layer parameter sharing (section 3.1): many layers apply few blocks of parameters.

Legend of the shapes: B rows, S positions in a row, H hidden_size, FFN intermediate_size.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from model.config import AlbertConfig, ExecutionOptions
from model.layers.attention import AttentionPattern, FusedProjection, SelfAttention
from model.layers.processor import Dropout, LayerNorm, Linear

_F = TypeVar("_F", bound=Callable[..., Any])
_APPROXIMATION = {"gelu_new": "tanh", "gelu": "none"}


def activation(config: AlbertConfig) -> nn.GELU:
    """Returns the activation function that `config.hidden_act` names."""
    return nn.GELU(approximate=_APPROXIMATION[config.hidden_act])


class FeedForward(nn.Module):
    """The feed-forward network H -> FFN -> H, dropout, and the LayerNorm after the residual.

    Parameter sharing calls this block "ffn" (section 3.1). The paper's code has this dropout; `transformers` does not.
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.intermediate = Linear(config.hidden_size, config.intermediate_size)
        self.activation = activation(config)
        self.output = Linear(config.intermediate_size, config.hidden_size)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.layer_norm = LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor) -> Tensor:
        """Maps (B, S, H) to (B, S, H)."""
        inner = self.activation(self.intermediate(hidden))  # (B, S, FFN)
        return self.layer_norm(hidden + self.dropout(self.output(inner)))  # (B, S, H)


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
        # Compiled, one graph serves every layer.
        run, recomputes = compiled(_run_layer, execution), execution.activation_checkpointing == "layer"
        self._run_layer: Callable[..., tuple[Tensor, Tensor | None]]
        self._run_layer = partial(checkpoint, run, use_reentrant=False) if recomputes else run

    def forward(
        self, hidden: Tensor, pattern: AttentionPattern, keep_contexts: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Returns the input of the first layer and the output of every layer: num_hidden_layers + 1 times (B, S, H).

        The second result is what the heads of every layer have read, see `SelfAttention.forward`: num_hidden_layers
        times (B, S, H), or nothing without `keep_contexts`.
        """
        # One for each block, not for each layer, because autograd would keep every copy.
        projections = [cast(SelfAttention, block).query_key_value() for block in self.attention]
        states = [hidden]  # (B, S, H) each
        contexts: list[Tensor] = []  # (B, S, H) each
        for attention, feed_forward in self.indices:
            blocks = self.attention[attention], self.feed_forward[feed_forward]
            hidden, context = self._run_layer(*blocks, hidden, pattern, projections[attention], keep_contexts)
            states.append(hidden)  # (B, S, H)
            if context is not None:
                contexts.append(context)  # (B, S, H)
        return states, contexts


def _run_layer(
    attention: nn.Module,
    feed_forward: nn.Module,
    hidden: Tensor,
    pattern: AttentionPattern,
    projection: FusedProjection,
    keep_context: bool,
) -> tuple[Tensor, Tensor | None]:
    attended, context = attention(hidden, pattern, projection)  # (B, S, H) each
    # In each backward pass a compiled graph reads a gradient of every output: zeros, if nothing uses that output.
    return feed_forward(attended), context if keep_context else None


def compiled(function: _F, execution: ExecutionOptions, dynamic: bool | None = None) -> _F:
    """Returns `function`, compiled as a single graph if `execution` asks for it.

    dynamic: whether one graph serves inputs of any length; None: from the second length on.
    """
    if not execution.compile:
        return function
    made = torch.compile(function, backend=execution.compile_backend, fullgraph=True, dynamic=dynamic)
    return cast(_F, made)
