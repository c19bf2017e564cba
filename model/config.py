"""What a model is (`AlbertConfig`), the presets of the paper, and how a model is run (`Implementation`).

`AlbertConfig` decides every number that the model computes. `Implementation` decides memory and speed and
never changes the outcome beyond rounding; it is therefore no part of a checkpoint.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

PARAMETER_SHARING = ("all", "attention", "ffn", "none")
SENTENCE_HEADS = ("sop", "nsp", None)
ACTIVATIONS = ("gelu_new", "gelu")
ACTIVATION_CHECKPOINTING = ("none", "layer", "ffn")
ATTENTION_KERNELS = ("auto", "masked", "cudnn", "flash", "flex", "sequences")


@dataclass(frozen=True)
class AlbertConfig:
    """The architecture, with the field names of `transformers.AlbertConfig` wherever that has the field.

    Raises ValueError, one line, for values that do not fit together.
    """

    vocab_size: int = 30000
    """Pieces in the vocabulary, special ones included."""

    embedding_size: int = 128
    """E, the width of the token embeddings (section 3.1, factorised embedding); E = hidden_size means no
    factorisation."""

    hidden_size: int = 768
    """H, the width of every layer's input and output."""

    num_hidden_layers: int = 12
    """Layers applied one after the other, each of them `inner_group_num` blocks deep."""

    num_attention_heads: int = 12
    """Heads of each attention; their width is hidden_size / num_attention_heads."""

    intermediate_size: int = 3072
    """Width of the feed-forward network between its two matrices."""

    parameter_sharing: str = "all"
    """What the layers of one group share (section 3.1): "all", "attention", "ffn" or "none". LayerNorms go
    with what they follow."""

    num_hidden_groups: int = 1
    """Groups of consecutive layers; nothing is shared between groups. Layer i belongs to group int(i /
    (layers / groups)), so groups differ by at most a layer."""

    inner_group_num: int = 1
    """Blocks (attention + feed-forward), each with its own parameters, that one layer applies in a row."""

    hidden_act: str = "gelu_new"
    """"gelu_new" (tanh approximation, as in the paper's code) or "gelu" (erf)."""

    hidden_dropout_prob: float = 0.1
    """Dropout on the embeddings, after the attention projection and after the feed-forward output. A
    probability."""

    attention_probs_dropout_prob: float = 0.1
    """Dropout on the attention weights. A probability."""

    classifier_dropout_prob: float = 0.1
    """Dropout before a fine-tuning classifier. A probability; pre-training does not use it."""

    max_position_embeddings: int = 512
    """Positions that have an embedding: the longest sequence, in tokens."""

    type_vocab_size: int = 2
    """Segment types: A and B."""

    initializer_range: float = 0.02
    """Standard deviation of the normal distribution that, cut at two of them, gives the initial weights."""

    layer_norm_eps: float = 1e-12
    """Added to the variance in every LayerNorm."""

    sentence_head: str | None = "sop"
    """The second loss: "sop" (section 3.1, sentence order), "nsp" (BERT's next sentence) or None: no pooler,
    no second loss."""

    embedding_projection: bool | None = None
    """Whether a projection E -> H follows the embeddings. None: only where E != H, as in the paper's code."""

    def __post_init__(self) -> None:
        for name in _SIZES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; it must be a whole number of at least 1")
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0.0 <= value < 1.0:
                raise ValueError(f"{name} is {value!r}; it must be at least 0 and below 1")
        for name in ("initializer_range", "layer_norm_eps"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not value > 0.0:
                raise ValueError(f"{name} is {value!r}; it must be above 0")
        check_choice("parameter_sharing", self.parameter_sharing, PARAMETER_SHARING)
        check_choice("hidden_act", self.hidden_act, ACTIVATIONS)
        check_choice("sentence_head", self.sentence_head, SENTENCE_HEADS)
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size} is not divisible by num_attention_heads "
                f"{self.num_attention_heads}; change one of them"
            )
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

    @classmethod
    def preset(cls, name: str, **overrides: Any) -> Self:
        """A configuration of the paper's Table 1 (or albert-tiny, for tests and the demo) with some fields
        replaced.

        Raises ValueError for an unknown preset or field and names the nearest one.
        """
        check_choice("model", name, PRESETS)
        return cls.from_dict({**PRESETS[name], **overrides})

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; fields that are left out take their defaults. Raises ValueError for an
        unknown field."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            check_choice("AlbertConfig field", name, known)
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, ready for JSON."""
        return dataclasses.asdict(self)

    @property
    def has_embedding_projection(self) -> bool:
        """Whether a projection E -> H follows the embeddings."""
        if self.embedding_projection is None:
            return self.embedding_size != self.hidden_size
        return self.embedding_projection

    @property
    def num_attention_blocks(self) -> int:
        """Attention modules that have parameters of their own."""
        shares = self.parameter_sharing in ("all", "attention")
        return (self.num_hidden_groups if shares else self.num_hidden_layers) * self.inner_group_num

    @property
    def num_ffn_blocks(self) -> int:
        """Feed-forward modules that have parameters of their own."""
        shares = self.parameter_sharing in ("all", "ffn")
        return (self.num_hidden_groups if shares else self.num_hidden_layers) * self.inner_group_num


@dataclass(frozen=True)
class Implementation:
    """How a model runs on the hardware at hand. No field changes the outcome beyond rounding (and which
    dropout masks are drawn)."""

    activation_checkpointing: str = "none"
    """What is recomputed in the backward pass instead of kept: "none", "ffn" (the feed-forward only) or
    "layer" (whole blocks)."""

    compile: bool = False
    """Whether torch.compile fuses each block's GELU, dropout, residual and LayerNorm. The first step then
    takes minutes."""

    compile_backend: str = "inductor"
    """The torch.compile backend; "aot_eager" traces without generating code."""

    attention: str = "auto"
    """What attends packed rows: "auto" takes the fastest for the device (`model/attention_kernels.py`); "masked",
    "cudnn", "flash", "flex" or "sequences" insists on one."""

    def __post_init__(self) -> None:
        check_choice("attention", self.attention, ATTENTION_KERNELS)
        check_choice("activation_checkpointing", self.activation_checkpointing, ACTIVATION_CHECKPOINTING)
        if self.attention == "sequences" and self.compile:
            raise ValueError("attention 'sequences' reads lengths, which a compiled graph cannot; leave one out")

    def check(self, config: AlbertConfig) -> None:
        """Raises ValueError where the kernel that is insisted on cannot compute what `config` asks for."""
        width = config.hidden_size // config.num_attention_heads
        if self.attention == "flex" and config.attention_probs_dropout_prob:
            raise ValueError(
                f"attention 'flex' has no dropout, but attention_probs_dropout_prob is "
                f"{config.attention_probs_dropout_prob}; take another kernel or set it to 0"
            )
        if self.attention == "flash" and not flash_takes(width):
            raise ValueError(f"attention 'flash' does not take heads of width {width}; take another kernel")


def flash_takes(width: int) -> bool:
    """Whether FlashAttention takes heads of this width."""
    return width % 8 == 0 and width <= 256


def check_choice(what: str, value: str | None, choices: Iterable[str | None]) -> None:
    """Raises ValueError, naming the nearest of `choices`, where `value` is not one of them."""
    choices = list(choices)
    if value in choices:
        return
    near = difflib.get_close_matches(str(value), [str(choice) for choice in choices], n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "choose one of: " + ", ".join(str(choice) for choice in choices)
    raise ValueError(f"unknown {what} {value!r}; {hint}")


_SIZES = (
    "vocab_size",
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "num_hidden_groups",
    "inner_group_num",
    "max_position_embeddings",
    "type_vocab_size",
)


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

# Table 1. Dropout is that of the first release (version 2 has none anywhere); xxlarge never had any.
PRESETS: dict[str, dict[str, Any]] = {
    "albert-tiny": _sizes(2, 128, 8, 512, 128) | _NO_DROPOUT,
    "albert-base": _sizes(12, 768, 12, 3072, 128),
    "albert-large": _sizes(24, 1024, 16, 4096, 128),
    "albert-xlarge": _sizes(24, 2048, 16, 8192, 128),
    "albert-xxlarge": _sizes(12, 4096, 64, 16384, 128) | _NO_DROPOUT,
    "bert-base": _sizes(12, 768, 12, 3072, 768) | _BERT,
    "bert-large": _sizes(24, 1024, 16, 4096, 1024) | _BERT,
}
