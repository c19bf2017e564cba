"""The measurement beside `transformers`: the same work for both, with the arithmetic of training."""

from types import SimpleNamespace

import pytest
import torch

from benchmarks.shared import measure
from benchmarks.shared.examples import Examples, Inputs, draw, open_collator
from benchmarks.shared.systems import System, loss_difference, reference_system, this_system
from model import AlbertForPreTraining
from pipeline.data.packed_rows import sequence_offsets
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


def test_unpacked_rows_have_the_offsets_of_their_sequences(corpus):
    """Otherwise packed rows beside them would show the gain of the attention kernel, too."""
    examples = examples_of_several_pairs_a_row(corpus)
    (packed,) = examples.forms["packed"]
    assert lengths_of_pairs(examples.forms["unpacked"]) == lengths_of_pairs([packed])
    for inputs in examples.forms["unpacked"]:
        assert inputs["cu_seqlens"].dtype == packed["cu_seqlens"].dtype
        assert inputs["cu_seqlens"].tolist() == sequence_offsets(inputs["sequence_ids"].numpy()).tolist()


def examples_of_several_pairs_a_row(corpus: SimpleNamespace) -> Examples:
    collator, rows = open_collator(corpus.train), 8
    batches = (draw(collator, number, rows, CPU) for number in range(100))
    return next(examples for examples in batches if examples.pairs > rows)


def lengths_of_pairs(batches: list[Inputs]) -> list[int]:
    """The tokens of each pair by the offsets, which also have the padding of a row, and are filled up."""
    found = []
    for inputs in batches:
        offsets = inputs["cu_seqlens"]
        starts = offsets[:-1][offsets.diff() > 0]
        is_pair = inputs["sequence_ids"].flatten()[starts] >= 0
        found += offsets.diff()[offsets.diff() > 0][is_pair].tolist()
    return found


def test_blocks_are_the_packed_rows_as_one_text_each(corpus):
    examples = examples_of_several_pairs_a_row(corpus)
    (packed,), (blocks,) = examples.forms["packed"], examples.forms["blocks"]
    assert blocks.keys() == {"input_ids", "token_type_ids", "labels", "sentence_order_label"}  # no attention_mask
    assert torch.equal(blocks["input_ids"], packed["input_ids"])
    assert torch.equal(blocks["token_type_ids"], packed["token_type_ids"])
    used = packed["masked_labels"] != -100
    rows, _ = used.nonzero(as_tuple=True)
    labels = torch.full_like(packed["input_ids"], -100)
    labels[rows, packed["masked_positions"][used]] = packed["masked_labels"][used]
    assert torch.equal(blocks["labels"], labels)
    # A pair that has no order, as a single segment, counts as 0: `transformers` has no mean over nothing.
    assert blocks["sentence_order_label"].tolist() == packed["sentence_labels"][:, 0].clamp(min=0).tolist()


def test_steps_and_products_add_up_in_fp32_as_training_does(corpus, monkeypatch):
    switches, seen = torch.backends.cuda.matmul, []
    switches.allow_fp16_reduced_precision_reduction = switches.allow_bf16_reduced_precision_reduction = True

    def look(*_):
        fp16, bf16 = switches.allow_fp16_reduced_precision_reduction, switches.allow_bf16_reduced_precision_reduction
        seen.append([fp16, bf16])

    multiply = torch.mm
    with monkeypatch.context() as patch:
        patch.setattr(torch, "mm", lambda *factors: [look(), multiply(*factors)][1])
        measure.matrix_product_tflops(torch.float32, CPU, 0.0, 8)
    assert seen == [[False, False]] * len(seen) != []

    examples = draw(open_collator(corpus.train), 0, rows=2, device=CPU)
    this = System("this", AlbertForPreTraining(SMALL))
    systems = [
        this,
        this_system("this, 16-bit sums", this.model, bits=16),
        reference_system("transformers", this.model),
    ]
    seen.clear()
    for system in systems:
        system.model.register_forward_hook(look)
        system.step(examples)
    assert seen[0] == [False, False]
    assert seen[1] == [True, True]
    assert seen[2:] == [[False, False]] * len(seen[2:]) != []


def test_both_systems_drop_hidden_states_and_attention_weights(corpus):
    examples = draw(open_collator(corpus.train), 0, rows=2, device=CPU)
    own = AlbertForPreTraining(SMALL)
    for make, form in ((this_system, "packed"), (reference_system, "padded")):
        plain, dropping = make("plain", own), make("dropping", own, dropout=0.1)
        for system, rate in ((plain, 0.0), (dropping, 0.1)):
            config = system.model.config
            assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (rate, rate)
            assert config.classifier_dropout_prob == rate
            assert system.model.training
        inputs = examples.forms[form][0]
        exact, first, second = (system.loss(inputs).item() for system in (plain, dropping, dropping))
        assert plain.loss(inputs).item() == pytest.approx(exact, rel=1e-6)
        assert len({exact, first, second}) == 3


def test_transformers_has_no_dropout_after_the_feed_forward_network(corpus):
    """So with dropout it has less to compute than this project."""
    reference = reference_system("transformers", AlbertForPreTraining(SMALL), dropout=0.1).model
    (layer,) = reference.albert.encoder.albert_layer_groups[0].albert_layers
    hidden = torch.randn(2, 8, SMALL.hidden_size)
    layer.attention.eval()
    assert torch.equal(*(layer(hidden) for _ in range(2)))
    layer.attention.train()
    assert not torch.equal(*(layer(hidden) for _ in range(2)))


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
