"""What the pages of `make gpu` show about a kind of GPU (docs/gpu.md). They are in a checkout's benchmarks/results/."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from common.files.json_files import read_as

FORMAT = "gpu 1"
RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


@dataclass(frozen=True)
class Shown:
    """What a page shows about a feature: whether the tests found it equal, and how many times as fast each step is."""

    equal: bool
    gains: list[float]


@dataclass(frozen=True)
class PageHardware:
    """The GPU that was measured."""

    name: str


@dataclass(frozen=True)
class Page:
    """The keys of a result file that are read here."""

    format: str
    device: str
    date: str
    hardware: PageHardware
    features: dict[str, Shown] = field(default_factory=dict)


def find(is_wanted: Callable[[str], bool]) -> Path | None:
    """The newest result file of a GPU whose device name is wanted; None if there is none.

    Raises:
        UserError: a result file is damaged.
    """
    found = [(page.date, path) for path, page in _all() if is_wanted(page.hardware.name)]
    return max(found)[1] if found else None


def is_shown_faster(feature: str, device_name: str) -> bool:
    """Whether a feature is equal and nowhere slower on a GPU of this name, and somewhere faster.

    Args:
        feature: "compile" or "cuda_graphs".
        device_name: of the GPU, as its driver says it.
    Raises:
        UserError: a result file is damaged.
    """
    pages = [page for _, page in _all() if page.hardware.name == device_name]
    if not pages:
        return False
    shown = max(pages, key=lambda page: page.date).features.get(feature)
    return shown is not None and shown.equal and min(shown.gains, default=0.0) >= 1.0 and max(shown.gains) > 1.0


def _all() -> list[tuple[Path, Page]]:
    remedy = "restore it, or delete it and run `make gpu` again"
    pages = [(path, read_as(path, Page, remedy, extra="ignore")) for path in sorted(RESULTS.glob("gpu-*.json"))]
    return [(path, page) for path, page in pages if page.format == FORMAT and page.device == "cuda"]
