"""The parts of `make gpu`. Each measures one thing in less than ten minutes and returns what goes into its file."""

import itertools
import json
import shutil
import statistics
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing

from benchmarks.gpu import speed
from benchmarks.gpu.place import Place
from benchmarks.shared.job import Job, one_card_backend
from benchmarks.shared.texts import REPOSITORY
from data_prep.format.pairs import max_pairs
from model import AlbertConfig
from pipeline.data.collate import BatchShape
from pipeline.data.masking import MaskingSettings
from pipeline.engine import deepspeed_config as engine_config
from pipeline.engine.estimates import Plan
from pipeline.engine.hardware import GPUS, Cluster, Hardware

Result = dict[str, Any]
LIMIT_SECONDS = 590
"""After so long a part is ended. Runs of training go on at the next start."""
TEST_FILES = {"kernels": 1, "models": 1, "training": 1, "several_devices": 2}
"""Files of tests/gpu/, and the GPUs that each needs."""
TESTS = REPOSITORY / "tests" / "gpu"
SCALING_STEPS, PRESET_STEPS = 30, 15


@dataclass(frozen=True)
class Part:
    """One part.

    Attributes:
        name: of the part and its file.
        what: it measures.
        run: measures it, or yields what has been measured so far.
        gpus: that it needs.
    """

    name: str
    what: str
    run: Callable[[Place], Result | Iterator[Result]]
    gpus: int = 1


def parts() -> list[Part]:
    """All parts, in their order."""
    found = [
        Part(f"run-{model}", "a run of its preset through DeepSpeed's engine", partial(train_preset, model=model))
        for model in speed.MODELS
    ]
    found += [
        Part(f"profile-{model}", "three steps of that run: kernels, gaps, waits", partial(profile_preset, model=model))
        for model in speed.MODELS
    ]
    found += [
        Part(f"tests-{name}", f"the tests of tests/gpu/test_{name}.py", partial(run_tests, name=name), gpus)
        for name, gpus in TEST_FILES.items()
    ]
    for model in speed.MODELS:
        for length in speed.LENGTHS:
            for precision in speed.PRECISIONS:
                what = f"{model} at {length} tokens in {precision}: speed, and the gain of each feature"
                run = partial(speed.measure, model=model, length=length, precision=precision)
                found.append(Part(f"speed-{model}-{length}-{precision}", what, run))
    return [
        *found,
        Part("several-ranks", "the tests of several devices with 2 and 4 ranks on one", several_ranks),
        Part("scaling", "the same training on more GPUs", scaling, gpus=2),
    ]


def several_ranks(place: Place) -> Result:
    """Runs the tests of several devices with all ranks on one, and says by what they talk."""
    return {"backend": one_card_backend(place.device.type)} | run_tests(place, "several_devices", "one_card")


def run_tests(place: Place, name: str, kind: str = "") -> Result:
    """Runs a file of tests/gpu/: the tests of a GPU, or of a processor if the place is one.

    Of the tests of a GPU, those with `kind` in their names.

    Returns the outcome of each test: "passed", "failed: ..." or "skipped: ...".
    """
    report = place.out / f"{'-'.join(filter(None, ['tests', name, kind]))}.xml"
    which = "gpu" if place.on_gpu else "not gpu"
    words = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", "-m", which, str(TESTS / f"test_{name}.py")]
    kinds = kind if place.on_gpu else ""
    only = f"({' or '.join(place.only)})" if place.only else ""
    words += ["-k", " and ".join(filter(None, [kinds, only]))]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=TESTS.parents[1], capture_output=True, text=True
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {done.returncode}: {(done.stdout + done.stderr)[-1000:]}")
    return {"tests": outcomes(report)}


