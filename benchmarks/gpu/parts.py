"""The parts of `make gpu`. Each measures one thing in less than ten minutes and returns what goes into its file."""

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

from benchmarks.gpu import speed
from benchmarks.gpu.place import Place
from benchmarks.shared.job import Job
from benchmarks.shared.texts import REPOSITORY
from data_prep.format.pairs import max_pairs
from model import AlbertConfig
from pipeline.data.collate import BatchShape
from pipeline.data.masking import MaskingSettings
from pipeline.distributed.rendezvous import reserve_port
from pipeline.engine import deepspeed_config as engine_config
from pipeline.engine.estimates import Plan
from pipeline.engine.hardware import GPUS, Cluster, Hardware

Result = dict[str, Any]
LIMIT_SECONDS = 590
"""After so long a part is ended. Runs of training go on at the next start."""
TEST_FILES = ("kernels", "models", "training")
TESTS = REPOSITORY / "tests" / "gpu"
DEMO_STEPS = 3000
"""Steps of `make demo`: about two minutes on a GPU."""
SCALING_STEPS, PRESET_STEPS = 30, 6
MEGABYTES = (1, 16, 128, 512)
"""Of the sums between GPUs."""
REPEATS = 10


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
        Part(f"tests-{name}", f"the tests of tests/gpu/test_{name}.py", partial(run_tests, name=name))
        for name in TEST_FILES
    ]
    for model in speed.MODELS:
        for length in speed.LENGTHS:
            for precision in speed.PRECISIONS:
                what = f"{model} at {length} tokens in {precision}: speed, and the gain of each feature"
                run = partial(speed.measure, model=model, length=length, precision=precision)
                found.append(Part(f"speed-{model}-{length}-{precision}", what, run))
    return [
        *found,
        Part("network", "bandwidth of sums between the GPUs", bandwidth, gpus=2),
        Part("scaling", "the same training on more GPUs", scaling, gpus=2),
        Part("demo-gpu", "the run of make demo, in fp16", partial(train_demo, on_gpu=True)),
        Part("demo-processor", "the run of make demo, on the processor", partial(train_demo, on_gpu=False)),
    ]


def run_tests(place: Place, name: str) -> Result:
    """Runs a file of tests/gpu/: the tests of a GPU, or of a processor if the place is one.

    Returns the outcome of each test: "passed", "failed: ..." or "skipped: ...".
    """
    report = place.out / f"tests-{name}.xml"
    which = "gpu" if place.on_gpu else "not gpu"
    words = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", "-m", which, str(TESTS / f"test_{name}.py")]
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


