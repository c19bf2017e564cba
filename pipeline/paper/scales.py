"""The scale of the paper's experiments: the paper's own, or so small that two cores make a table in an hour.

A scale turns a row of a table into a model and a number of steps. It also recognises the runs of a row by their
settings.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from model import AlbertConfig
from pipeline.data.masking import MaskingSettings
from pipeline.paper.printed_tables import BATCH, PreTraining

STEPS_TOLERANCE = 0.02
"""Runs are of the same length if their numbers of samples differ by less than this fraction."""

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
    """The size of all experiments.

    Attributes:
        name: "paper" or "tiny".
        sizes: by preset, the fields of `AlbertConfig` that replace those of the preset.
        embedding_sizes: the embedding size of the paper to that of this scale.
        batch: sequences in a batch of pre-training.
        steps_per_125k: the number of steps for the paper's 125,000.
        seeds: fine-tuning runs of each model; their median is reported.
        configs: the DeepSpeed JSON of each preset.
        finetuning: flags of pipeline.finetune that replace Table 14.
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
        """The fields of the preset that are replaced for a row at this scale."""
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
        """The number of steps, of `batch` sequences each."""
        return round(pretraining.steps * self.steps_per_125k / 125_000)

    def objective(self, pretraining: PreTraining) -> str:
        """The objective with the sentence loss of the row, or else of its preset."""
        return pretraining.objective or AlbertConfig.preset(pretraining.model).sentence_head or "mlm"

    def slug(self, pretraining: PreTraining) -> str:
        """The name of the row's directory. Rows of different tables share it if they are the same experiment."""
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
        """Whether a pre-training run is one of this row at this scale.

        Args:
            settings: the run's `settings.json`.
            additional_data: the digest of the larger corpus, as in `settings["data"]`; None if there is none.
        """
        wanted, found = self.config(pretraining).to_dict(), settings["model"]
        samples, expected = settings["steps"] * settings["train_batch_size"], self.steps(pretraining) * self.batch
        return (
            all(found.get(name) == wanted[name] for name in _COMPARED)
            and settings["objective"] == self.objective(pretraining)
            and _MASKING | settings.get("masking", {}) == _MASKING  # what an older run lacks had the default
            and settings.get("init") is None
            and len(settings.get("lengths") or (None,)) == 1  # a changed length is another schedule
            and abs(samples - expected) <= STEPS_TOLERANCE * expected
            and (additional_data in _digests(settings["data"])) == pretraining.additional_data
        )


_MASKING = asdict(MaskingSettings())


def _digests(data: str | list[tuple[str, float]]) -> set[str]:
    """The digests of a run's data: one corpus, or a mixture of several with their weights."""
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
    # Layers, hidden size and embedding size are ordered as in Table 1: "large" has twice the layers of "base", and
    # "xxlarge" has few layers and the largest hidden size.
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
