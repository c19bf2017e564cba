"""Sends the numbers of a run to TensorBoard, and to MLflow and Weights & Biases, which --track turns on.

DeepSpeed's own monitors cannot do it: they begin another run after a resume, and W&B drops steps that are made again.
"""

import contextlib
import functools
import importlib.util
import json
import math
import os
import queue
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError, one_line
from common.files import atomic
from common.text import markdown_table

PROJECT = "albert-pretraining"
"""The project or experiment in which services keep runs, if none is named."""
MAX_WAITING = 10_000
"""Records that wait for a tracker. Further ones are dropped; metrics.jsonl has them."""
CLOSE_SECONDS = 30.0
"""How long the end of a run waits for a tracker."""
_COUNTS = {"step", "samples", "tokens", "interval_tokens", "pairs", "predictions", "seconds", "epochs"}
_UNSAFE = re.compile(r"[^\w\-. :/]")


def curves_of(split: str, metrics: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers of a record that become curves, by tag, such as "train/loss". Counts do not."""
    if split not in ("train", "eval"):
        return {}
    numbers = {f"{split}/{name}": value for name, value in _numbers(metrics) if name not in _COUNTS}
    if ratios := dict(_numbers(metrics.get("trust_ratios") or {})):
        numbers |= {"train/trust_ratio_min": min(ratios.values()), "train/trust_ratio_max": max(ratios.values())}
    return numbers


def _numbers(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in record.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield name, float(value)


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields the settings that are not None, as dotted names and texts, such as ("optimizer.params.lr", "0.001")."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def open_tensorboard(run: Path, step: int, settings: Mapping[str, Any]) -> Any:
    """TensorBoard's writer for a run that starts at `step`; points of later steps are dropped."""
    from torch.utils.tensorboard import SummaryWriter

    _quiet_threads()
    writer = SummaryWriter(str(run / "tensorboard"), purge_step=step + 1 if step else 0, flush_secs=10)
    # The settings of each start, because some may change.
    cells = [(f"`{name}`", f"`{' '.join(text.split())}`") for name, text in flat(settings)]
    writer.add_text("settings", markdown_table(["setting", "value"], cells), step)
    return writer


@functools.cache
def _quiet_threads() -> None:
    """TensorBoard's thread keeps an error of the disk for its caller. Without this it prints a traceback as well."""
    from tensorboard.summary.writer import event_file_writer

    run = event_file_writer._AsyncWriterThread.run

    def run_quietly(thread: Any) -> None:
        with contextlib.suppress(OSError):
            run(thread)

    event_file_writer._AsyncWriterThread.run = run_quietly


class MlflowRun:
    """Logs to one MLflow run, which a resumed run continues. MLFLOW_TRACKING_URI names a server or a file store."""

    def __init__(self, name: str, known: str | None, settings: Mapping[str, Any], directory: Path) -> None:
        # MLflow 3 refuses its own file store without this variable.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client: Any = MlflowClient()
        if known is None:
            experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
            existing = self._client.get_experiment_by_name(experiment)
            number = existing.experiment_id if existing else self._client.create_experiment(experiment)
            known = self._client.create_run(number, run_name=name).info.run_id
            parameters = [Param(_UNSAFE.sub("_", key), text) for key, text in flat(settings)]
            for start in range(0, len(parameters), 100):  # MLflow's bound for one call
                self._client.log_batch(known, params=parameters[start : start + 100])
        self.id = known
        self._client.update_run(self.id, status="RUNNING")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Logs the points of one record in one call."""
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        metrics = [Metric(_UNSAFE.sub("_", tag), value, now, step) for tag, value in values.items()]
        self._client.log_batch(self.id, metrics=metrics)

    def close(self, finished: bool) -> None:
        """Ends the MLflow run: FINISHED, or KILLED if it may be resumed."""
        self._client.set_terminated(self.id, "FINISHED" if finished else "KILLED")


class WandbRun:
    """Logs to one W&B run, which a resumed run continues. W&B's own variables name project, team and mode.

    The x axis is the number `step`, because W&B's own step cannot go back after a resume.
    """

    def __init__(self, name: str, known: str | None, settings: Mapping[str, Any], directory: Path) -> None:
        import wandb

        self.id = known or secrets.token_hex(8)
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            name=name,
            id=self.id,
            resume="allow",
            dir=os.environ.get("WANDB_DIR") or str(directory),
            config=dict(settings),
            allow_val_change=True,
            # W&B asks a person at a terminal for a key; a run must not wait for an answer that never comes.
            settings=wandb.Settings(silent=True, console="off", login_timeout=10, disable_git=True, disable_code=True),
        )
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Logs the points of one record."""
        self._run.log({**values, "step": step})

    def close(self, finished: bool) -> None:
        """Ends the W&B run; one that may be resumed is marked as failed until then."""
        self._run.finish(exit_code=0 if finished else 1)


SERVICES: dict[str, Callable[..., Any]] = {"mlflow": MlflowRun, "wandb": WandbRun}
"""By name, which is also that of the package."""


def check(track: Sequence[str]) -> None:
    """Raises UserError if a package of a tracker is missing. On rank 0, which alone tracks."""
    for name in track if os.environ.get("RANK", "0") == "0" else ():
        if importlib.util.find_spec(name) is None:
            raise UserError(f"--track {name} needs the package {name}: `pip install {name}`, or leave it out")


class BackgroundTracker:
    """Opens a tracker in a thread and passes it the points: training never waits for a network.

    Prints the first error of the tracker; training goes on.

    Args:
        name: of the tracker in `SERVICES`.
        run: the run's directory.
        settings: the content of settings.json.
    """

    def __init__(self, name: str, run: Path, settings: Mapping[str, Any]) -> None:
        self._name = name
        self._tasks: queue.Queue[Callable[[Any], Any] | None] = queue.Queue(MAX_WAITING)
        self._tasks.put(lambda _: _open(name, run, settings))
        # A daemon, so that a process whose tracker does not answer can end.
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Takes the points of one record and returns at once."""
        with contextlib.suppress(queue.Full):
            self._tasks.put_nowait(lambda tracker: tracker.log(step, values))

    def close(self, finished: bool) -> None:
        """Waits until the tracker has taken everything, for CLOSE_SECONDS at most. finished: the run has ended."""
        with contextlib.suppress(queue.Full):
            for task in (lambda tracker: tracker.close(finished), None):
                self._tasks.put(task, timeout=CLOSE_SECONDS if self._thread.is_alive() else 0)
        self._thread.join(CLOSE_SECONDS)

    def _work(self) -> None:
        tracker, has_failed = None, False
        while (task := self._tasks.get()) is not None:
            try:
                tracker = task(tracker) or tracker
            except Exception as error:
                if not has_failed:
                    said = f"the tracker {self._name} failed, training goes on (metrics.jsonl has everything)"
                    print(f"{said}: {type(error).__name__}: {one_line(error)}", file=sys.stderr, flush=True)
                has_failed = True
                if tracker is None:  # it could not be opened
                    return


def _open(name: str, run: Path, settings: Mapping[str, Any]) -> Any:
    """Opens the tracker under the id by which it knows the run from an earlier start, and records that id."""
    place, path = run.resolve(), run / f"{name}.id"
    title = f"{place.parent.name}-{place.name}" if place.name.startswith("seed-") else place.name
    tracker = SERVICES[name](title, path.read_text().strip() if path.exists() else None, settings, run)
    atomic.write_text(path, f"{tracker.id}\n")
    return tracker