def train_demo(place: Place, on_gpu: bool) -> Result:
    """Makes the run of `make demo`, on the GPU in fp16 or on the processor: their losses must fall alike.

    Trains on the shards of `make demo`, or on made-up text without them. A second call goes on.

    Returns:
        The text, the seconds, and the losses by step.
    """
    demo = REPOSITORY / "demo" / "shards"
    is_there = (demo / "train" / "manifest.json").exists() and not place.tiny
    data, held_out = (demo / "train", demo / "held_out") if is_there else (place.shards(128), place.held_out(128))
    steps, interval = (8, 4) if place.tiny else (DEMO_STEPS, 250)
    words = ["--model", "albert-tiny", "--data", str(data), "--eval-data", str(held_out)]
    words += ["--deepspeed_config", "ds_configs/demo.json", "--mask-probability", "0.3", "--steps", str(steps)]
    words += ["--log-interval", str(interval), "--eval-interval", str(2 * interval), "--eval-batches", "20"]
    words += ["--save-interval", str(2 * interval), "--precision", "fp16" if on_gpu and place.on_gpu else "fp32"]
    device = place.device.type if on_gpu else "cpu"
    ranks = 1 if on_gpu else 2
    job = Job(words, place.out / f"demo-{'gpu' if on_gpu else 'processor'}", ranks, device)
    job.finish()
    records = [json.loads(line) for line in (job.output / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    last = [record for record in records if record["split"] == "train"][-1]
    return {
        "text": "of make demo" if is_there else "made up",
        "seconds": last["seconds"],
        "training": {str(one["step"]): one["loss"] for one in records if one["split"] == "train"},
        "evaluation": {str(one["step"]): one["mlm_loss"] for one in records if one["split"] == "eval"},
    }


def world_size(place: Place) -> int:
    """The GPUs of this machine; 2 processes on a processor."""
    return torch.cuda.device_count() if place.on_gpu else 2


def bandwidth(place: Place) -> Result:
    """GB/s of all-reduces of several sizes over all GPUs: bytes that each sends and receives in a ring."""
    port, result, world = reserve_port(), place.out / "network-result.json", world_size(place)
    sizes = [1] if place.tiny else list(MEGABYTES)
    torch.multiprocessing.spawn(_reduce, (world, port, place.on_gpu, sizes, result), nprocs=world)
    topology = ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        topology = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=60).stdout
    return {"gpus": world, "network": json.loads(result.read_text(encoding="utf-8")), "topology": topology}


def _reduce(rank: int, world: int, port: int, on_gpu: bool, sizes: list[int], result: Path) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("nccl" if on_gpu else "gloo", rank=rank, world_size=world)
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    found = []
    for megabytes in sizes:
        numbers = torch.zeros(megabytes * 500_000, dtype=torch.float16, device=device)
        seconds = []
        for _ in range(REPEATS + 2):
            began = time.perf_counter()
            dist.all_reduce(numbers)
            if on_gpu:
                torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - began)
        middle = statistics.median(seconds[2:])
        sent = 2 * (world - 1) / world * 1e6 * megabytes
        found.append({"megabytes": megabytes, "seconds": middle, "gigabytes_per_second": sent / middle / 1e9})
    if rank == 0:
        result.write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


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

    Dropout, precision, micro-batch, clipping and LAMB are those of the preset. Yields the figures of a start with
    evaluations and a save, and of a second one that loads it and checkpoints activations. The planned memory of both
    stands beside the measured peak.
    """
    large = place.on_gpu and torch.cuda.get_device_properties(0).total_memory > 70e9
    name = "tiny" if place.tiny else f"{model.removeprefix('albert-')}{'-80gb' if large else ''}"
    config = json.loads((REPOSITORY / "ds_configs" / f"{name}.json").read_text(encoding="utf-8"))
    rows = 2 if place.tiny else config.get("train_micro_batch_size_per_gpu", 16)
    config |= {"train_batch_size": 4 * rows, "train_micro_batch_size_per_gpu": rows}
    run, found = place.out / f"run-{model}", list[Result]()
    shutil.rmtree(run, ignore_errors=True)
    for start, checkpointing in enumerate(("none", "layer")):
        words = ["--steps", str(PRESET_STEPS * (start + 1)), "--activation-checkpointing", checkpointing]
        words += ["--eval-data", str(place.held_out(512)), "--eval-interval", str(PRESET_STEPS), "--eval-batches", "2"]
        records = _train(place, run, model, config, words)[PRESET_STEPS * start :]
        figures = _middle(records, "tokens_per_second", "rows_per_second", "peak_memory_gb")
        figures["planned_memory_gb"] = _planned_gigabytes(run, checkpointing)
        labels = {"model": model, "preset": name, "micro_batch": rows, "checkpointing": checkpointing}
        found.append(labels | {"loss": records[-1]["loss"]} | figures)
        yield {"runs": found}


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
    place: Place, run: Path, model: str, config: Result, words: Sequence[str], ranks: int = 1
) -> list[dict[str, Any]]:
    """The records of the training steps of a run."""
    path = run.with_suffix(".deepspeed.json")
    path.write_text(json.dumps(config), encoding="utf-8")
    flags = ["--model", "albert-tiny" if place.tiny else model, "--data", str(place.shards(512))]
    Job(
        [*flags, "--deepspeed_config", str(path), "--log-interval", "1", *words], run, ranks, place.device.type
    ).finish()
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line["split"] == "train"]


def _middle(records: Sequence[dict[str, Any]], *names: str) -> dict[str, float]:
    """The medians over the second half of the steps."""
    half = records[len(records) // 2 :]
    return {name: statistics.median(record[name] for record in half) for name in names if name in half[0]}
