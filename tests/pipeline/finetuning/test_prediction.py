"""The batches of an evaluation, and an evaluation of a model that has diverged."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.finetuning import fine_tuning
from pipeline.finetuning.predictor import batches_of
from pipeline.tasks.kinds.logits import Logits
from pipeline.tasks.registry import TASKS
from pipeline.training.training_run import TrainingFailed, unmonitored


@given(st.lists(st.integers(3, 300), max_size=60), st.integers(1, 5), st.integers(1, 900))
def test_every_sample_is_evaluated_once_and_all_ranks_have_equally_many_batches(lengths, world_size, tokens):
    features = SimpleNamespace(lengths=np.array(lengths, dtype=np.int64))
    parts = [batches_of(features, rank, world_size, tokens) for rank in range(world_size)]
    assert len({len(part) for part in parts}) == 1
    samples = [sample for part in parts for batch in part for sample in batch]
    assert sorted(samples) == list(range(len(lengths)))
    for batch in (batch for part in parts for batch in part):
        assert len(batch) <= 1 or sum(lengths[sample] for sample in batch) <= tokens
    by_number = batches_of(features, limit=world_size, by_tokens=False)
    assert sorted(sample for batch in by_number for sample in batch) == sorted(samples)
    assert [len(batch) for batch in by_number[:-1]] == [world_size] * (len(by_number) - 1)


@pytest.mark.parametrize("is_first", [True, False])
def test_numbers_that_are_none_end_the_training_on_all_ranks(monkeypatch, is_first):
    said = "predictions or labels hold NaN or infinity; the training has diverged"
    logits = np.array([[np.nan], [1.0]], np.float32)
    predictions = Logits(np.array(["0", "1"]), logits, np.array([1.0, 2.0], np.float32)) if is_first else None
    monkeypatch.setattr(fine_tuning, "predict", lambda *given: predictions)
    control = SimpleNamespace(broadcast=lambda value: value if is_first else said)
    engine = SimpleNamespace(device="cpu", train=lambda: None)
    task = fine_tuning.FineTuning(None, None, None, TASKS["stsb"], SimpleNamespace(features={"dev": None}), None)
    task.control = control
    with pytest.raises(TrainingFailed, match=f"the evaluation on dev failed: {said}; lower the learning rate"):
        task.evaluate(engine, unmonitored)
