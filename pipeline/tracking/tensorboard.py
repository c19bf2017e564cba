"""TensorBoard: event files with descriptions, the settings of the run, hparams and a layout."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.tracking import layout
from pipeline.tracking.tracker import Figures, Plain, TrackedRun, shown_flat

THOUSANDTHS = 1000
_COMPARED = (
    *("eval/mlm_loss", "eval/mlm_accuracy", "eval/sop_accuracy", "eval/nsp_accuracy", "eval/accuracy"),
    "train/tokens_per_second",
)
"""Metrics of the HPARAMS page; of those a run has only some."""
_HPARAMS = {
    "objective": "objective",
    "task": "task",
    "seed": "seed",
    "precision": "precision",
    "world_size": "ranks",
    "steps": "steps",
    "hyperparameters.steps": "steps",
    "train_batch_size": "batch",
    "hyperparameters.train_batch_size": "batch",
    "optimizer.params.lr": "lr",
    "hyperparameters.learning_rate": "lr",
    "optimizer.type": "optimizer",
    "hyperparameters.dropout": "dropout",
    "masking.mask_probability": "mask_probability",
    "model.num_hidden_layers": "layers",
    "model.hidden_size": "hidden_size",
    "model.embedding_size": "embedding_size",
    "model.parameter_sharing": "sharing",
}
"""Settings of the HPARAMS page, and their names there."""
_TEXTS = frozenset({"objective", "task", "precision", "optimizer", "sharing"})
"""Those of them that are no numbers."""


class TensorBoardFiles:
    """Writes the event files of a run. A `Tracker`.

    The files are in `directory/NAME`, so that TensorBoard shows the name of the run.

    Args:
        directory: for `tensorboard --logdir`.
        run: the points of later steps than its are dropped. So are all points against tokens and epochs, because
            TensorBoard takes their x for a step; these are written again.
        name: NAME; None for the run's.
        purge: False drops nothing.
    """

    def __init__(self, directory: Path, run: TrackedRun, name: str | None = None, purge: bool = True) -> None:
        from torch.utils.tensorboard import SummaryWriter

        _leave_io_errors_to_the_caller()
        self._run = run
        self._described: set[str] = set()
        first = (run.step + 1 if run.step else 0) if purge else None
        self._writer: Any = SummaryWriter(str(directory / (name or run.name)), purge_step=first, flush_secs=10)
        self._introduce()
        for figures in run.earlier if purge else ():
            self._against_tokens_and_epochs(figures)

    def log(self, figures: Figures) -> None:
        """Writes the figures of one record."""
        for tag, value in figures.values.items():
            self._scalar(tag, value, figures.step)
        self._against_tokens_and_epochs(figures)

    def _against_tokens_and_epochs(self, figures: Figures) -> None:
        tag = f"{figures.split}/{layout.headline(self._run)}"
        if tag not in figures.values:
            return
        value = figures.values[tag]
        if figures.tokens is not None:
            self._scalar(layout.axis_tag("vs_tokens", tag), value, figures.tokens)
        if figures.epochs is not None and (figures.split == "eval" or self._run.objective is None):
            self._scalar(layout.axis_tag("vs_epochs", tag), value, round(THOUSANDTHS * figures.epochs))

    def histogram(self, tag: str, values: Sequence[float], step: int) -> None:
        """Writes the distribution of `values`."""
        import numpy as np

        self._writer.add_histogram(tag, np.array(values), step)

    def text(self, tag: str, markdown: str, step: int) -> None:
        """Writes a text."""
        self._writer.add_text(tag, markdown, step)

    def close(self, finished: bool) -> None:
        """Writes what waits, and for a finished run the end of its hparams session."""
        try:
            if finished:
                self._writer.file_writer.add_summary(_session_end(), self._run.step)
        finally:
            self._writer.close()

    def _scalar(self, tag: str, value: float, step: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        entry = Summary.Value(tag=tag, simple_value=value)
        if tag not in self._described:  # TensorBoard keeps the first one
            self._described.add(tag)
            entry.metadata.CopyFrom(_scalar_metadata(layout.describe(tag)))
        self._writer.file_writer.add_summary(Summary(value=[entry]), step)

    def _introduce(self) -> None:
        """Writes layout, settings and hparams; the settings of each start, because some may change."""
        if not self._run.settings:
            return
        settings = shown_flat(self._run.settings)
        self._writer.file_writer.add_summary(_layout_summary(self._run), 0)
        self.text("settings", _table(settings), self._run.step)
        for part in _session_start({_HPARAMS[name]: value for name, value in settings.items() if name in _HPARAMS}):
            self._writer.file_writer.add_summary(part, self._run.step)


def _leave_io_errors_to_the_caller() -> None:
    """Lets Python print no traceback of an I/O error in TensorBoard's thread. The next call of the writer raises it."""
    from tensorboard.summary.writer.event_file_writer import _AsyncWriterThread

    previous = threading.excepthook
    if getattr(previous, "__module__", "") == __name__:
        return

    def report(error: threading.ExceptHookArgs) -> None:
        if not (isinstance(error.thread, _AsyncWriterThread) and issubclass(error.exc_type, OSError)):
            previous(error)

    threading.excepthook = report


def _table(settings: Mapping[str, Plain]) -> str:
    """Settings as a Markdown table."""
    rows = (f"| {_cell(name)} | {_cell(value)} |" for name, value in settings.items())
    return "\n".join(["| setting | value |", "|---|---|", *rows])


def _cell(value: Plain) -> str:
    """A value as code in a cell of a Markdown table."""
    text = " ".join(str(value).split()).replace("`", "'").replace("|", "\\|")
    return f"`{text}`" if text else ""


def _scalar_metadata(description: str) -> Any:
    """What TensorBoard needs to show a description beside a curve of plain numbers."""
    from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_SCALAR, SummaryMetadata

    plugin = SummaryMetadata.PluginData(plugin_name="scalars")
    return SummaryMetadata(plugin_data=plugin, summary_description=description, data_class=DATA_CLASS_SCALAR)


def _layout_summary(run: TrackedRun) -> Any:
    """The layout as a summary. TensorBoard's own function for it needs TensorFlow."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.plugins.custom_scalar import metadata

    plugin = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME)
    content = TensorProto(dtype=DT_STRING, string_val=[layout.layout(run).SerializeToString()])
    entry = Summary.Value(tag=metadata.CONFIG_SUMMARY_TAG, metadata=SummaryMetadata(plugin_data=plugin), tensor=content)
    return Summary(value=[entry])


def _session_start(hparams: Mapping[str, Plain]) -> tuple[Any, Any]:
    from torch.utils.tensorboard.summary import hparams as summaries

    # TensorBoard takes the columns of one run for all, and the runs of a directory differ in what they have.
    columns = {name: "" if name in _TEXTS else 0.0 for name in _HPARAMS.values()}
    return summaries(columns, dict.fromkeys(_COMPARED, 0.0))[0], summaries(dict(hparams), {})[1]


def _session_end() -> Any:
    from torch.utils.tensorboard.summary import hparams as summaries

    return summaries({}, {})[2]
