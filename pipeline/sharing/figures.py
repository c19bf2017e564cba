"""The measured quality of a pre-training checkpoint, as rows of a table, from metrics.jsonl."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from common.progress import quantity
from pipeline.sharing.markdown import percent, plain
from pipeline.training.reporting import metrics_log
from pipeline.training.reporting.metrics import wilson_interval

Row = tuple[str, ...]

_SENTENCE_TASKS = (("sop", "sentence order (SOP)"), ("nsp", "next sentence (NSP)"))


def of_pretraining(run: Path, step: int) -> list[Row]:
    """What the evaluation after `step` measured: (held-out set, figure, value); empty if that step was not evaluated.

    Raises:
        UserError: metrics.jsonl cannot be read.
    """
    record = next((one for one in metrics_log.read_records(run, "eval") if one["step"] == step), None)
    if record is None:
        return []
    sets = {key.rpartition("/")[0] for key in record if key.endswith("mlm_loss")}
    rows: list[Row] = []
    for name in sorted(sets):
        prefix = f"{name}/" if name else ""
        values = {key.removeprefix(prefix): value for key, value in record.items() if key.startswith(prefix)}
        rows += [(plain(name) or "first", figure, value) for figure, value in _of_one_set(values)]
    return rows


def _of_one_set(record: Mapping[str, Any]) -> list[Row]:
    """The figures of the record of one held-out set. A value that is not a number is left out."""
    found = {name: value for name, value in record.items() if isinstance(value, int | float)}
    rows: list[Row] = []
    if "mlm_loss" in found:
        entropy = found.get("mlm_unigram_entropy")
        beside = "" if entropy is None else f"; unigram entropy {entropy:.3f}"
        rows.append(("loss of masked tokens (MLM)", f"{found['mlm_loss']:.3f} nats{beside}"))
    if "mlm_accuracy" in found and found.get("predictions", 0) > 0:
        count = found["predictions"]
        shown = percent(found["mlm_accuracy"], *wilson_interval(found["mlm_accuracy"] * count, count))
        rows.append(("accuracy of masked tokens (MLM)", f"{shown} of {quantity(count, 'token')}"))
    for task, name in _SENTENCE_TASKS:
        if f"{task}_accuracy" not in found or "pairs" not in found:
            continue
        bounds = found.get(f"{task}_accuracy_low"), found.get(f"{task}_accuracy_high")
        rows.append(
            (f"accuracy of {name}", f"{percent(found[f'{task}_accuracy'], *bounds)} of {found['pairs']:,} pairs")
        )
    return rows
