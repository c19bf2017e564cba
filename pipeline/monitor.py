"""What is written of a run while it goes on: `metrics.jsonl` and TensorBoard events, by rank 0 alone."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_prep import atomic

# Counts are for programs that read metrics.jsonl; as curves they would only be in the way.
_NO_CURVE = frozenset({"samples", "tokens", "interval_tokens", "pairs", "predictions", "seconds"})


class Monitor:
    """Writes metrics to `RUN/metrics.jsonl` and `RUN/tensorboard/`. On other ranks than 0 it does nothing.

    Args:
        run: the run's directory, which exists.
        step: the step that the run (re)starts from; records of later steps, written before it was killed, are
            dropped from both, for they will be written again.
        enabled: True on rank 0.
    """

    def __init__(self, run: Path, step: int, enabled: bool) -> None:
        self._enabled = enabled
        if not enabled:
            return
        from torch.utils.tensorboard import SummaryWriter

        path = run / "metrics.jsonl"
        if path.exists():
            atomic.write_text(path, keep_until(path.read_text(encoding="utf-8"), step))
        self._file = path.open("a", encoding="utf-8")
        self._writer = SummaryWriter(str(run / "tensorboard"), purge_step=step + 1, flush_secs=10)

    def log(self, step: int, metrics: Mapping[str, Any], split: str = "train") -> None:
        """Writes one record. Figures also become curves, `train/loss` and so on, over the steps."""
        if not self._enabled:
            return
        self._file.write(json.dumps({"step": step, "split": split, **metrics}) + "\n")
        self._file.flush()
        for name, value in metrics.items():
            if isinstance(value, int | float) and math.isfinite(value) and name not in _NO_CURVE:
                self._writer.add_scalar(f"{split}/{name}", value, step)

    def text(self, step: int, tag: str, markdown: str) -> None:
        """Shows a text in TensorBoard."""
        if self._enabled:
            self._writer.add_text(tag, markdown, step)

    def close(self) -> None:
        """Ends both files."""
        if self._enabled:
            self._writer.close()
            self._file.close()


def keep_until(lines: str, step: int) -> str:
    """The records of a `metrics.jsonl` up to and including `step`; a last line that a kill cut short is dropped."""
    kept = []
    for line in lines.splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if record["step"] <= step:
            kept.append(line + "\n")
    return "".join(kept)


def last_record(run: Path, split: str) -> dict[str, Any] | None:
    """The newest record of "train" or "eval" in a run's metrics, or None."""
    path = run / "metrics.jsonl"
    if not path.exists():
        return None
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return next((record for record in reversed(records) if record["split"] == split), None)
