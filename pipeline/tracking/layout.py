"""The pages of TensorBoard's Custom Scalars: does it learn, is it healthy, is it fast."""

import re
from collections.abc import Sequence
from typing import Any

from pipeline.tracking.tracker import TrackedRun

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
    "batches_passed_over": "Batches that the run has passed over so far, because of spikes of the loss.",
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

AXES = {"vs_tokens": "x axis: tokens, without padding.", "vs_epochs": "x axis: thousandths of an epoch."}
"""The further x axes and their descriptions. Their names are sorted after "train"."""


def describe(tag: str) -> str:
    """What a curve shows, for people; "" if its name says it."""
    axis, _, name = tag.partition("/")
    split = "Held-out rows. " if name.startswith("eval_") or axis == "eval" else ""
    text = DESCRIPTIONS.get(name.rpartition("/")[2].removeprefix("eval_").removeprefix("train_"), "")
    return " ".join(filter(None, (split + text, AXES.get(axis, "")))).strip()


def axis_tag(axis: str, tag: str) -> str:
    """The tag of a curve against another x axis, such as vs_tokens/eval_mlm_loss for eval/mlm_loss."""
    return f"{axis}/{tag.replace('/', '_')}"


def headline(run: TrackedRun) -> str:
    """The metric that is drawn against the further x axes."""
    return "loss" if run.objective is None else "mlm_loss"


def layout(run: TrackedRun) -> Any:
    """The pages for a run, a `tensorboard.plugins.custom_scalar.layout_pb2.Layout`."""
    from tensorboard.plugins.custom_scalar import layout_pb2

    pages = (
        ("1  Does it learn?", _learning(run)),
        ("2  Is it healthy?", _health(run)),
        ("3  Is it fast?", _speed(run)),
        ("4  Against tokens and epochs", _axes(run)),
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


def _axes(run: TrackedRun) -> list[Any]:
    name = headline(run)
    return [
        _lines(f"{name} against tokens", ["vs_tokens/.*"]),
        _lines(f"{name} against thousandths of an epoch", ["vs_epochs/.*"]),
    ]


def _lines(title: str, tags: Sequence[str]) -> Any:
    """A chart with a line for each tag. A tag that ends in ".*" stands for all that begin so."""
    from tensorboard.plugins.custom_scalar import layout_pb2

    patterns = [f"^{re.escape(tag.removesuffix('.*'))}{'.*' if tag.endswith('.*') else ''}$" for tag in tags]
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
