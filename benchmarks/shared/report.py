"""Writes results as JSON for programs and as Markdown for people, with a description of the machine."""

import datetime
import importlib.metadata
import json
import math
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from common.files import atomic
from pipeline.engine.hardware import processor as processor


def seeds_interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean over the seeds, and half of its 95 % interval (Student's t); NaN for one value."""
    from scipy import stats

    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, math.nan
    quantile = float(stats.t.ppf(0.975, len(values) - 1))
    return mean, quantile * statistics.stdev(values) / math.sqrt(len(values))


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def describe(device: torch.device) -> dict[str, Any]:
    """Format, date, device, hardware and versions."""
    found = describe_host("gpu 1", ("torch", "transformers")) | {"device": device.type}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["hardware"] = {"name": properties.name, "memory_bytes": properties.total_memory}
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
        found["versions"] |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), "nccl": nccl}
    return found


def describe_host(kind: str, packages: Sequence[str] = ()) -> dict[str, Any]:
    """Format, date, processor with cores and load, and the versions of Python and of `packages`."""
    return {
        "format": kind,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "hardware": {"name": processor(), "cores": cores(), "load": round(os.getloadavg()[0], 1)},
        "versions": {"python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in packages},
    }


def publish(out: Path | None, result: dict[str, Any], tables: str, title: str = "") -> None:
    """Prints `tables`. Unless `out` is None, writes them below `title`, with `result` beside them, as `write` does."""
    print(tables)
    if out is not None:
        write(out, result, f"# {title}\n\n{tables}" if title else tables)


def write(name: Path, result: dict[str, Any], page: str) -> None:
    """Writes `result` to `name`.json, and the Markdown `page` to `name`.md."""
    name.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_text(name.with_name(name.name + ".json"), json.dumps(result, indent=2) + "\n")
    atomic.write_text(name.with_name(name.name + ".md"), page + "\n")
