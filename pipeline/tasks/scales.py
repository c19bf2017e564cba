"""How large the paper's experiments are made: as in the paper, or so small that two cores do a table in an hour.

A scale turns what the paper says of a row into a model and a number of steps, and recognises the runs of such a row by
their settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model import AlbertConfig
from pipeline.tasks.paper import BATCH, PreTraining

STEPS_TOLERANCE = 0.02
"""Runs whose number of samples differs by less than this share are of the same length."""

_COMPARED = (
    "embedding_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "parameter_sharing",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
)


@dataclass(frozen=True)
class Scale:
    """One of the two.

    Attributes:
        name: "paper" or "tiny".
        sizes: by preset, the fields of `AlbertConfig` that replace its own.
        embedding_sizes: the paper's E to that of this scale.
        batch: sequences in a batch of pre-training.
        steps_per_125k: steps that stand for the paper's 125,000.
        seeds: fine-tuning runs of which the median is taken.
        configs: the DeepSpeed JSON of each preset.
        finetuning: flags of pipeline.finetune, where Table 14 is not followed.
    """

    name: str
    sizes: Mapping[str, Mapping[str, int]]
    embedding_sizes: Mapping[int, int]
    batch: int
    steps_per_125k: int
    seeds: int
    configs: Mapping[str, Path]
    finetuning: Mapping[str, str]

    def model_fields(self, pretraining: PreTraining) -> dict[str, Any]:
        """The fields of the preset that a row replaces at this scale."""
        preset = AlbertConfig.preset(pretraining.model)
        fields: dict[str, Any] = dict(self.sizes.get(pretraining.model, {}))
        if pretraining.embedding_size is not None:
            fields["embedding_size"] = self.embedding_sizes[pretraining.embedding_size]
        if pretraining.parameter_sharing is not None:
            fields["parameter_sharing"] = pretraining.parameter_sharing
        if pretraining.dropout is not None:
            fields |= dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), pretraining.dropout)
        return {name: value for name, value in fields.items() if getattr(preset, name) != value}

    def config(self, pretraining: PreTraining) -> AlbertConfig:
        """The architecture of a row, with the vocabulary and the positions of the preset."""
        return AlbertConfig.preset(pretraining.model, **self.model_fields(pretraining))

    def steps(self, pretraining: PreTraining) -> int:
        """Steps of `batch` sequences."""
        return round(pretraining.steps * self.steps_per_125k / 125_000)

    def objective(self, pretraining: PreTraining) -> str:
        """The sentence loss: the row's, or its preset's."""
        return pretraining.objective or AlbertConfig.preset(pretraining.model).sentence_head or "mlm"

    def slug(self, pretraining: PreTraining) -> str:
        """A directory's name: the same for rows of different tables that are the same experiment."""
        parts = [pretraining.model]
        parts += [f"{_SHORT.get(name, name)}-{value}" for name, value in self._varied(pretraining).items()]
        if self.objective(pretraining) != AlbertConfig.preset(pretraining.model).sentence_head:
            parts.append(self.objective(pretraining))
        if pretraining.steps != 125_000:
            parts.append(f"{pretraining.steps // 1000}k")
        if pretraining.additional_data:
            parts.append("more-data")
        return "_".join(parts)

    def _varied(self, pretraining: PreTraining) -> dict[str, Any]:
        plain = self.config(PreTraining(pretraining.model)).to_dict()
        fields = self.model_fields(pretraining)
        fields.pop("attention_probs_dropout_prob", None)  # goes with the hidden states'
        return {name: value for name, value in fields.items() if plain[name] != value}

    def matches(self, pretraining: PreTraining, settings: Mapping[str, Any], additional_data: str | None) -> bool:
        """Whether a pre-training run with these settings (its `settings.json`) is one of this row at this scale.

        Args:
            additional_data: digest of the larger corpus, as `settings["data"]` has it; None if there is none.
        """
        wanted, there = self.config(pretraining).to_dict(), settings["model"]
        samples, expected = settings["steps"] * settings["train_batch_size"], self.steps(pretraining) * self.batch
        return (
            all(there.get(name) == wanted[name] for name in _COMPARED)
            and settings["objective"] == self.objective(pretraining)
            and abs(samples - expected) <= STEPS_TOLERANCE * expected
            and (additional_data in _corpora(settings["data"])) == pretraining.additional_data
        )


def _corpora(data: str | list[tuple[str, float]]) -> set[str]:
    """The digests of one corpus, or of several, each with its share."""
    return {data} if isinstance(data, str) else {digest for digest, _ in data}


_SHORT = {
    "embedding_size": "E",
    "parameter_sharing": "share",
    "hidden_dropout_prob": "dropout",
}


def _sizes(layers: int, hidden: int, embedding: int) -> dict[str, int]:
    return {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": hidden // 16,
        "intermediate_size": 4 * hidden,
        "embedding_size": embedding,
    }


_CONFIGS = Path("ds_configs")

PAPER = Scale(
    name="paper",
    sizes={},
    embedding_sizes={64: 64, 128: 128, 256: 256, 768: 768},
    batch=BATCH,
    steps_per_125k=125_000,
    seeds=5,
    configs={
        "bert-base": _CONFIGS / "base.json",
        "bert-large": _CONFIGS / "large.json",
        **{f"albert-{size}": _CONFIGS / f"{size}.json" for size in ("base", "large", "xlarge", "xxlarge")},
    },
    finetuning={},
)

TINY = Scale(
    name="tiny",
    # Layers, width and embedding keep the order of Table 1: deeper is twice as deep, xxlarge is shallow and wide.
    sizes={
        "bert-base": _sizes(2, 64, 64),
        "bert-large": _sizes(4, 96, 96),
        "albert-base": _sizes(2, 64, 16),
        "albert-large": _sizes(4, 96, 16),
        "albert-xlarge": _sizes(4, 160, 16),
        "albert-xxlarge": _sizes(2, 256, 16),
    },
    embedding_sizes={64: 8, 128: 16, 256: 32, 768: 64},
    batch=64,
    steps_per_125k=100,
    seeds=1,
    configs=dict.fromkeys(PAPER.configs, _CONFIGS / "tiny.json"),
    finetuning={
        "steps": "100",
        "warmup-steps": "10",
        "batch-size": "16",
        "learning-rate": "5e-4",
        "max-length": "128",
        "eval-interval": "50",
    },
)

SCALES = {scale.name: scale for scale in (PAPER, TINY)}
