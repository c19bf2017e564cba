"""Tells the mirror of a run that there is something to upload."""

from pipeline.checkpoint.saver import Saved
from pipeline.training.callback import Callback
from pipeline.training.state import TrainingRun


class MirrorUploads(Callback):
    """Wakes the thread that uploads. It never waits."""

    def __init__(self, run: TrainingRun) -> None:
        self._mirror = run.mirror

    def on_checkpoint(self, checkpoint: Saved) -> None:
        """A checkpoint is complete."""
        if self._mirror is not None:
            self._mirror.wake()
