"""Cross-layer parameter sharing (section 3.1): few blocks of parameters, applied by many layers."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from model.attention import AttentionLayout, FusedProjection, SelfAttention
from model.config import AlbertConfig, Implementation
from model.linear import Linear

_APPROXIMATION = {"gelu_new": "tanh", "gelu": "none"}


def activation(config: AlbertConfig) -> nn.GELU:
    """The non-linearity that `config.hidden_act` names."""
    return nn.GELU(approximate=_APPROXIMATION[config.hidden_act])


class FeedForward(nn.Module):
    """H -> FFN -> H, dropout, and the LayerNorm after the residual: what parameter sharing calls "ffn".

    The dropout is that of the paper's code; `transformers` has none here.
    """

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.intermediate = Linear(config.hidden_size, config.intermediate_size)
        self.activation = activation(config)
        self.output = Linear(config.intermediate_size, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, S, H) to (B, S, H)."""
        inner = self.activation(self.intermediate(hidden))  # (B, S, FFN)
        return self.layer_norm(hidden + self.dropout(self.output(inner)))  # (B, S, H)


def block_indices(config: AlbertConfig) -> list[list[tuple[int, int]]]:
    """For each layer, for each of its `inner_group_num` blocks: which attention and which feed-forward
    parameters it uses."""

    def first_block(layer: int, shared: bool) -> int:
        group = int(layer / (config.num_hidden_layers / config.num_hidden_groups))
        return (group if shared else layer) * config.inner_group_num

    attention_shared = config.parameter_sharing in ("all", "attention")
    ffn_shared = config.parameter_sharing in ("all", "ffn")
    return [
        [
            (first_block(layer, attention_shared) + inner, first_block(layer, ffn_shared) + inner)
            for inner in range(config.inner_group_num)
        ]
        for layer in range(config.num_hidden_layers)
    ]


class SharedEncoder(nn.Module):
    """`num_hidden_layers` layers over the parameter blocks that `parameter_sharing` and the groups leave."""

    def __init__(self, config: AlbertConfig, implementation: Implementation) -> None:
        super().__init__()
        self.attention = nn.ModuleList(SelfAttention(config) for _ in range(config.num_attention_blocks))
        self.feed_forward = nn.ModuleList(FeedForward(config) for _ in range(config.num_ffn_blocks))
        self.indices = block_indices(config)
        self._run_block = _block_runner(implementation)

    def forward(self, hidden: Tensor, layout: AttentionLayout) -> list[Tensor]:
        """The input (B, S, H) and the output (B, S, H) of every layer: num_hidden_layers + 1 tensors."""
        states = [hidden]
        fused: dict[int, FusedProjection] = {}  # once a block: each copy would be kept for the backward pass
        for layer in self.indices:
            for attention, feed_forward in layer:
                block = self.attention[attention]
                if attention not in fused:
                    fused[attention] = block.get_submodule("query_key_value")()
                hidden = self._run_block(block, self.feed_forward[feed_forward], hidden, layout, fused[attention])
            states.append(hidden)
        return states


_BlockRunner = Callable[[nn.Module, nn.Module, Tensor, AttentionLayout, FusedProjection], Tensor]


def _block(
    attention: nn.Module, feed_forward: nn.Module, hidden: Tensor, layout: AttentionLayout, fused: FusedProjection
) -> Tensor:
    return feed_forward(attention(hidden, layout, fused))  # (B, S, H)


def _block_with_checkpointed_ffn(
    attention: nn.Module, feed_forward: nn.Module, hidden: Tensor, layout: AttentionLayout, fused: FusedProjection
) -> Tensor:
    return checkpoint(feed_forward, attention(hidden, layout, fused), use_reentrant=False)  # (B, S, H)


def _block_runner(implementation: Implementation) -> _BlockRunner:
    """The function that applies one block. Compiled, it is one graph that serves every block of a model."""
    run: _BlockRunner = _block
    if implementation.activation_checkpointing == "ffn":
        run = _block_with_checkpointed_ffn
    if implementation.compile:
        run = torch.compile(run, backend=implementation.compile_backend, fullgraph=True)
    if implementation.activation_checkpointing == "layer":
        run = partial(checkpoint, run, use_reentrant=False)
    return run
