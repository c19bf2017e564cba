"""TensorBoard: event files with descriptions, and the settings of the run."""

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

from common.text import markdown_table
from pipeline.tracking.tracker import Plain, Scalars, TrackedRun, Tracker, shown_flat

DESCRIPTIONS = {
    "loss": "What is minimised, in nats: the MLM loss plus the sentence loss; in fine-tuning the task's loss.",
    "mlm_loss": "Mean cross-entropy of the masked tokens, in nats.",
    "mlm_accuracy": "Fraction of the masked tokens that are predicted right.",
    "mlm_accuracy_low": "Lower end of the 95 % interval (Wilson) of the held-out MLM accuracy.",
    "mlm_accuracy_high": "Upper end of the 95 % interval (Wilson) of the held-out MLM accuracy.",
    "accuracy": "Fraction of right answers.",
    "learning_rate": "Of the last step.",
    "grad_norm": "Norm of the gradient of the last step, before clipping. A jump is a first sign of divergence.",
    "loss_scale": "The fp16 loss scale. It should settle; one that only falls means that gradients overflow.",
    "overflow_steps": "Steps so far whose update was skipped.",
    "batches_passed_over": "Batches that the run has skipped so far, because of spikes of the loss.",
    "trust_ratio_min": "The smallest of LAMB's trust ratios of the last step, over all tensors.",
    "trust_ratio_max": "The largest of LAMB's trust ratios of the last step, over all tensors.",
    "tokens_per_second": "Tokens of all ranks, without padding, evaluations and saves.",
    "peak_share": "MFU: the operations that the model needs, as a fraction of the GPU's data sheet.",
    "tflops_per_gpu": "1e12 operations a second that the model needs, for each GPU.",
    "data_wait_share": "Fraction of the time in which rank 0 waited for a batch. It should be near 0.",
    "peak_memory_gb": "Rank 0, GB: of the GPU since the last point; without a GPU, of the process since its start.",
}
"""Of the tags, by their last part."""
for _task, _name in (("sop", "sentence order"), ("nsp", "next sentence")):
    DESCRIPTIONS |= {
        f"{_task}_loss": f"Mean cross-entropy of the {_name} prediction, in nats. Guessing has 0.693.",
        f"{_task}_accuracy": f"Fraction of segment pairs whose {_name} is predicted right. Guessing has 0.5.",
        f"{_task}_accuracy_low": f"Lower end of the 95 % interval (Wilson) of the held-out {_task.upper()} accuracy.",
        f"{_task}_accuracy_high": f"Upper end of the 95 % interval (Wilson) of the held-out {_task.upper()} accuracy.",
    }


class TensorBoardFiles(Tracker):
    """Writes the event files of a run to `RUN/tensorboard`; of older runs to a directory in it, which goes on.

    Args:
        run: the points of later steps than its are dropped.
        purge: False drops nothing.
    """

    def __init__(self, run: TrackedRun, purge: bool = True) -> None:
        from torch.utils.tensorboard import SummaryWriter

        _quiet_threads()

        directory = run.directory / "tensorboard"
        if (directory / run.name).is_dir():
            directory /= run.name

        self._run = run
        self._described: set[str] = set()
        first = (run.step + 1 if run.step else 0) if purge else None
        self._writer: Any = SummaryWriter(str(directory), purge_step=first, flush_secs=10)
        self._write_settings()

    def log(self, scalars: Scalars) -> None:
        """Writes the scalars of one record."""
        for tag, value in scalars.values.items():
            self._scalar(tag, value, scalars.step)

    def histogram(self, tag: str, values: Sequence[float], step: int) -> None:
        """Writes the distribution of `values`."""
        import numpy as np

        self._writer.add_histogram(tag, np.array(values), step)

    def text(self, tag: str, markdown: str, step: int) -> None:
        """Writes a text."""
        self._writer.add_text(tag, markdown, step)

    def close(self, finished: bool) -> None:
        """Writes what waits."""
        self._writer.close()

    def _scalar(self, tag: str, value: float, step: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        entry = Summary.Value(tag=tag, simple_value=value)
        if tag not in self._described:  # TensorBoard keeps the first one
            self._described.add(tag)
            entry.metadata.CopyFrom(_scalar_metadata(describe(tag)))
        self._writer.file_writer.add_summary(Summary(value=[entry]), step)

    def _write_settings(self) -> None:
        """Writes the settings of each start, because some may change."""
        if self._run.settings:
            rows = ((_cell(name), _cell(value)) for name, value in shown_flat(self._run.settings).items())
            self.text("settings", markdown_table(["setting", "value"], rows), self._run.step)


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


def _scalar_metadata(description: str) -> Any:
    """What TensorBoard needs to show a description beside a curve of plain numbers."""
    from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_SCALAR, SummaryMetadata

    plugin = SummaryMetadata.PluginData(plugin_name="scalars")
    return SummaryMetadata(plugin_data=plugin, summary_description=description, data_class=DATA_CLASS_SCALAR)


def describe(tag: str) -> str:
    """What a curve shows, for people; "" if its name says it."""
    split = "Held-out rows. " if tag.startswith("eval/") else ""
    return (split + DESCRIPTIONS.get(tag.rpartition("/")[2], "")).strip()
