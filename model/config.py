"""The architecture of a model (`AlbertConfig`), the paper's presets, and how to run a model (`ExecutionOptions`).

`AlbertConfig` decides what the model computes, and is stored in checkpoints. `ExecutionOptions` decides memory and
speed. It changes no result beyond rounding, so it is not stored.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from common.text import did_you_mean

IGNORED_LABEL = -100  # the label of a position that the losses ignore
ACTIVATION_CHECKPOINTING = ("none", "layer")
NEIGHBOURS, FREQUENCIES = "neighbours", "frequencies"
INITIAL_FIELDS = (
    "embedding_initializer_range",
    "residual_initializer_range",
    "initial_attention",
    "initial_output_bias",
)
"""Fields of `AlbertConfig` that `transformers` does not have, and that decide the initial weights alone."""
_CHOICES: dict[str, tuple[object, ...]] = {
    "parameter_sharing": ("all", "attention", "ffn", "none"),
    "hidden_act": ("gelu_new", "gelu"),
    "initial_attention": ("random", NEIGHBOURS),
    "initial_output_bias": ("zeros", FREQUENCIES),
    "sentence_head": ("sop", "nsp", None),
    "embedding_projection": (True, False, None),
}
ATTENTION_KERNELS = ("auto", "masked", "flash", "sequences")


@dataclass(frozen=True)
class AlbertConfig:
    """The architecture. Fields that `transformers.AlbertConfig` also has have the same names there.

    Raises ValueError: a value is out of range, or values do not fit together.
    """

    vocab_size: int = 30000
    """V, pieces in the vocabulary, special pieces included."""

    embedding_size: int = 128
    """E, the width of the token embeddings (section 3.1, factorised embedding parameterisation). With E = hidden_size
    nothing is factorised."""

    hidden_size: int = 768
    """H, the width of every layer's input and output."""

    num_hidden_layers: int = 12
    """Number of layers: attention, then a feed-forward network."""

    num_attention_heads: int = 12
    """Heads of each attention; each is hidden_size / num_attention_heads wide (`head_dim`)."""

    intermediate_size: int = 3072
    """Width of the feed-forward network between its two matrices (FFN in shape comments)."""

    parameter_sharing: str = "all"
    """What the layers of one group share (section 3.1): "all", "attention", "ffn" or "none". A LayerNorm belongs to the
    attention or feed-forward network before it."""

    num_hidden_groups: int = 1
    """Groups of consecutive layers; groups share nothing. Layer i belongs to group int(i / (layers / groups)), so group
    sizes differ by at most one."""

    hidden_act: str = "gelu_new"
    """"gelu_new" (tanh approximation, as in the paper's code) or "gelu" (erf)."""

    hidden_dropout_prob: float = 0.1
    """Probability of dropout on the embeddings, after the attention's output, and after the feed-forward network."""

    attention_probs_dropout_prob: float = 0.1
    """Probability of dropout on the attention weights."""

    classifier_dropout_prob: float = 0.1
    """Probability of dropout before a fine-tuning classifier. Pre-training does not use it."""

    max_position_embeddings: int = 512
    """Positions that have an embedding: the length of the longest sequence, in tokens."""

    type_vocab_size: int = 2
    """Number of segment types: A and B."""

    initializer_range: float = 0.02
    """Standard deviation of the normal distribution of the initial weights, before truncation at two of them."""

    embedding_initializer_range: float | None = None
    """The same for the embeddings of words and segments. None: `initializer_range`, as in the paper."""

    residual_initializer_range: float | None = None
    """The same for the two matrices of a layer whose products are added to its input: the output projections of
    attention and feed-forward network. None: `initializer_range`, as in the paper. With `initializer_range` / sqrt(2 x
    layers) the tokens stay distinct through all layers, also while the first steps enlarge what they have in common."""

    initial_attention: str = "random"
    """"random", as in the paper, or "neighbours" (`model/initialisation.py`): half of the heads begin at the tokens -1,
    +1, -2, +2 and so on. A quarter of the embedding begins with sines of the position. Without
    `residual_initializer_range`, pooler and sentence head keep the size of what they read. It ends the plateau at which
    small models otherwise begin."""

    initial_output_bias: str = "zeros"
    """"zeros", as in the paper, or "frequencies": the bias of each piece begins at the logarithm of its share of the
    masked tokens. Otherwise the shared layers first learn these shares, as one constant state, from which a deep model
    may not recover. `pipeline.pretrain` sets it from its data; a model made in Python, or with a teacher, has zeros."""

    layer_norm_eps: float = 1e-12
    """Added to the variance in every LayerNorm."""

    sentence_head: str | None = "sop"
    """The second loss: "sop" (sentence order, section 3.1), "nsp" (BERT's next sentence), or None, without a pooler."""

    embedding_projection: bool | None = None
    """Whether a projection E -> H follows the embeddings. None: only if E != H, as in the paper's code."""

    def __post_init__(self) -> None:
        for name in _SIZES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST[name]:
                raise ValueError(f"{name} is {value!r:.40}; it must be a whole number from 1 to {_LARGEST[name]}")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob"):
            if not _is_number(value := getattr(self, name)) or not 0.0 <= value < 1.0:
                raise ValueError(f"{name} is {value!r:.40}; it must be at least 0 and below 1")
        optional = ("embedding_initializer_range", "residual_initializer_range")
        for name in ("initializer_range", "layer_norm_eps", *optional):
            value = getattr(self, name)
            if not (value is None and name in optional) and not (_is_number(value) and 0.0 < value < math.inf):
                raise ValueError(f"{name} is {value!r:.40}; it must be above 0 and finite")
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        size, heads = self.hidden_size, self.num_attention_heads
        if size % heads:
            raise ValueError(f"hidden_size {size} is not divisible by num_attention_heads {heads}; change one of them")
        if self.num_hidden_groups > self.num_hidden_layers:
            raise ValueError(
                f"num_hidden_groups {self.num_hidden_groups} exceeds num_hidden_layers {self.num_hidden_layers}: "
                "groups would be left without a layer; change one of them"
            )
        if self.parameter_sharing == "none" and self.num_hidden_groups not in (1, self.num_hidden_layers):
            raise ValueError(
                f"num_hidden_groups is {self.num_hidden_groups}, but parameter_sharing 'none' shares "
                "nothing; leave the groups at 1 or share 'all', 'attention' or 'ffn' within them"
            )
        if self.embedding_projection is False and self.embedding_size != self.hidden_size:
            raise ValueError(
                f"embedding_projection is False, but embedding_size {self.embedding_size} differs from "
                f"hidden_size {self.hidden_size}; leave it unset or make the sizes equal"
            )

        if self.initial_attention == NEIGHBOURS and not (
            self.head_dim >= 2 and 2 <= self.position_units <= min(self.embedding_size - 2, self.hidden_size)
        ):
            raise ValueError(
                "initial_attention 'neighbours' needs heads of 2 units and embeddings of 4, not of "
                f"{self.head_dim} and {self.embedding_size}; take larger ones or 'random'"
            )

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """Returns the configuration `name` of `PRESETS`, with the fields in `overrides` replaced.

        Raises ValueError: the preset or a field is unknown; the message names the nearest one.
        """
        check_choice("model", name, PRESETS)
        return cls.from_dict({**PRESETS[name], **overrides})

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Inverts `to_dict`; missing fields take their defaults. Raises ValueError for an unknown field."""
        fields = dict(fields)
        if (inner := fields.pop("inner_group_num", 1)) != 1:
            raise ValueError(f"inner_group_num is {inner!r:.40}; only 1 is possible: one block in each layer")
        known = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            check_choice("AlbertConfig field", name, known)
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as plain values, ready for JSON, and a constant that `transformers` has as a field."""
        return dataclasses.asdict(self) | {"inner_group_num": 1}

    @property
    def has_embedding_projection(self) -> bool:
        """Whether a projection E -> H follows the embeddings."""
        if self.embedding_projection is None:
            return self.embedding_size != self.hidden_size
        return self.embedding_projection

    @property
    def position_units(self) -> int:
        """P, the units of the embeddings that begin with positions alone if `initial_attention` is "neighbours".

        They pass the projection unchanged, so wide embeddings must not fill a narrow model with positions.
        """
        return max(2, 2 * (min(self.embedding_size, self.hidden_size) // 8))

    @property
    def head_dim(self) -> int:
        """D, the width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def num_attention_blocks(self) -> int:
        """Number of attention blocks that have parameters of their own."""
        shared = self.parameter_sharing in ("all", "attention")
        return self.num_hidden_groups if shared else self.num_hidden_layers

    @property
    def num_ffn_blocks(self) -> int:
        """Number of feed-forward blocks that have parameters of their own."""
        shared = self.parameter_sharing in ("all", "ffn")
        return self.num_hidden_groups if shared else self.num_hidden_layers


@dataclass(frozen=True)
class ExecutionOptions:
    """How to run a model on the hardware at hand. No field changes results, except rounding and the dropout masks.

    Raises ValueError: a value is unknown, or values do not fit together.
    """

    activation_checkpointing: str = "none"
    """Activations that the backward pass recomputes: "none", or "layer" (whole blocks)."""

    compile: bool = False
    """Whether torch.compile fuses each block's GELU, dropout, residual and LayerNorm, and, with `chunked_loss`, the
    cross entropy. The first step then takes minutes."""

    compile_backend: str = "inductor"
    """The torch.compile backend; "aot_eager" traces without generating code."""

    attention: str = "auto"
    """Attention kernel for packed rows: "masked", "flash", "sequences", or "auto", which follows the device
    (`model/layers/attention.py`)."""

    chunked_loss: bool = False
    """Whether training computes the loss of the masked tokens in chunks, and no logits of all predictions."""

    def __post_init__(self) -> None:
        check_choice("attention", self.attention, ATTENTION_KERNELS)
        check_choice("activation_checkpointing", self.activation_checkpointing, ACTIVATION_CHECKPOINTING)
        if self.attention == "sequences" and self.compile:
            raise ValueError("attention 'sequences' reads lengths, which a compiled graph cannot; leave one out")

    def check(self, config: AlbertConfig) -> None:
        """Raises ValueError if the attention kernel cannot compute what `config` asks for."""
        if self.attention == "flash" and not flash_supports(config.head_dim):
            raise ValueError(f"attention 'flash' does not support a head_dim of {config.head_dim}; take another kernel")


def flash_supports(head_dim: int) -> bool:
    """Whether FlashAttention supports heads of this width."""
    return head_dim % 8 == 0 and head_dim <= 256


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_choice(what: str, value: object, choices: Iterable[object]) -> None:
    """Raises ValueError if `value` is not one of `choices`; the message names the nearest choice, `what` the value."""
    choices = list(choices)
    if (type(value), value) in [(type(choice), choice) for choice in choices]:
        return
    names = [str(choice) for choice in choices]
    hint = did_you_mean(str(value), names, f"choose one of: {', '.join(names)}")
    raise ValueError(f"unknown {what} {value!r}; {hint}")


# The fields that are sizes or counts.
_SIZES = tuple(field.name for field in dataclasses.fields(AlbertConfig) if field.type is int)
MAX_LAYERS = 1000
"""Layers of the deepest Transformers (DeepNet, arXiv 2203.00555). More are refused before the model is built."""
_LARGEST = dict.fromkeys(_SIZES, 2**20) | {"num_hidden_layers": MAX_LAYERS}


def _sizes(layers: int, hidden: int, heads: int, ffn: int, embedding: int) -> dict[str, Any]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": ffn,
        "embedding_size": embedding,
    }


_NO_DROPOUT: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_BERT: dict[str, Any] = {"parameter_sharing": "none", "sentence_head": "nsp"}

# Small models start with heads that look at neighbours: docs/experiments.md and benchmarks/results/demo_trials.md have
# what each of the two fields brings.
_QUICK_START: dict[str, Any] = {"initial_attention": NEIGHBOURS, "embedding_initializer_range": 0.1}

# Table 1, and albert-tiny for tests and the demo. Dropout as in release 1 of the paper's models; release 2 has none.
# albert-xxlarge has none in either.
PRESETS: dict[str, dict[str, Any]] = {
    "albert-tiny": _sizes(2, 128, 8, 512, 128) | _NO_DROPOUT | _QUICK_START,
    "albert-base": _sizes(12, 768, 12, 3072, 128),
    "albert-large": _sizes(24, 1024, 16, 4096, 128),
    "albert-xlarge": _sizes(24, 2048, 16, 8192, 128),
    "albert-xxlarge": _sizes(12, 4096, 64, 16384, 128) | _NO_DROPOUT,
    "bert-base": _sizes(12, 768, 12, 3072, 768) | _BERT,
    "bert-large": _sizes(24, 1024, 16, 4096, 1024) | _BERT,
}
