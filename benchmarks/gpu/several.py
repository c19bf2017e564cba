"""Several GPUs: the bandwidth of sums between them, and the speed of the same training on more of them."""

import json
import os
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

from benchmarks.gpu.place import Place
from benchmarks.shared.job import Job
from pipeline.distributed.ports import reserve_port

MEGABYTES = (1, 16, 128, 512)
REPEATS = 10
STEPS = 30


def world_size(place: Place) -> int:
    """The GPUs of this machine; 2 processes on a processor."""
    return torch.cuda.device_count() if place.on_gpu else 2


def bandwidth(place: Place) -> dict[str, Any]:
    """GB/s of all-reduces of several sizes over all GPUs: bytes that each sends and receives in a ring."""
    port, result, world = reserve_port(), place.out / "network-result.json", world_size(place)
    sizes = [1] if place.tiny else list(MEGABYTES)
    torch.multiprocessing.spawn(_reduce, (world, port, place.on_gpu, sizes, result), nprocs=world)
    return {"gpus": world, "network": json.loads(result.read_text(encoding="utf-8"))}


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


def scaling(place: Place) -> dict[str, Any]:
    """Tokens per second of pre-training with the same micro-batch on each of 1, 2, 4, ... and all GPUs."""
    world, found = world_size(place), []
    for ranks in sorted({*(2**power for power in range(world.bit_length())), world}):
        config = {
            "train_batch_size": 8 * ranks if place.tiny else 64 * ranks,
            "train_micro_batch_size_per_gpu": 8 if place.tiny else 64,
            "optimizer": {"type": "Lamb", "params": {"lr": 0.001}},
            "zero_optimization": {"stage": 1, "reduce_bucket_size": 50_000_000, "allgather_bucket_size": 50_000_000},
        }
        path = place.out / f"scaling-{ranks}.json.config"
        path.write_text(json.dumps(config), encoding="utf-8")
        words = ["--model", "albert-tiny" if place.tiny else "albert-base", "--data", str(place.shards(512))]
        words += ["--deepspeed_config", str(path), "--steps", str(4 if place.tiny else STEPS), "--log-interval", "1"]
        words += ["--precision", "fp16" if place.on_gpu else "fp32"]
        job = Job(words, place.out / f"scaling-{ranks}", ranks, place.device.type)
        shutil.rmtree(job.output, ignore_errors=True)  # a finished run would not be measured again
        job.finish()
        found.append({"gpus": ranks, "tokens_per_second": statistics.median(speeds(job.output))})
    return {"scaling": found}


def speeds(run: Path) -> list[float]:
    """Tokens per second of the second half of a run's steps."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    found = [line["tokens_per_second"] for line in lines if line["split"] == "train"]
    return found[len(found) // 2 :]
