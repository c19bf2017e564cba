"""MLflow and Weights & Biases, which --track turns on. Each has a thread: training never waits for a network."""

import contextlib
import importlib.util
import os
import queue
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from common.errors import UserError, one_line
from pipeline.tracking.tracker import Scalars, TrackedRun, Tracker, shown, shown_flat

PROJECT = "albert-pretraining"
"""The project or experiment in which services keep runs, if none is named."""
MAX_WAITING = 10_000
"""Records that wait for a tracker. Further ones are dropped; metrics.jsonl has them."""
CLOSE_SECONDS = 30.0
"""How long the end of a run waits for a tracker."""
_LOGIN_SECONDS = 10  # W&B asks a person at a terminal for a key; a run must not wait for an answer that never comes
_MLFLOW_PARAMETERS = 100  # MLflow's bound for one call
_UNSAFE = re.compile(r"[^\w\-. :/]")

JsonBlock = Mapping[str, Any]


class MlflowRun:
    """Logs to one MLflow run, which a resumed run continues. MLFLOW_TRACKING_URI names a server or a file store."""

    def __init__(self, run: TrackedRun, block: JsonBlock) -> None:
        uri = os.environ.get("MLFLOW_TRACKING_URI", "")
        if uri.startswith("file:") or (uri and "://" not in uri):
            # MLflow 3 refuses its own file store without this variable.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        self._client: Any = MlflowClient()
        known = run.id_of("mlflow")
        self._id = self._start(run) if known is None else known
        self._client.update_run(self._id, status="RUNNING")

    def log(self, scalars: Scalars) -> None:
        """Logs the scalars of one record in one call."""
        from mlflow.entities import Metric

        now = round(1000 * time.time())
        values = scalars.values | scalars.consumed
        metrics = [Metric(_UNSAFE.sub("_", tag), value, now, scalars.step) for tag, value in values.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self, finished: bool) -> None:
        """Ends the MLflow run: FINISHED, or KILLED if it may be resumed."""
        self._client.set_terminated(self._id, "FINISHED" if finished else "KILLED")

    def _start(self, run: TrackedRun) -> str:
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        number = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        identifier: str = self._client.create_run(number, run_name=run.name).info.run_id
        run.remember("mlflow", identifier)
        parameters = [Param(_UNSAFE.sub("_", key), str(value)) for key, value in shown_flat(run.settings).items()]
        for start in range(0, len(parameters), _MLFLOW_PARAMETERS):
            self._client.log_batch(identifier, params=parameters[start : start + _MLFLOW_PARAMETERS])
        return identifier


class WandbRun:
    """Logs to one W&B run, which a resumed run continues; WANDB_MODE=offline needs no network.

    The x axis is the number `step`, because W&B's own step cannot go back after a resume. The `wandb` block of the
    DeepSpeed JSON has project, group and team.
    """

    def __init__(self, run: TrackedRun, block: JsonBlock) -> None:
        import wandb

        identifier = run.id_of("wandb") or secrets.token_hex(8)
        self._run: Any = wandb.init(
            project=block.get("project") or os.environ.get("WANDB_PROJECT") or PROJECT,
            group=block.get("group"),
            entity=block.get("team"),
            name=run.name,
            id=identifier,
            resume="allow",
            dir=os.environ.get("WANDB_DIR") or str(run.directory),
            config=shown(run.settings),
            allow_val_change=True,
            settings=wandb.Settings(
                silent=True, console="off", login_timeout=_LOGIN_SECONDS, disable_git=True, disable_code=True
            ),
        )
        run.remember("wandb", identifier)
        for axis in ("step", "tokens", "epochs"):
            self._run.define_metric(axis, hidden=True)
        self._run.define_metric("*", step_metric="step")

    def log(self, scalars: Scalars) -> None:
        """Logs the scalars of one record."""
        self._run.log({**scalars.values, **scalars.consumed, "step": scalars.step})

    def close(self, finished: bool) -> None:
        """Ends the W&B run; one that may be resumed is marked as failed until then."""
        self._run.finish(exit_code=0 if finished else 1)


SERVICES: dict[str, Callable[[TrackedRun, JsonBlock], Tracker]] = {"mlflow": MlflowRun, "wandb": WandbRun}
"""By name, which is also that of the package and, for W&B, of the block in the DeepSpeed JSON."""
TRACK_CHOICES = tuple(SERVICES)


def wanted(track: Sequence[str], deepspeed: Mapping[str, Any]) -> dict[str, JsonBlock]:
    """The trackers that --track or the DeepSpeed JSON turns on, by name, with their blocks."""
    blocks = {name: deepspeed.get(name) or {} for name in SERVICES}
    return {name: block for name, block in blocks.items() if name in track or block.get("enabled")}


def check(track: Sequence[str], deepspeed: Mapping[str, Any]) -> None:
    """Raises UserError if a package of a tracker is missing. On rank 0, which alone tracks."""
    for name in wanted(track, deepspeed) if os.environ.get("RANK", "0") == "0" else ():
        if importlib.util.find_spec(name) is None:
            asked = f"--track {name}" if name in track else f"the block {name} of the DeepSpeed JSON"
            raise UserError(f"{asked} needs the package {name}: `pip install {name}`, or leave it out")


def open_all(track: Sequence[str], deepspeed: Mapping[str, Any], run: TrackedRun) -> list["BackgroundTracker"]:
    """Opens the trackers that are turned on. Called on rank 0."""
    return [BackgroundTracker(name, block, run) for name, block in wanted(track, deepspeed).items()]


class BackgroundTracker:
    """Opens a tracker in a thread and passes it the scalars. Prints its first error; training goes on.

    Args:
        name: of the tracker in `SERVICES`.
        close_seconds: how long `close` waits for it.
    """

    def __init__(self, name: str, block: JsonBlock, run: TrackedRun, close_seconds: float = CLOSE_SECONDS) -> None:
        self._name, self._open, self._close_seconds = name, lambda: SERVICES[name](run, block), close_seconds
        self._waiting: queue.Queue[Scalars | bool] = queue.Queue(MAX_WAITING)
        self._complained = False
        # A daemon, so that a process whose tracker does not answer can end.
        self._thread = threading.Thread(target=self._work, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def log(self, scalars: Scalars) -> None:
        """Takes the scalars of one record and returns at once."""
        try:
            self._waiting.put_nowait(scalars)
        except queue.Full:
            self._complain(f"{MAX_WAITING:,} records wait for it")

    def close(self, finished: bool) -> None:
        """Waits until the tracker has taken everything, but no longer than `close_seconds`."""
        deadline = time.monotonic() + self._close_seconds
        with contextlib.suppress(queue.Full):
            self._waiting.put(finished, timeout=self._close_seconds)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self._complain(f"it did not take its last records within {self._close_seconds:g} s")

    def _work(self) -> None:
        """The thread: passes on what waits, up to the word whether the run has finished."""
        tracker: Tracker | None = None
        with self._complaining():
            tracker = self._open()
        while not isinstance(item := self._waiting.get(), bool):
            with self._complaining():
                if tracker is not None:
                    tracker.log(item)
        with self._complaining():
            if tracker is not None:
                tracker.close(item)

    @contextlib.contextmanager
    def _complaining(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._complain(f"{type(error).__name__}: {one_line(error)}")

    def _complain(self, reason: str) -> None:
        if not self._complained:
            message = f"the tracker {self._name} failed, training goes on (metrics.jsonl has everything): {reason}"
            print(message, file=sys.stderr, flush=True)
        self._complained = True