def outcomes(report: Path) -> dict[str, str]:
    """The outcome of each test in a JUnit file that pytest wrote."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        told = "passed"
        for kind in ("failure", "error", "skipped"):
            for one in case.findall(kind):
                told = f"{'skipped' if kind == 'skipped' else 'failed'}: {one.get('message', '').splitlines()[0][:200]}"
        found[case.get("name", "")] = told
    return found


def world_size(place: Place) -> int:
    """The GPUs of this machine; 2 processes on a processor."""
    return torch.cuda.device_count() if place.on_gpu else 2


def scaling(place: Place) -> Result:
    """Tokens per second of pre-training with the same micro-batch on each of 1, 2, 4, ... and all GPUs."""
    world, found = world_size(place), []
    for ranks in sorted({*(2**power for power in range(world.bit_length())), world}):
        config = {
            "train_batch_size": 8 * ranks if place.tiny else 64 * ranks,
            "train_micro_batch_size_per_gpu": 8 if place.tiny else 64,
            "optimizer": {"type": "Lamb", "params": {"lr": 0.001}},
            "zero_optimization": {"stage": 1, "reduce_bucket_size": 50_000_000, "allgather_bucket_size": 50_000_000},
        }
        words = ["--steps", str(4 if place.tiny else SCALING_STEPS)]
        words += ["--precision", "fp16" if place.on_gpu else "fp32"]
        run = place.out / f"scaling-{ranks}"
        shutil.rmtree(run, ignore_errors=True)  # a finished run would not be measured again
        records = _train(place, run, "albert-base", config, words, ranks)
        found.append({"gpus": ranks, **_middle(records, "tokens_per_second")})
    return {"scaling": found}


def train_preset(place: Place, model: str) -> Iterator[Result]:
    """Trains as the preset of a model does, but with four micro-batches a step: DeepSpeed's engine and the trainer.

    Micro-batch, clipping and LAMB are those of the preset. Each variant, a precision and a rate of dropout, has a start
    with evaluations and a save, and a second one that loads it and checkpoints activations. Yields the figures of all
    starts so far. The planned memory stands beside the measured peak.
    """
    name, config = _preset(place, model)
    rows, found = config["train_micro_batch_size_per_gpu"], list[Result]()
    for dropout, precision in itertools.product((0.1, 0.0), ("fp16", "bf16") if place.on_gpu else ("fp32",)):
        variant = f"{precision}-dropout-{dropout}"
        if not place.takes(variant):
            continue
        run = place.out / f"run-{model}-{variant}"
        shutil.rmtree(run, ignore_errors=True)
        labels = {"model": model, "preset": name, "precision": precision, "dropout": dropout, "micro_batch": rows}
        for start, checkpointing in enumerate(("none", "layer")):
            words = [*_flags(place, precision, dropout), "--steps", str(PRESET_STEPS * (start + 1))]
            words += ["--activation-checkpointing", checkpointing, "--eval-data", str(place.held_out(512))]
            words += ["--eval-interval", str(PRESET_STEPS), "--eval-batches", "2"]
            records = _train(place, run, model, config, words)[PRESET_STEPS * start :]
            figures = _middle(records, "tokens_per_second", "rows_per_second", "peak_memory_gb")
            figures["planned_memory_gb"] = _planned_gigabytes(run, checkpointing)
            last = {name: records[-1][name] for name in ("loss", "loss_scale", "overflow_steps") if name in records[-1]}
            found.append(labels | {"checkpointing": checkpointing} | last | figures)
            yield {"runs": found}


def profile_preset(place: Place, model: str) -> Result:
    """Profiles three steps of `train_preset`'s first variant that is chosen: see `benchmarks.gpu.profiled`."""
    name, config = _preset(place, model)
    run, table = place.out / f"profile-{model}", place.out / f"profile-{model}-kernels.json"
    shutil.rmtree(run, ignore_errors=True)
    precision, dropout = "fp16" if place.on_gpu else "fp32", 0.0 if place.only == ("dropout-0.0",) else 0.1
    if "bf16" in place.only:
        precision = "bf16"
    words = [*_flags(place, precision, dropout), "--steps", "8"]
    _train(place, run, model, config, words, module=("benchmarks.gpu.profiled", str(table)))
    labels = {"model": model, "preset": name, "precision": precision, "dropout": dropout}
    return {"profile": labels | json.loads(table.read_text(encoding="utf-8"))}


def _preset(place: Place, model: str) -> tuple[str, Result]:
    """The name and the JSON of a model's preset for this device, with four micro-batches a step."""
    large = place.on_gpu and torch.cuda.get_device_properties(0).total_memory > 70e9
    name = "tiny" if place.tiny else f"{model.removeprefix('albert-')}{'-80gb' if large else ''}"
    config = json.loads((REPOSITORY / "ds_configs" / f"{name}.json").read_text(encoding="utf-8"))
    rows = 2 if place.tiny else config.get("train_micro_batch_size_per_gpu", 16)
    return name, config | {"train_batch_size": 4 * rows, "train_micro_batch_size_per_gpu": rows}


def _flags(place: Place, precision: str, dropout: float) -> list[str]:
    rates = [f"{name}_dropout_prob={dropout}" for name in ("hidden", "attention_probs")]
    return ["--precision", precision, "--model-args", *rates]


def _planned_gigabytes(run: Path, checkpointing: str) -> float:
    """The memory that the plan gives the last start of a run."""
    settings = json.loads((run / "settings.json").read_text(encoding="utf-8"))
    model, json_of_run = AlbertConfig.from_dict(settings["model"]), run.with_suffix(".deepspeed.json")
    hardware = Hardware(settings["device"], fp16=True, bf16=True)
    engine = engine_config.fit(engine_config.load(json_of_run), 1, hardware, settings["precision"])
    length = model.max_position_embeddings
    shape = BatchShape(length, max_pairs(length), MaskingSettings().max_predictions(length))
    cluster = Cluster(GPUS["h100"], 1, 1)  # which one means nothing for the memory
    return Plan(model, engine, cluster, shape, checkpointing, tflops=1.0, steps=1).memory.total / 1e9


def _train(
    place: Place,
    run: Path,
    model: str,
    config: Result,
    words: Sequence[str],
    ranks: int = 1,
    module: tuple[str, ...] = ("pipeline.pretrain",),
) -> list[dict[str, Any]]:
    """The records of the training steps of a run."""
    path = run.with_suffix(".deepspeed.json")
    path.write_text(json.dumps(config), encoding="utf-8")
    flags = ["--model", "albert-tiny" if place.tiny else model, "--data", str(place.shards(512))]
    Job(
        [*flags, "--deepspeed_config", str(path), "--log-interval", "1", *words], run, ranks, place.device.type, module
    ).finish()
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line["split"] == "train"]


def _middle(records: Sequence[dict[str, Any]], *names: str) -> dict[str, float]:
    """The medians over the second half of the steps."""
    half = records[len(records) // 2 :]
    return {name: statistics.median(record[name] for record in half) for name in names if name in half[0]}
