"""The measurement beside `transformers`: the same work for both."""

import pytest
import torch

from benchmarks.shared.examples import draw, open_collator
from benchmarks.shared.systems import System, loss_difference, reference_system, this_system
from model import AlbertForPreTraining
from tests.model.examples import tiny_config

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
SMALL = tiny_config(vocab_size=200, max_position_embeddings=64)


def test_both_forms_hold_the_same_pairs(corpus):
    examples = draw(open_collator(corpus.train), 0, rows=3, device=CPU)
    (packed,), padded = examples.forms["packed"], examples.forms["padded"]
    rows = {name: torch.cat([batch[name] for batch in padded]) for name in padded[0]}
    assert rows["input_ids"].shape == (examples.pairs, 64)
    mask = rows["attention_mask"].bool()
    # Sequences follow each other in both, so their tokens do, too.
    assert rows["input_ids"][mask].tolist() == packed["input_ids"][packed["sequence_ids"] >= 0].tolist()
    assert rows["token_type_ids"][mask].tolist() == packed["token_type_ids"][packed["sequence_ids"] >= 0].tolist()
    assert examples.tokens == int(mask.sum())
    used = packed["masked_labels"] != -100
    assert sorted(rows["labels"][rows["labels"] != -100].tolist()) == sorted(packed["masked_labels"][used].tolist())
    assert rows["sentence_order_label"].numel() == examples.pairs


def test_both_systems_start_from_the_same_weights_and_losses(corpus):
    this = System("this", AlbertForPreTraining(SMALL))
    reference = reference_system("transformers", this.model)
    compiled = this_system("this, compiled", this.model, compile=True)
    for one, other in zip(this.model.parameters(), compiled.model.parameters(), strict=True):
        assert torch.equal(one, other)
    examples = draw(open_collator(corpus.train), 0, rows=2, device=CPU)
    packed, unpacked = (
        sum(this.model(**inputs).mlm_loss_sum.item() for inputs in form)
        for form in (examples.forms["packed"], examples.forms["unpacked"])
    )
    assert packed == pytest.approx(unpacked, rel=1e-5)
    assert loss_difference(this, reference, examples) < 1e-6
    assert len(this.optimizer.weights) == len(reference.optimizer.weights)
    before = [weight.detach().clone() for weight in this.optimizer.weights]
    this.step(examples)
    assert any(not torch.equal(one, other) for one, other in zip(before, this.optimizer.weights))
    assert all(weight.grad is None for weight in this.optimizer.weights)
