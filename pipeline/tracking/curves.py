"""Chooses the numbers of a record that become curves, and gives each its tag.

metrics.jsonl has every number. A chart is worth looking at if it changes and if it says something about what is
trained. So these are left out: counts, numbers that are proportional to another one, constants, and the metrics of a
sentence task that is not trained.
"""

import math
from collections.abc import Mapping
from typing import Any

from pipeline.tracking.tracker import Scalars, TrackedRun

SENTENCE_TASKS = ("sop", "nsp")
_COUNTS = frozenset({"step", "samples", "tokens", "interval_tokens", "pairs", "predictions", "seconds", "epochs"})
_COUNTED = ("samples/", "epochs/")
_PROPORTIONAL = frozenset(
    {"rows_per_second", "rows_per_second_per_gpu", "tokens_per_second_per_gpu", "mlm_unigram_entropy"}
)
_SENTENCE_LOSSES = frozenset({"sop_loss", "nsp_loss"})
# With the sentence accuracy and the MLM loss, these say nothing that is not seen already.
_IMPLIED = {"train": _SENTENCE_LOSSES, "eval": _SENTENCE_LOSSES | {"loss", "mlm_below_unigram"}}
_OF_FURTHER_CORPORA = ("mlm_loss", "mlm_accuracy")


class Curves:
    """Makes the scalars of records in the order of training.

    Args:
        everything: keeps every number, and the trust ratio of every tensor.
    """

    def __init__(self, run: TrackedRun, everything: bool = False) -> None:
        self._run, self._everything = run, everything
        self._precision = run.settings.get("precision")
        self._samples, self._tokens, self._epochs = 0.0, 0.0, 0.0

    def make_scalars(self, step: int, split: str, metrics: Mapping[str, Any]) -> Scalars:
        """The scalars of one record of metrics.jsonl."""
        values = {f"{split}/{name}": float(value) for name, value in metrics.items() if self._shows(split, name, value)}
        ratios = metrics.get("trust_ratios") or {}
        finite = {name: value for name, value in ratios.items() if _is_number(value)}
        if finite:
            values |= {"train/trust_ratio_min": min(finite.values()), "train/trust_ratio_max": max(finite.values())}
        if self._everything:
            values |= {f"trust_ratios/{name}": value for name, value in finite.items()}
        if self._everything or metrics.get("peak_share") is None:
            speed = metrics.get("tflops_per_gpu")
            if speed is not None and _is_number(speed) and self._run.on_gpu:
                values[f"{split}/tflops_per_gpu"] = float(speed)
        return Scalars(step, split, values, self._consumed(step, metrics))

    def _shows(self, split: str, name: str, value: Any) -> bool:
        if not _is_number(value) or split in ("save", "spike") or name == "tflops_per_gpu":
            return False
        if self._everything:
            return name not in _COUNTS
        corpus, _, base = name.rpartition("/")
        if corpus and self._run.objective is not None:
            return not name.startswith(_COUNTED) and base in _OF_FURTHER_CORPORA
        if name in _COUNTS | _PROPORTIONAL:
            return False
        if self._run.objective is not None and name in _IMPLIED.get(split, ()):
            return False
        if base.startswith(tuple(f"{task}_" for task in SENTENCE_TASKS if task != self._run.objective)):
            return False
        if name == "loss_scale":
            return self._precision == "fp16"
        return name != "overflow_steps" or value > 0

    def _consumed(self, step: int, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Tokens and epochs so far. An evaluation's are those of the last training record, for its samples."""
        if step == 0:
            return {"tokens": 0, "epochs": 0.0}
        samples, tokens, epochs = (metrics.get(name) for name in ("samples", "tokens", "epochs"))
        if tokens is not None and samples:
            self._samples, self._tokens, self._epochs = samples, tokens, epochs or 0.0
        if not samples or not self._samples:
            return {}
        part = samples / self._samples
        consumed: dict[str, float] = {"tokens": round(self._tokens * part)}
        return consumed | ({"epochs": self._epochs * part} if self._epochs else {})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
