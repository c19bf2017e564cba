"""TensorBoard: event files, with the settings of the run."""

import contextlib
import functools
from typing import Any

from common.text import markdown_table
from pipeline.tracking.tracker import Plain, Scalars, TrackedRun, shown_flat


class TensorBoardFiles:
    """Writes the event files of a run to `RUN/tensorboard`.

    Args:
        run: the points of later steps than its are dropped.
        purge: False drops nothing.
    """

    def __init__(self, run: TrackedRun, purge: bool = True) -> None:
        from torch.utils.tensorboard import SummaryWriter

        _quiet_threads()
        first = (run.step + 1 if run.step else 0) if purge else None
        self._writer: Any = SummaryWriter(str(run.directory / "tensorboard"), purge_step=first, flush_secs=10)
        if run.settings:  # of each start, because some may change
            rows = ((_cell(name), _cell(value)) for name, value in shown_flat(run.settings).items())
            self._writer.add_text("settings", markdown_table(["setting", "value"], rows), run.step)

    def log(self, scalars: Scalars) -> None:
        """Writes the scalars of one record."""
        for tag, value in scalars.values.items():
            self._writer.add_scalar(tag, value, scalars.step)

    def close(self) -> None:
        """Writes what waits."""
        self._writer.close()


@functools.cache
def _quiet_threads() -> None:
    """TensorBoard's thread keeps an error of the disk for its caller. Without this it prints a traceback as well."""
    from tensorboard.summary.writer import event_file_writer

    run = event_file_writer._AsyncWriterThread.run

    def run_quietly(thread: Any) -> None:
        with contextlib.suppress(OSError):
            run(thread)

    event_file_writer._AsyncWriterThread.run = run_quietly


def _cell(value: Plain) -> str:
    """A value as code in a cell of a Markdown table."""
    text = " ".join(str(value).split()).replace("`", "'").replace("|", "\\|")
    return f"`{text}`" if text else ""
