"""Says when a model knows only how frequent tokens are, which is where small rates leave an ALBERT."""

import functools
import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from data_prep.text.vocabulary import CLS_ID, SEP_ID
from pipeline.data.masking import MaskingSettings
from pipeline.data.mixture import Mixture
from pipeline.pretraining.evaluation import entropy
from pipeline.training.metrics_file import read_records
from pipeline.training.training_run import Callback, TrainingRun

SAMPLED_ROWS = 2048
LINES = 20
"""Logged lines after the warm-up that a plateau has at least."""
STEPS = 10
"""From one line that counts to the next, at least."""
TOLERANCE = 0.02
FALL = 0.005
"""The part by which the mean loss of the later half of the lines is below that of the earlier half, in a run that
learns. albert-tiny on the demo's text (batches of 8 rows, a line every 10 steps) passed the range in 16 lines and fell
by 10 % with initial_attention=neighbours. With the paper's start it stayed there for more than 1,000 steps."""


def context_free_losses(training: Mixture, masking: MaskingSettings) -> tuple[float, float]:
    """The MLM losses, in nats, of two models that use no context.

    The first one knows how frequent each token is, and that a token which is not [MASK] was kept or replaced at random.
    The second one knows the frequencies only: the unigram entropy H. With q the part of kept tokens among those that
    are not [MASK], and m that of [MASK], the first loss is m H + (1 - m) ((1 - q) H - q ln q - (1 - q) ln (1 - q)).
    """
    batch = training.read(np.arange(SAMPLED_ROWS))
    tokens = batch.input_ids.copy()
    predicted = batch.masked_labels >= 0  # (B, M)
    rows = np.broadcast_to(np.arange(len(tokens))[:, None], predicted.shape)
    tokens[rows[predicted], batch.masked_positions[predicted]] = batch.masked_labels[predicted]
    is_text = (batch.sequence_ids >= 0) & (tokens != CLS_ID) & (tokens != SEP_ID)  # these are never predicted
    counts = torch.from_numpy(np.bincount(tokens[is_text]))
    unigram = entropy(counts)
    visible = 1.0 - masking.replace_with_mask
    kept = (visible - masking.replace_with_random) / visible if visible > 0 else 0.0
    guess = -sum(part * math.log(part) for part in (kept, 1.0 - kept) if part > 0)
    return (1.0 - visible) * unigram + visible * (guess + (1.0 - kept) * unigram), unigram


class Plateau(Callback):
    """Prints a note once if the MLM loss stays where no context is used, on rank 0.

    Args:
        losses: gives `context_free_losses`; called once there are enough lines, because it reads rows.
        warmup_steps: before which nothing is said.
        remedy: what to change.
    """

    def __init__(
        self, run: TrainingRun, losses: Callable[[], tuple[float, float]], warmup_steps: int, remedy: str
    ) -> None:
        self._run, self._losses, self._warmup = run, functools.cache(losses), warmup_steps
        self._remedy = remedy
        self._lines: deque[float] = deque(maxlen=LINES)
        self._last, output = 0, run.settings.flags.output
        # An earlier start has said it; its records go on to the step of the checkpoint.
        earlier = [line for line in read_records(output, "train") if line["step"] <= run.state.step]
        self._said = any(self._add(line["step"], line["mlm_loss"]) for line in earlier if line.get("mlm_loss"))

    def _add(self, step: int, loss: float) -> bool:
        """Adds a line, and returns whether the last lines are a plateau."""
        if step <= self._warmup or step - self._last < STEPS:  # the lines of a short interval say too little
            return False
        self._last = step
        self._lines.append(loss)
        return len(self._lines) == LINES and self.is_one(list(self._lines))

    def on_log(self, record: Mapping[str, Any], is_last: bool) -> None:
        """Looks at the loss of a line."""
        if not self._said and self._add(self._run.state.step, record["mlm_loss"]):
            self._said = True
            low, high = self._losses()
            self._run.say(
                f"note: the MLM loss stays near {sum(self._lines) / LINES:.2f}. A model that knows only how frequent "
                f"tokens are has {low:.2f} to {high:.2f}, so this one uses no context yet. If it goes on, "
                f"start again with {self._remedy} (docs/troubleshooting.md)"
            )

    def is_one(self, losses: list[float]) -> bool:
        """Whether these losses are a plateau."""
        low, high = self._losses()
        inside = all(low * (1 - TOLERANCE) <= loss <= high * (1 + TOLERANCE) for loss in losses)
        half = len(losses) // 2
        return inside and sum(losses[half:]) / (len(losses) - half) >= (1 - FALL) * sum(losses[:half]) / half
