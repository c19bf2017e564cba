"""What two runs that should be equal have in the end."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipeline.checkpoint.checkpoint_manifest import check
from pipeline.checkpoint.files import read_whole
from pipeline.checkpoint.retention import find_latest
from pipeline.engine.optimizers import KINDS

BY_THE_CLOCK = {
    *("seconds", "tokens_per_second", "rows_per_second", "tokens_per_second_per_gpu", "rows_per_second_per_gpu"),
    *("tflops_per_gpu", "peak_share", "data_wait_share", "peak_memory_gb"),
}
"""Keys of `metrics.jsonl` that depend on time, or on when a process was started."""


def records(run: Path) -> list[dict[str, Any]]:
    """The records of training and evaluations without keys of `BY_THE_CLOCK`."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [{k: v for k, v in line.items() if k not in BY_THE_CLOCK} for line in lines if line["split"] != "save"]


def outcome(run: Path) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """What is compared of a run: its records, and its newest checkpoint's tensors."""
    newest = find_latest(run / "checkpoints", content=True)
    assert newest is not None, f"{run} has no checkpoint"
    manifest = check(newest)
    tensors = {kind: read_whole(newest, manifest, kind) for kind in KINDS}
    return records(run), {f"{kind}/{name}": tensor for kind in KINDS for name, tensor in tensors[kind].items()}


def differences(found: Path, wanted: Path) -> list[str]:
    """The names of what differs, bit for bit, between two finished runs; empty if nothing does."""
    (own_records, tensors), (wanted_records, wanted_tensors) = outcome(found), outcome(wanted)
    told = [] if own_records == wanted_records else ["metrics"]
    told += sorted(set(tensors) ^ set(wanted_tensors))
    return told + [name for name in tensors if not torch.equal(tensors[name], wanted_tensors.get(name, torch.empty(0)))]
