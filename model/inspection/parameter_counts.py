"""Counts the parameters of a configuration, and compares them with the counts in the paper."""

import dataclasses
from functools import cache

from model.checkpoint import empty_model
from model.config import AlbertConfig


@dataclasses.dataclass(frozen=True)
class ParameterCounts:
    """Trainable parameters by part. Shared and tied parameters count once."""

    embeddings: int
    """The tables, their LayerNorm, and the projection to hidden_size."""

    encoder: int
    """All attention and feed-forward blocks."""

    pooler: int
    """The dense layer on [CLS]; 0 without a sentence head."""

    heads: int
    """The masked-token head without its tied matrix, and the sentence head. Only pre-training uses them."""

    @property
    def backbone(self) -> int:
        """Everything but the heads: what fine-tuning starts from, and what the paper's tables count."""
        return self.embeddings + self.encoder + self.pooler

    @property
    def total(self) -> int:
        """Everything that pre-training trains."""
        return self.backbone + self.heads


@cache
def parameter_counts(config: AlbertConfig) -> ParameterCounts:
    """Counts the parameters of the model that `config` describes, without allocating them."""
    counts = dict.fromkeys((field.name for field in dataclasses.fields(ParameterCounts)), 0)
    for name, parameter in empty_model(config).named_parameters():
        part = name.split(".")[1] if name.startswith("albert.") else "heads"
        counts[part] += parameter.numel()
    return ParameterCounts(**counts)


# (label, configuration, millions in the paper): Table 1, then the ablations of Tables 3 and 4 on albert-base.
PAPER_COUNTS: tuple[tuple[str, AlbertConfig, int], ...] = (
    *(
        (name, AlbertConfig.preset(name), millions)
        for name, millions in (
            ("bert-base", 108),
            ("bert-large", 334),
            ("albert-base", 12),
            ("albert-large", 18),
            ("albert-xlarge", 60),
            ("albert-xxlarge", 235),
        )
    ),
    *(
        (
            f"albert-base, E = {embedding_size}, shares {sharing}",
            AlbertConfig.preset("albert-base", embedding_size=embedding_size, parameter_sharing=sharing),
            millions,
        )
        for sharing, embedding_size, millions in (
            ("none", 64, 87),
            ("none", 128, 89),
            ("none", 256, 93),
            ("none", 768, 108),
            ("all", 64, 10),
            ("all", 128, 12),
            ("all", 256, 16),
            ("all", 768, 31),
            ("attention", 768, 83),
            ("attention", 128, 64),
            ("ffn", 768, 57),
            ("ffn", 128, 38),
        )
    ),
)


def table() -> str:
    """Returns a table of the systems in the paper's Tables 1, 3 and 4: the paper's count, ours, and ours by part."""
    lines = [
        f"{'system':38}{'paper':>7}{'ours':>8}{'embeddings':>12}{'encoder':>9}{'pooler':>8}{'heads':>7}",
    ]
    for label, config, millions in PAPER_COUNTS:
        counts = parameter_counts(config)
        parts = [counts.backbone, counts.embeddings, counts.encoder, counts.pooler, counts.heads]
        ours, embeddings, encoder, pooler, heads = (f"{part / 1e6:.1f}" for part in parts)
        lines.append(f"{label:38}{millions:>6}M{ours:>8}{embeddings:>12}{encoder:>9}{pooler:>8}{heads:>7}")
    lines.append("ours = embeddings + encoder + pooler, in millions; the heads are used in pre-training only")
    return "\n".join(lines)
