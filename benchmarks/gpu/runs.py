"""Runs of `pipeline.pretrain` with the presets: their speed and memory, a profile, and on more GPUs."""

import itertools
import json
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from benchmarks.gpu.place import PRECISIONS, Place
from benchmarks.shared.job import Job
from benchmarks.shared.texts import REPOSITORY
from data_prep.format.pairs import max_pairs
from pipeline.data.collate import BatchShape
from pipeline.data.masking import MaskingSettings
from pipeline.engine import deepspeed_config
from pipeline.engine.estimates import Plan
from pipeline.engine.hardware import GPUS, Cluster, Hardware
from pipeline.settings.settings_file import read_settings
from pipeline.training.metrics_file import read_records

Result = dict[str, Any]
STEPS = 15  # of a start


class _Variant:
    """A run of a model's preset, with four micro-batches a step, in one precision and rate of dropout.

    Micro-batch, clipping and LAMB are those of the preset. A processor runs all in fp32, and so it is labelled.

    Attributes:
        labels: of its figures.
        output: directory of the run.
    """

    def __init__(
        self, place: Place, model: str, part: str, precision: str = "fp16", dropout: float = 0.0, ranks: int = 1
    ) -> None:
        self.place, self.ranks = place, ranks
        large = place.on_gpu and torch.cuda.get_device_properties(0).total_memory > 70e9
        preset = "tiny" if place.tiny else f"{model.removeprefix('albert-')}{'-80gb' if large else ''}"
        config = json.loads((REPOSITORY / "ds_configs" / f"{preset}.json").read_text(encoding="utf-8"))
        rows = 2 if place.tiny else config.get("train_micro_batch_size_per_gpu", 16)
        self.output = place.empty(f"{part}-{model}-{precision}-dropout-{100 * dropout:.0f}-{ranks}")
        self.json = self.output.with_suffix(".deepspeed.json")
        config |= {"train_batch_size": 4 * rows * ranks, "train_micro_batch_size_per_gpu": rows}
        self.json.write_text(json.dumps(config), encoding="utf-8")
        precision = precision if place.on_gpu else "fp32"
        self.labels: Result = {"model": model, "preset": preset, "precision": precision, "dropout": dropout}
        self.labels |= {"micro_batch": rows}
        self.flags = ["--model", "albert-tiny" if place.tiny else model, "--data", str(place.shards(512))]
        self.flags += ["--deepspeed_config", str(self.json), "--log-interval", "1", "--precision", precision]
        rates = [f"{name}_dropout_prob={dropout}" for name in ("hidden", "attention_probs")]
        self.flags += ["--model-args", *rates]

    def train(self, steps: int, *words: str, module: tuple[str, ...] = ("pipeline.pretrain",)) -> list[Result]:
        """The records of the training steps after training to step `steps`."""
        flags = [*self.flags, "--steps", str(steps), *words]
        Job(flags, self.output, self.ranks, self.place.device.type, module).finish()
        return read_records(self.output, "train")

    def planned_gigabytes(self, checkpointing: str) -> float:
        """The memory that the plan gives the last start."""
        settings = read_settings(self.output)
        model, hardware = settings.model, Hardware(settings.engine.device, fp16=True, bf16=True)
        engine = deepspeed_config.fit(deepspeed_config.load(self.json), 1, hardware, settings.engine.precision)
        length = model.max_position_embeddings
        shape = BatchShape(length, max_pairs(length), MaskingSettings().max_predictions(length))
        cluster = Cluster(GPUS["h100"], 1, 1)  # which one means nothing for the memory
        return Plan(model, engine, cluster, shape, checkpointing, tflops=1.0, steps=1).memory.total / 1e9


def _variants(place: Place, model: str, part: str) -> Iterator[_Variant]:
    for dropout, precision in itertools.product((0.1, 0.0), PRECISIONS):
        if place.takes(f"{precision}-dropout-{dropout}"):
            yield _Variant(place, model, part, precision, dropout)


def train_preset(place: Place, model: str) -> Iterator[Result]:
    """Yields the speed, loss and memory of all starts so far.

    Each variant has a start with evaluations and a save, and a second one that loads it and checkpoints activations.
    """
    found = list[Result]()
    for variant in _variants(place, model, "run"):
        for start, checkpointing in enumerate(("none", "layer")):
            words = ["--activation-checkpointing", checkpointing, "--eval-data", str(place.shards(512, "held_out"))]
            words += ["--eval-interval", str(STEPS), "--eval-batches", "2"]
            records = variant.train(STEPS * (start + 1), *words)[STEPS * start :]
            figures = _middle(records, "tokens_per_second", "rows_per_second", "peak_memory_gb")
            figures["planned_memory_gb"] = variant.planned_gigabytes(checkpointing)
            last = {name: records[-1].get(name) for name in ("loss", "loss_scale", "overflow_steps")}
            found.append(variant.labels | {"checkpointing": checkpointing} | last | figures)
            yield {"runs": found}


def profile_preset(place: Place, model: str) -> Iterator[Result]:
    """Yields the profile of three steps of the first variant: see `benchmarks.gpu.profiled`."""
    variant = next(_variants(place, model, "profile"))
    table = variant.output.with_suffix(".kernels.json")
    variant.train(8, "--log-interval", "8", module=("benchmarks.gpu.profiled", str(table)))
    yield {"profile": variant.labels | json.loads(table.read_text(encoding="utf-8"))}


def scaling(place: Place) -> Iterator[Result]:
    """Yields tokens per second of albert-base with its preset on each of 1, 2, 4, ... and all GPUs so far."""
    world = torch.cuda.device_count() if place.on_gpu else 2
    found = list[Result]()
    for ranks in sorted({*(2**power for power in range(world.bit_length())), world}):
        variant = _Variant(place, "albert-base", "scaling", ranks=ranks)
        found.append({"gpus": ranks, **_middle(variant.train(STEPS), "tokens_per_second")})
        yield {"scaling": found}


def _middle(records: Sequence[Result], *names: str) -> dict[str, float]:
    """The medians over the second half of the steps."""
    half = records[len(records) // 2 :]
    return {name: statistics.median(record[name] for record in half) for name in names if name in half[0]}
