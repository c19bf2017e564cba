"""The encoder (embeddings, shared layers, pooler), and the base class of all models that put a head on it.

Legend of the shapes: B rows, S positions in a row, P sequences in a row, H hidden_size.
"""

from typing import NamedTuple, TypedDict

import torch
from torch import Tensor, nn

from model.config import AlbertConfig, ExecutionOptions
from model.initialisation import apply_initial_options, initialise
from model.layers.attention import AttentionPattern, choose_kernel
from model.layers.embeddings import FactorisedEmbeddings
from model.layers.encoder import SharedEncoder
from model.layers.heads import Pooler, gather_positions
from model.layers.torch_operators import for_any_length


class AlbertModelOutput(NamedTuple):
    """Hidden states of the encoder, in the dtype of the model (under autocast, in that of autocast)."""

    last_hidden_state: Tensor  # (B, S, H), the output of the last layer
    pooled_output: Tensor | None  # (B, P, H) with `cls_positions`, else (B, H) of each row; None without a pooler
    hidden_states: tuple[Tensor, ...]  # (B, S, H) each: the first layer's input, then every layer's output
    contexts: tuple[Tensor, ...] = ()  # (B, S, H) each: what the heads of every layer have read, if asked for


class EncoderInputs(TypedDict, total=False):
    """The optional inputs of the encoder; every model takes them beside `input_ids` and passes them on.

    A row holds either one sequence, padded at its end (`attention_mask`), or several packed sequences
    (`sequence_ids` and `position_ids`).
    """

    token_type_ids: Tensor | None  # int64 (B, S), the segment of each token: 0 for A, 1 for B. None: 0 everywhere
    position_ids: Tensor | None  # int64 (B, S), each token's place in its sequence, from 0. None: its place in the row
    sequence_ids: Tensor | None  # int64 (B, S), of a packed row, -1 on padding. A token sees its own sequence only
    attention_mask: Tensor | None  # int64 or bool (B, S), 0 on the padding of rows with one sequence. None: no padding
    cls_positions: Tensor | None  # int64 (B, P), of each sequence's [CLS], 0 where unused. None: position 0 of each row
    # int32 (N + 1,), where each sequence of the rows, joined end to end, begins, padding included; filled up with
    # B * S. Only the attention kernel "flash" reads it, and needs it
    cu_seqlens: Tensor | None


class AlbertModel(nn.Module):
    """Embeddings, shared encoder, and an optional pooler.

    Args:
        config: the architecture.
        execution: how to run it; None takes the defaults.
        add_pooling_layer: whether there is a pooler; None: only if `config` has a sentence head.

    Raises:
        ValueError: the attention kernel that `execution` names cannot compute what `config` asks for.
    """

    def __init__(
        self, config: AlbertConfig, execution: ExecutionOptions | None = None, add_pooling_layer: bool | None = None
    ) -> None:
        super().__init__()
        if add_pooling_layer is None:
            add_pooling_layer = config.sentence_head is not None
        self.config = config
        self.embeddings = FactorisedEmbeddings(config)
        execution = execution or ExecutionOptions()
        execution.check(config)
        self.encoder = SharedEncoder(config, execution)
        self._execution = execution
        self.pooler = Pooler(config) if add_pooling_layer else None
        initialise(self, config.initializer_range)
        apply_initial_options(self.embeddings, self.encoder, self.pooler.dense if self.pooler else None, config)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        sequence_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        cls_positions: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        keep_contexts: bool = False,
    ) -> AlbertModelOutput:
        """Encodes int64 `input_ids` (B, S). `EncoderInputs` describes the other arguments.

        With `keep_contexts` the result has `contexts`. Raises ValueError: packed rows without `position_ids` or with an
        `attention_mask`; or rows longer than max_position_embeddings.
        """
        hidden = self.embeddings(input_ids, token_type_ids, position_ids)  # (B, S, H)
        if sequence_ids is None:
            pattern = AttentionPattern.for_padded_rows(attention_mask)
        elif position_ids is None:
            raise ValueError("packed rows (sequence_ids) need position_ids, which restart with each sequence")
        elif attention_mask is not None:
            raise ValueError("packed rows (sequence_ids) take no attention_mask; mark padding with sequence id -1")
        else:
            kernel = choose_kernel(self._execution, hidden, self.config.head_dim, cu_seqlens is not None)
            compiles = self._execution.compile and not torch.compiler.is_compiling()
            if compiles and kernel == "flash" and cu_seqlens is not None:
                for_any_length(cu_seqlens)
            pattern = AttentionPattern.for_packed_rows(sequence_ids, kernel, cu_seqlens)
        states, contexts = self.encoder(hidden, pattern, keep_contexts)  # layers + 1 and layers times (B, S, H)
        last, pooled = states[-1], None  # (B, S, H)
        if self.pooler is not None:
            first = last[:, 0] if cls_positions is None else gather_positions(last, cls_positions)  # (B, H), (B, P, H)
            pooled = self.pooler(first)  # (B, H), or (B, P, H)
        return AlbertModelOutput(last, pooled, tuple(states), tuple(contexts))


class ModelWithHead(nn.Module):
    """The base of every model: the encoder under the name `albert`, and beside it the modules of a head.

    A subclass creates the modules of its head after `super().__init__` and then calls `initialise_head`.
    """

    def __init__(
        self, config: AlbertConfig, execution: ExecutionOptions | None, add_pooling_layer: bool | None = None
    ) -> None:
        super().__init__()
        self.config = config
        self.albert = AlbertModel(config, execution, add_pooling_layer)

    def initialise_head(self) -> None:
        """Gives the modules beside the encoder their initial weights, in the order in which they were created."""
        for name, module in self.named_children():
            if name != "albert":
                initialise(module, self.config.initializer_range)
