"""The note about a loss that stands still, and the losses of models without context."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.data.masking import MaskingSettings
from pipeline.pretraining.plateau import LINES, Plateau, context_free_losses

PREDICTED = 5


class Text:
    """Rows of tokens that are drawn independently, with the masks of the paper."""

    def __init__(self, probabilities, masking):
        self.probabilities, self.masking = probabilities, masking

    def read(self, positions):
        rng = np.random.default_rng(0)
        tokens = 5 + rng.choice(len(self.probabilities), (len(positions), 40), p=self.probabilities)
        tokens[:, 0], tokens[:, -1] = 2, 3
        at = rng.permuted(np.tile(np.arange(1, 39), (len(positions), 1)), axis=1)[:, :PREDICTED]
        rows = np.arange(len(positions))[:, None]
        labels = tokens[rows, at]
        drawn = rng.random(at.shape)
        masked, random = self.masking.replace_with_mask, self.masking.replace_with_random
        others = 5 + rng.choice(len(self.probabilities), at.shape, p=self.probabilities)
        tokens[rows, at] = np.where(drawn < masked, 4, np.where(drawn < masked + random, others, labels))
        at[0, 0], labels[0, 0] = 0, -100  # unused
        sequence_ids = np.zeros_like(tokens)
        return SimpleNamespace(input_ids=tokens, masked_positions=at, masked_labels=labels, sequence_ids=sequence_ids)


def test_the_losses_are_those_of_models_without_context():
    probabilities = np.array([0.5, 0.25, 0.125, 0.125])
    low, high = context_free_losses(Text(probabilities, MaskingSettings()), MaskingSettings())
    unigram = 1.75 * math.log(2)  # nats, by hand
    assert high == pytest.approx(unigram, rel=0.01)
    # 80 % [MASK]; of the others half are kept: ln 2 for which half, and the entropy for those that are not.
    assert low == pytest.approx(0.8 * unigram + 0.2 * (math.log(2) + 0.5 * unigram), rel=0.01)


def test_with_masks_alone_there_is_one_such_loss():
    masking = MaskingSettings(replace_with_mask=1.0, replace_with_random=0.0)
    low, high = context_free_losses(Text(np.full(16, 1 / 16), masking), masking)
    assert low == pytest.approx(high) == pytest.approx(math.log(16), rel=0.01)


def notes(losses, warmup_steps=0, interval=10, output=Path("nowhere"), step=0):
    """What is said while these losses are logged, with the number of the line; a start from `step` on."""
    state, said = SimpleNamespace(step=step), []
    settings = SimpleNamespace(flags=SimpleNamespace(output=output))
    run = SimpleNamespace(state=state, settings=settings, say=lambda line: said.append((state.step, line)))
    callback = Plateau(run, lambda: (5.5, 6.0), warmup_steps, "another rate")
    for loss in losses:
        state.step += interval
        callback.on_log({"mlm_loss": loss}, False)
    return said


def test_a_loss_that_stands_still_is_said_once():
    ((step, line),) = notes([8.0, 7.0, *[5.75] * 100])
    assert step == 10 * (2 + LINES)
    assert "5.75" in line
    assert "5.50 to 6.00" in line
    assert "start again with another rate" in line


def test_a_loss_that_stands_still_is_not_said_again_after_a_resume(tmp_path):
    lines = [{"step": 10 * number, "split": "train", "mlm_loss": 5.75} for number in range(1, 2 * LINES + 1)]
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert notes([5.75] * 2 * LINES, output=tmp_path, step=10 * LINES) == []
    # The checkpoint is of a step before the note: the lines before it count.
    ((step, _),) = notes([5.75] * 2 * LINES, output=tmp_path, step=10 * (LINES - 3))
    assert step == 10 * LINES


@pytest.mark.parametrize(
    "losses",
    [
        [6.5] * 100,  # not there yet
        [5.0] * 100,  # below: context is used
        list(np.linspace(6.1, 5.3, 50)),  # falls slowly through the range: 0.8 in 50 lines
        [*np.linspace(7, 5.9, 10), *np.linspace(5.9, 5.8, LINES - 2), *np.linspace(5.3, 3, 30)],
        [5.75 if line % 10 else 4.9 for line in range(100)],
    ],
)
def test_a_run_that_learns_is_not_disturbed(losses):
    assert notes(losses) == []


def test_the_warm_up_does_not_count():
    assert notes([5.75] * 50, warmup_steps=10 * (50 - LINES + 1)) == []
    assert len(notes([5.75] * 50, warmup_steps=10 * (50 - LINES))) == 1


def test_a_line_for_each_step_says_no_more_than_one_for_ten():
    passing = list(np.linspace(6.1, 5.3, 100))  # as albert-tiny with neighbours: through the range in 100 steps
    assert notes(passing, interval=1) == []
    ((step, _),) = notes([5.75] * 300, interval=1)
    assert step == 10 * LINES
