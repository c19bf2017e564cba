"""Which numbers of a record become curves, and which settings of a run others see."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.engine.deepspeed_config import MONITORS

_COUNTS = {"step", "samples", "tokens", "interval_tokens", "pairs", "predictions", "seconds", "epochs"}
_SHOWN = {
    "train": {
        *("loss", "mlm_loss", "mlm_accuracy", "learning_rate", "grad_norm", "loss_scale", "overflow_steps"),
        *("tokens_per_second", "peak_share", "data_wait_share", "peak_memory_gb"),
    },
    "eval": {"mlm_loss", "mlm_accuracy", "mlm_accuracy_low", "mlm_accuracy_high"},
}
"""Curves of pre-training, by split: what says something about training and changes. metrics.jsonl has every number."""


def curves_of(
    split: str, metrics: Mapping[str, Any], objective: str | None, everything: bool = False
) -> dict[str, float]:
    """The finite numbers of a record that become curves, by tag, such as "train/loss".

    Args:
        objective: "sop", "nsp" or "mlm"; None for fine-tuning.
        everything: keeps every number, and the trust ratio of every tensor.
    """
    if split not in _SHOWN:
        return {}
    numbers = {f"{split}/{name}": value for name, value in _numbers(metrics) if name not in _COUNTS}
    if objective is not None and not everything:
        shown = {*_SHOWN[split], *(f"{objective}_accuracy{end}" for end in ("", "_low", "_high"))}
        corpora = ("/mlm_loss", "/mlm_accuracy")  # of further corpora
        numbers = {
            tag: value
            for tag, value in numbers.items()
            if (name := tag.partition("/")[2]) in shown or ("/" in name and name.endswith(corpora))
        }
    if ratios := dict(_numbers(metrics.get("trust_ratios") or {})):
        numbers |= {"train/trust_ratio_min": min(ratios.values()), "train/trust_ratio_max": max(ratios.values())}
        numbers |= {f"trust_ratios/{name}": value for name, value in ratios.items() if everything}
    return numbers


def _numbers(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name, value in record.items():
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield name, float(value)


def shown(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a run that others see: without the blocks of trackers, which can hold account names."""
    deepspeed = {name: value for name, value in (settings.get("deepspeed") or {}).items() if name not in MONITORS}
    own = {name: value for name, value in settings.items() if name not in ("pretraining", "deepspeed")}
    return own | ({"deepspeed": deepspeed} if deepspeed else {})


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields the settings that are not None, as dotted names and texts, such as ("optimizer.params.lr", "0.001")."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
