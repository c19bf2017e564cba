"""The saves of a run: what a save costs is measured and recorded, and one that fails is said."""

from collections.abc import Callable
from dataclasses import asdict

from pipeline.checkpoint.saver import Saved, SaveFailed, Saver
from pipeline.distributed import collective_times
from pipeline.distributed.hangs import progress
from pipeline.engine.protocol import Engine
from pipeline.training.deadline import Deadline
from pipeline.training.divergence.non_finite import TrainingFailed
from pipeline.training.divergence.rollback import SpikeFound
from pipeline.training.reporting.clock import Clock
from pipeline.training.reporting.metrics_log import MetricsLog
from pipeline.training.settings import RunSettings
from pipeline.training.state import TrainState


class RunSaves:
    """Saves the checkpoints of a run, in the background or in the foreground. A context manager around training.

    Attributes:
        saved_step: step of the newest checkpoint; None without one.

    Args:
        clock, deadline: of the run; both learn how long saves take.
        say: prints a line on rank 0.
        saved_step: at which the run resumes; None for a new one.
    """

    def __init__(
        self,
        engine: Engine,
        settings: RunSettings,
        clock: Clock,
        deadline: Deadline,
        metrics_log: MetricsLog,
        say: Callable[[str], None],
        saved_step: int | None,
    ) -> None:
        directory, keep = settings.output / "checkpoints", settings.kept_checkpoints
        self._saver = Saver(engine, directory, keep, settings.save_mode == "background", metrics_log.sync)
        self._clock, self._deadline, self._metrics_log, self._say = clock, deadline, metrics_log, say
        self._progress = progress.of_this_process()
        self.saved_step = saved_step

    @property
    def is_busy(self) -> bool:
        """Whether this rank writes in the background."""
        return self._saver.is_busy

    def prepare(self) -> None:
        """Allocates the memory that saves in the background need, while training goes on."""
        if self._saver.in_background:
            self._saver.prepare()

    def begin(self, state: TrainState, score: float | None, undo_step: int | None, must_succeed: bool) -> None:
        """Begins a save, after the end of the one before. In the foreground, waits for its end. Collective.

        Args:
            score, undo_step: see `Saver.begin`.
            must_succeed: True waits for the end as well.
        Raises:
            TrainingFailed: a save that must succeed has failed. Training goes on after any other one.
        """
        self.finish()

        def work() -> Saved | None:
            waits = must_succeed or not self._saver.in_background
            self._saver.begin(asdict(state), score, undo_step, at_once=waits)
            return self._saver.finish() if waits else None

        self._record(work, must_succeed)

    def go_on(self, busy_ranks: float) -> None:
        """Begins the next stage of a save once no rank is busy with the present one. Collective.

        Args:
            busy_ranks: how many of the ranks are, as all of them know.
        """
        if self._saver.is_saving and not busy_ranks:
            self._record(self._saver.advance)

    def finish(self) -> None:
        """Waits for the end of a save in progress. Collective."""
        if self._saver.is_saving:
            self._record(self._saver.finish)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Ends a save in progress if all ranks leave the block together. Otherwise gives it up and writes nothing more.

        The weights of a save are checked before it, so what ends training later does not make them wrong. A second
        Ctrl-C does not wait for the disk: the process ends now, and its thread with it.
        """
        if isinstance(error, TrainingFailed | SpikeFound):
            self.finish()
        if not isinstance(error, KeyboardInterrupt):
            self._saver.abandon()

    def _record(self, work: Callable[[], Saved | None], must_succeed: bool = False) -> None:
        """Calls a part of a save, and records a checkpoint that is then complete."""
        collective_times.of_this_process().leave_out()
        with self._clock.paused(), self._progress.during("save"):
            try:
                saved = work()
            except SaveFailed as error:
                if must_succeed:
                    raise TrainingFailed(f"the checkpoint of step {error.step} failed: {error}") from None
                self._say(f"checkpoint of step {error.step} failed, training goes on: {error}")
                return
        if saved is None:
            return
        self.saved_step = saved.step
        self._deadline.took("save", saved.seconds)
        self._progress.took_save(saved.seconds)
        seconds = {"checkpoint_seconds": saved.seconds, "blocked_seconds": saved.blocked_seconds}
        self._metrics_log.log(saved.step, seconds, "save")
