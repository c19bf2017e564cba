"""What the pages of `make gpu` show about a kind of GPU (docs/gpu.md). They are in a checkout's benchmarks/results/."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

FORMAT = "gpu 1"
RESULTS = Path(__file__).resolve().parents[3] / "benchmarks" / "results"


def find(is_wanted: Callable[[str], bool]) -> Path | None:
    """The newest result file of a GPU whose device name is wanted; None if there is none."""
    found = [(result["date"], path) for path, result in _all() if is_wanted(result["hardware"]["name"])]
    return max(found)[1] if found else None


def is_shown_faster(feature: str, device_name: str) -> bool:
    """Whether a feature is equal and nowhere slower on a GPU of this name, and somewhere faster.

    Args:
        feature: "compile" or "cuda_graphs".
        device_name: of the GPU, as its driver says it.
    """
    path = find(lambda name: name == device_name)
    if path is None:
        return False
    shown = json.loads(path.read_text(encoding="utf-8")).get("features", {}).get(feature, {})
    gains = shown.get("gains", [])
    return bool(shown.get("equal") and gains and min(gains) >= 1.0 and max(gains) > 1.0)


def _all() -> list[tuple[Path, dict[str, Any]]]:
    results = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(RESULTS.glob("gpu-*.json"))]
    return [(path, result) for path, result in results if result["format"] == FORMAT and result["device"] == "cuda"]
