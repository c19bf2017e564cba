"""The trackers that --track and the DeepSpeed JSON turn on."""

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common.errors import UserError
from pipeline.tracking.background import BackgroundTracker, Continued
from pipeline.tracking.tracker import TrackedRun, Tracker

JsonBlock = Mapping[str, Any]
DEFAULT_JOB_NAME = "DeepSpeedJobName"
"""DeepSpeed's own default. The name of the run says more."""


def _place(run: TrackedRun, block: JsonBlock, beside: str) -> Path:
    """The directory of a block with output_path and job_name; without output_path it is `beside` in the run's."""
    if not block.get("output_path"):
        return run.directory / beside
    return Path(block["output_path"]) / _job_name(run, block)


def _job_name(run: TrackedRun, block: JsonBlock) -> str:
    given = block.get("job_name", DEFAULT_JOB_NAME)
    return run.name if given == DEFAULT_JOB_NAME else str(given)


def _open_csv(run: TrackedRun, block: JsonBlock) -> Tracker:
    from pipeline.tracking.csv_files import CsvFiles

    return CsvFiles(_place(run, block, "csv"), run)


def _open_tensorboard(run: TrackedRun, block: JsonBlock) -> Tracker:
    from pipeline.tracking.tensorboard import TensorBoardFiles

    return TensorBoardFiles(Path(block["output_path"]), run, _job_name(run, block))


def _open_mlflow(run: TrackedRun, block: JsonBlock) -> Tracker:
    from pipeline.tracking.mlflow_runs import MlflowRun

    return _continued(run, "mlflow", lambda: MlflowRun(run))


def _open_wandb(run: TrackedRun, block: JsonBlock) -> Tracker:
    from pipeline.tracking.wandb_runs import WandbRun

    return _continued(run, "wandb", lambda: WandbRun(run, block))


def _open_comet(run: TrackedRun, block: JsonBlock) -> Tracker:
    from pipeline.tracking.comet_runs import CometRun

    return _continued(run, "comet", lambda: CometRun(run, block))


def _continued(run: TrackedRun, name: str, make: Callable[[], Tracker]) -> Tracker:
    """A service keeps what it has got. A run that it knows does not send it again."""
    known = run.id_of(name) is not None
    tracker = make()
    return Continued(tracker, run) if known else tracker


class Service(NamedTuple):
    """A tracker that can be turned on.

    Attributes:
        block: the key of the DeepSpeed JSON that turns it on; "" if none does.
        package: what it imports and what `pip install` calls it; None if it needs no package.
        open: opens it for a run, with the content of the JSON's block.
    """

    block: str
    package: tuple[str, str] | None
    open: Callable[[TrackedRun, JsonBlock], Tracker]


SERVICES = {
    "csv": Service("csv_monitor", None, _open_csv),
    "mlflow": Service("", ("mlflow", "mlflow"), _open_mlflow),
    "wandb": Service("wandb", ("wandb", "wandb"), _open_wandb),
    "comet": Service("comet", ("comet_ml", "comet_ml"), _open_comet),
    "tensorboard": Service("tensorboard", None, _open_tensorboard),
}
TRACK_CHOICES = tuple(name for name in SERVICES if name != "tensorboard")
"""The values of --track. RUN/tensorboard is always written."""


def wanted(track: Sequence[str], deepspeed: Mapping[str, Any]) -> dict[str, JsonBlock]:
    """The trackers that are turned on, by name, with their blocks.

    Args:
        track: the values of --track.
        deepspeed: the DeepSpeed JSON.
    """
    found: dict[str, JsonBlock] = {}
    for name, service in SERVICES.items():
        block = deepspeed.get(service.block) or {}
        if name == "tensorboard" and not block.get("output_path"):
            continue  # RUN/tensorboard has it already
        if name in track or block.get("enabled"):
            found[name] = block
    return found


def check(track: Sequence[str], deepspeed: Mapping[str, Any]) -> None:
    """Raises UserError if a package of a tracker is missing on the host of rank 0, which alone tracks."""
    if os.environ.get("RANK", "0") != "0":
        return
    for name in wanted(track, deepspeed):
        package = SERVICES[name].package
        if package is not None and importlib.util.find_spec(package[0]) is None:
            asked = f"--track {name}" if name in track else f"the block {SERVICES[name].block} of the DeepSpeed JSON"
            raise UserError(f"{asked} needs the package {package[1]}: `pip install {package[1]}`, or leave it out")


def open_all(track: Sequence[str], deepspeed: Mapping[str, Any], run: TrackedRun) -> list[Tracker]:
    """Opens the trackers that are turned on, each in a thread of its own. Called on rank 0."""

    def opener(name: str, block: JsonBlock) -> Callable[[TrackedRun], Tracker]:
        return lambda tracked: SERVICES[name].open(tracked, block)

    return [BackgroundTracker(name, opener(name, block), run) for name, block in wanted(track, deepspeed).items()]
