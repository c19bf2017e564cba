"""TensorBoard: event files in RUN/tensorboard, with the settings of the run."""

import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.text import markdown_table
from pipeline.training.tracking.curves import flat, shown


def open_writer(run: Path, step: int, settings: Mapping[str, Any], purge: bool = True) -> Any:
    """Opens TensorBoard's writer for a run that starts at `step`.

    Args:
        settings: the content of settings.json.
        purge: whether the points of later steps are dropped.
    """
    from torch.utils.tensorboard import SummaryWriter

    _quiet_threads()
    first = (step + 1 if step else 0) if purge else None
    writer = SummaryWriter(str(run / "tensorboard"), purge_step=first, flush_secs=10)
    if settings:  # of each start, because some may change
        cells = ((f"`{name}`", f"`{' '.join(text.split())}`") for name, text in flat(shown(settings)))
        writer.add_text("settings", markdown_table(["setting", "value"], list(cells)), step)
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
