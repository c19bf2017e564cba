"""TensorBoard: event files with descriptions, the settings of the run, and the pages of Custom Scalars.

The pages answer three questions: does it learn, is it healthy, is it fast?
"""

from collections.abc import Sequence
from pathlib import Path
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
    """Writes the event files of a run.

    The files are in `directory/NAME`, so that TensorBoard shows the name of the run.

    Args:
        directory: for `tensorboard --logdir`.
        run: the points of later steps than its are dropped.
        name: NAME; None for the run's.
        purge: False drops nothing.
    """

    def __init__(self, directory: Path, run: TrackedRun, name: str | None = None, purge: bool = True) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._run = run
        self._described: set[str] = set()
        first = (run.step + 1 if run.step else 0) if purge else None
        self._writer: Any = SummaryWriter(str(directory / (name or run.name)), purge_step=first, flush_secs=10)
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
        """Writes the pages of charts and the settings; the settings of each start, because some may change."""
        if not self._run.settings:
            return
        settings = shown_flat(self._run.settings)
        self._writer.file_writer.add_summary(_charts_summary(self._run), 0)
        rows = ((_cell(name), _cell(value)) for name, value in settings.items())
        self.text("settings", markdown_table(["setting", "value"], rows), self._run.step)


def _cell(value: Plain) -> str:
    """A value as code in a cell of a Markdown table."""
    text = " ".join(str(value).split()).replace("`", "'").replace("|", "\\|")
    return f"`{text}`" if text else ""


def _scalar_metadata(description: str) -> Any:
    """What TensorBoard needs to show a description beside a curve of plain numbers."""
    from tensorboard.compat.proto.summary_pb2 import DATA_CLASS_SCALAR, SummaryMetadata

    plugin = SummaryMetadata.PluginData(plugin_name="scalars")
    return SummaryMetadata(plugin_data=plugin, summary_description=description, data_class=DATA_CLASS_SCALAR)


def _charts_summary(run: TrackedRun) -> Any:
    """The pages of charts as a summary. TensorBoard's own function for it needs TensorFlow."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.compat.proto.types_pb2 import DT_STRING
    from tensorboard.plugins.custom_scalar import metadata

    plugin = SummaryMetadata.PluginData(plugin_name=metadata.PLUGIN_NAME)
    content = TensorProto(dtype=DT_STRING, string_val=[chart_pages(run).SerializeToString()])
    entry = Summary.Value(tag=metadata.CONFIG_SUMMARY_TAG, metadata=SummaryMetadata(plugin_data=plugin), tensor=content)
    return Summary(value=[entry])


def describe(tag: str) -> str:
    """What a curve shows, for people; "" if its name says it."""
    split = "Held-out rows. " if tag.startswith("eval/") else ""
    return (split + DESCRIPTIONS.get(tag.rpartition("/")[2], "")).strip()


def chart_pages(run: TrackedRun) -> Any:
    """The pages of Custom Scalars for a run, a `tensorboard.plugins.custom_scalar.layout_pb2.Layout`."""
    from tensorboard.plugins.custom_scalar import layout_pb2

    pages = (
        ("1  Does it learn?", _learning(run)),
        ("2  Is it healthy?", _health(run)),
        ("3  Is it fast?", _speed(run)),
    )
    categories = [layout_pb2.Category(title=title, chart=charts) for title, charts in pages]
    return layout_pb2.Layout(category=categories)


def _learning(run: TrackedRun) -> list[Any]:
    if run.objective is None:
        return [_lines("training loss", ["train/loss"]), _lines("accuracy and metrics", ["train/accuracy", "eval/.*"])]
    tasks = ["mlm"] if run.objective == "mlm" else ["mlm", run.objective]
    charts = [_with_interval(f"{task.upper()} accuracy: held-out with 95 % interval, training", task) for task in tasks]
    # TensorBoard draws charts with a band behind those without, and the last of them first.
    return [_lines("MLM loss (nats): held-out and training", ["eval/mlm_loss", "train/mlm_loss"]), *reversed(charts)]


def _health(run: TrackedRun) -> list[Any]:
    charts = [
        _lines("norm of the gradient, before clipping", ["train/grad_norm"]),
        _lines("learning rate", ["train/learning_rate"]),
    ]
    if run.settings.get("optimizer", {}).get("type") == "Lamb":
        ratios = ["train/trust_ratio_min", "train/trust_ratio_max"]
        charts.append(_lines("LAMB's trust ratios: smallest and largest", ratios))
    if run.settings.get("precision") == "fp16":
        charts.append(_lines("fp16 loss scale", ["train/loss_scale"]))
        charts.append(_lines("steps whose update was skipped", ["train/overflow_steps"]))
    return charts


def _speed(run: TrackedRun) -> list[Any]:
    charts = [_lines("tokens a second, all ranks", ["train/tokens_per_second"])]
    if run.on_gpu:
        charts.append(_lines("MFU, or TFLOP/s of an unknown GPU", ["train/peak_share", "train/tflops_per_gpu"]))
    return [
        *charts,
        _lines("part of the time spent waiting for data", ["train/data_wait_share"]),
        _lines("peak memory of rank 0 (GB)", ["train/peak_memory_gb"]),
    ]


def _lines(title: str, tags: Sequence[str]) -> Any:
    """A chart with a line for each tag; tags are regular expressions."""
    from tensorboard.plugins.custom_scalar import layout_pb2

    patterns = [f"^{tag}$" for tag in tags]
    return layout_pb2.Chart(title=title, multiline=layout_pb2.MultilineChartContent(tag=patterns))


def _with_interval(title: str, task: str) -> Any:
    """A chart of the held-out accuracy in its interval, and of the accuracy in training."""
    from tensorboard.plugins.custom_scalar import layout_pb2

    series = layout_pb2.MarginChartContent.Series
    held_out, training = f"eval/{task}_accuracy", f"train/{task}_accuracy"
    content = layout_pb2.MarginChartContent(
        series=[
            series(value=held_out, lower=f"{held_out}_low", upper=f"{held_out}_high"),
            series(value=training, lower=training, upper=training),
        ]
    )
    return layout_pb2.Chart(title=title, margin=content)
