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
from common.text import markdown_table
from pipeline.engine.hardware import processor as processor

FORMAT = "train_step 1"
"""Format of a result file of train_step."""


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
    """Format, date, hardware and versions."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        hardware: dict[str, Any] = {"name": properties.name, "memory_bytes": properties.total_memory}
        libraries = {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
        libraries["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    else:
        hardware, libraries = {"name": processor(), "threads": torch.get_num_threads()}, {}
    return {
        "format": FORMAT,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": device.type,
        "hardware": hardware,
        "versions": {"python": platform.python_version(), "torch": torch.__version__, **libraries} | _transformers(),
    }


def _transformers() -> dict[str, str]:
    """The version of `transformers`, which is a requirement of developers: not every measurement needs it."""
    try:
        return {"transformers": importlib.metadata.version("transformers")}
    except importlib.metadata.PackageNotFoundError:
        return {}


def describe_host(kind: str, packages: Sequence[str] = ()) -> dict[str, Any]:
    """Format, date, processor with cores and load, and the versions of Python and of `packages`."""
    return {
        "format": kind,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "hardware": {"name": processor(), "cores": cores(), "load": round(os.getloadavg()[0], 1)},
        "versions": {"python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in packages},
    }


def markdown(result: dict[str, Any]) -> str:
    """The measurements as a table."""
    hardware, versions = result["hardware"], result["versions"]
    threads = f", {hardware['threads']} threads" if "threads" in hardware else ""
    on_gpu = result["device"] == "cuda"
    memory = "peak memory of a step" if on_gpu else "tensors kept for backward"
    lines = [
        f"{hardware['name']}{threads}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + f"; {result['date']}",
        "",
    ]
    header = ("model", "precision", "text", "micro-batch", "system", "tokens/s", "times as fast", memory, "share")
    rows = []
    for row in result["measurements"]:
        product = result["matrix_product_tflops"][row["precision"]]
        speedup = f"{row['speedup']:.2f}" if "speedup" in row else ""
        share = f"{row['memory_ratio']:.2f}" if "memory_ratio" in row else ""
        tflops = f"{row['tflops']:.2f} ({100 * row['packed_tflops'] / product:.0f} %)" if "tflops" in row else ""
        labels = [row[name] for name in ("model", "precision", "text", "micro_batch", "system")]
        figures = [f"{row['tokens_per_second']:,.0f}", speedup, f"{row['memory_bytes'] / 2**20:,.0f} MiB", share]
        rows.append([*labels, *figures, tflops])
    lines.append(markdown_table([*header, "TFLOP/s"], rows))
    products = ", ".join(f"{name} {speed:.2f}" for name, speed in sorted(result["matrix_product_tflops"].items()))
    lines += [
        "",
        "Tokens a second, padding not counted: forward, backward and LAMB update, medians of alternating rounds; times "
        "as fast: the median of the rounds' ratios. TFLOP/s by the formula of `model/counts.py`, in brackets "
        "those without attention between the sequences of a row, as a share of a large matrix product in the same run "
        f" ({products} TFLOP/s).",
    ]
    lines.append("")
    differences = {row["precision"]: row["loss_difference"] for row in result["measurements"]}
    differ = ", ".join(f"{difference:.0e} in {precision}" for precision, difference in differences.items())
    lines.append(f"Before the first step the two systems' MLM losses on the same examples differ by {differ}.")
    return "\n".join(lines)


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
