"""Notes what the rank is doing, so that a hang can be noticed and named."""

import contextlib

from pipeline.checkpoint.manifest import BYTES_A_PARAMETER
from pipeline.checkpoint.saver import Saved
from pipeline.distributed import progress
from pipeline.engine import step as engine_step
from pipeline.training.callback import Callback, Phase
from pipeline.training.callbacks.early_end import SLOWEST_SAVE
from pipeline.training.state import TrainingRun


class HangProgress(Callback):
    """Records the phases and steps of this rank in the notes that the watch reads."""

    def __init__(self, run: TrainingRun) -> None:
        self._run, self._progress = run, progress.get_progress()
        self._compilations = contextlib.ExitStack()
        self._trains = False

    def on_start(self) -> None:
        """Records compilations as well, which may take minutes, and assumes how long a save takes."""
        self._progress.took_save(BYTES_A_PARAMETER * engine_step.parameter_count(self._run.engine) / SLOWEST_SAVE)
        if self._run.settings.execution.compile:
            self._compilations.enter_context(progress.compilations_recorded())

    def on_phase(self, phase: Phase, micro_step: int = 0) -> None:
        """Records what the rank does."""
        self._trains = self._trains or phase == "data"
        if self._trains:  # what comes before the first batch belongs to no step
            follows_step = phase in ("logging", "evaluation", "save")
            self._progress.step = self._run.state.step + (0 if follows_step else 1)
        self._progress.enter(phase, micro_step)

    def on_step(self, seconds: float) -> None:
        """Learns how long a step takes."""
        self._progress.took_step(seconds)

    def on_checkpoint(self, checkpoint: Saved) -> None:
        """Learns how long a save takes."""
        self._progress.took_save(checkpoint.seconds)

    def on_end(self) -> None:
        """Records no further compilation."""
        self._compilations.close()
