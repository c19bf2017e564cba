"""Saves the checkpoints of a run, tells who observes when one is complete, and prints why one failed."""

from collections.abc import Callable
from dataclasses import asdict

from pipeline.checkpoint.saver import Saved, SaveFailed, Saver
from pipeline.distributed.exits import EXIT_LOST
from pipeline.engine.weight_checksums import differing_ranks, weights_checksum
from pipeline.training.callback import TrainingFailed
from pipeline.training.training_run import TrainingRun


class Saves:
    """Saves the checkpoints of a run, in the background or in the foreground. A context manager around training.

    Attributes:
        saved_step: step of the newest checkpoint; None without one.

    Args:
        on_checkpoint: called for each complete checkpoint.
        sync_records: see `Saver`.
    """

    def __init__(
        self,
        run: TrainingRun,
        on_checkpoint: Callable[[Saved], None],
        sync_records: Callable[[], None] = lambda: None,
    ) -> None:
        settings = run.settings
        self._saver = Saver(
            run.engine,
            settings.flags.output / "checkpoints",
            settings.kept_checkpoints,
            settings.flags.save_mode == "background",
            sync_records,
        )
        self._run, self._on_checkpoint = run, on_checkpoint
        self.saved_step = run.state.step or None  # a resumed run starts at a checkpoint

    @property
    def is_writing(self) -> bool:
        """Whether this rank writes in the background."""
        return self._saver.is_busy

    def save(self, score: float | None, required: bool) -> None:
        """Begins a save of the state, after the end of the one before. In the foreground, waits for it. Collective.

        Args:
            score: of the evaluation after the present step; None without one.
            required: waits for the end of the save in the background too.
        Raises:
            TrainingFailed: the ranks hold different weights, or a required save failed. If another save fails, training
                goes on.
        """
        self.finish()
        run = self._run
        with run.clock.paused():
            self._compare_weights()

        def start_save() -> Saved | None:
            waits = required or not self._saver.in_background
            self._saver.start(asdict(run.state), score, without_copy=waits)
            return self._saver.finish() if waits else None

        self._run_stage(start_save, required)

    def _compare_weights(self) -> None:
        """Raises TrainingFailed on all ranks if the weights that all of them hold are not equal. Collective."""
        run, line = self._run, ""
        checksums = run.control.gather(weights_checksum(run.engine))
        if checksums is not None and (ranks := differing_ranks(checksums)):
            line = (
                f"{' or '.join(f'rank {rank} on host {run.hosts[rank]}' for rank in ranks)} holds wrong weights after "
                f"step {run.state.step}: an error of memory, of a link or of a computation that nothing else reported. "
                "They are not saved; the same command goes on from the last checkpoint, better without that host "
                "(docs/reliability.md)"
            )
        if line := run.control.broadcast(line):
            raise TrainingFailed(line, EXIT_LOST)

    def finish(self) -> None:
        """Waits for the end of a save in progress. Collective."""
        if self._saver.is_saving:
            self._run_stage(self._saver.finish)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Ends a save in progress if all ranks leave the block together. Otherwise gives it up and writes nothing more.

        The weights of a save are checked before it, so what ends training later does not make them wrong.
        """
        if isinstance(error, TrainingFailed):
            self.finish()
        self._saver.abandon()

    def _run_stage(self, stage: Callable[[], Saved | None], required: bool = False) -> None:
        """Runs one stage of a save, and tells of a checkpoint that is then complete."""
        self._run.enter("save")
        with self._run.clock.paused():
            try:
                checkpoint = stage()
            except SaveFailed as error:
                if required:
                    raise TrainingFailed(f"the checkpoint of step {error.step} failed: {error}") from None
                self._run.say(f"checkpoint of step {error.step} failed, training goes on: {error}")
                return
        if checkpoint is not None:
            self.saved_step = checkpoint.step
            if self._run.mirror is not None:
                self._run.mirror.wake()
            self._on_checkpoint(checkpoint)
