"""Fine-tuning heads, on padded and packed rows: in fp32 they equal those of `transformers`, if it has them."""

import dataclasses
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.xlnet import modeling_xlnet

from model import huggingface
from model.classification import (
    AlbertForMultipleChoice,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from model.spans import AlbertForConditionedQuestionAnswering, AlbertForQuestionAnswering
from tests.model.examples import random_ids, randomise, tiny_config

TOLERANCE = {"atol": 2e-5, "rtol": 2e-5}
CONFIG = tiny_config(classifier_dropout_prob=0.0)
LENGTHS = (17, 9, 25, 12)


def padded() -> dict[str, Tensor]:
    """Returns one sequence in each row, as `transformers` reads them."""
    longest = max(LENGTHS)
    mask = (torch.arange(longest) < torch.tensor(LENGTHS)[:, None]).long()
    return {
        "input_ids": random_ids(3, len(LENGTHS), longest) * mask,
        "token_type_ids": (torch.arange(longest) >= 5).long() * mask,
        "attention_mask": mask,
    }


def packed(batch: dict[str, Tensor]) -> tuple[dict[str, Tensor], list[tuple[int, int]]]:
    """Returns the same sequences, two in each row, the last one first; and row and start of each."""
    size = 48
    rows = {name: torch.zeros(2, size, dtype=torch.long) for name in ("input_ids", "token_type_ids", "position_ids")}
    rows["sequence_ids"] = torch.full((2, size), -1)
    places = [(1, LENGTHS[1]), (1, 0), (0, LENGTHS[3]), (0, 0)]
    for index, (row, start) in enumerate(places):
        here = slice(start, start + LENGTHS[index])
        for name in ("input_ids", "token_type_ids"):
            rows[name][row, here] = batch[name][index, : LENGTHS[index]]
        rows["position_ids"][row, here] = torch.arange(LENGTHS[index])
        rows["sequence_ids"][row, here] = int(start > 0)
    return rows, places


def reference(kind: type, model: nn.Module, directory: Path, **fields: object) -> nn.Module:
    huggingface.save(model, directory, fields={"architectures": [kind.__name__], **fields})
    return kind.from_pretrained(directory).eval()


CLS = torch.tensor([[0, LENGTHS[3]], [0, LENGTHS[1]]])
SEQUENCES = torch.tensor([3, 2, 1, 0])


@pytest.mark.parametrize("labels", [3, 1])
def test_classification_and_regression(labels, tmp_path):
    model = AlbertForSequenceClassification(CONFIG, labels).eval()
    randomise(model, 1)
    wanted = torch.tensor([0, 2, 1, 2]) if labels > 1 else torch.tensor([0.5, 3.0, 4.5, 1.0])
    kind = transformers.AlbertForSequenceClassification
    theirs = reference(kind, model, tmp_path, num_labels=labels)(**padded(), labels=wanted)
    rows, _ = packed(padded())
    for inputs in (padded(), {**rows, "cls_positions": CLS, "sequences": SEQUENCES}):
        mine = model(**inputs, labels=wanted)
        torch.testing.assert_close([mine.logits, mine.loss_sum / mine.total], [theirs.logits, theirs.loss], **TOLERANCE)
    some = wanted.clone()
    some[1] = -100 if labels > 1 else torch.nan
    mine = model(**padded(), labels=some)
    kept = model(**padded(), labels=wanted).logits[[0, 2, 3]]
    left = wanted[[0, 2, 3]]
    loss = functional.cross_entropy(kept, left) if labels > 1 else functional.mse_loss(kept[:, 0], left)
    assert mine.total == 3
    torch.testing.assert_close(mine.loss_sum / 3, loss, **TOLERANCE)


def test_multiple_choice(tmp_path):
    model = AlbertForMultipleChoice(CONFIG).eval()
    randomise(model, 2)
    other = reference(transformers.AlbertForMultipleChoice, model, tmp_path)
    two_questions = {name: tensor.view(2, 2, -1) for name, tensor in padded().items()}
    theirs = other(**two_questions, labels=torch.tensor([1, 0]))
    rows, _ = packed(padded())
    for inputs, options in (
        (padded(), torch.tensor([[0, 1], [2, 3]])),
        ({**rows, "cls_positions": CLS}, SEQUENCES.view(2, 2)),
    ):
        mine = model(**inputs, sequences=options, labels=torch.tensor([1, 0]))
        torch.testing.assert_close([mine.logits, mine.loss_sum / mine.total], [theirs.logits, theirs.loss], **TOLERANCE)
    assert model(**padded()).logits.shape == (1, 4)


def test_token_classification(tmp_path):
    model = AlbertForTokenClassification(CONFIG, 3).eval()
    randomise(model, 5)
    tokens = [(0, 3), (0, 16), (1, 1), (2, 24), (3, 2)]  # text and place in it
    wanted = torch.tensor([2, -100, 0, 1, 1])
    labels = torch.full((len(LENGTHS), max(LENGTHS)), -100)
    for (text, place), label in zip(tokens, wanted):
        labels[text, place] = label
    theirs = reference(transformers.AlbertForTokenClassification, model, tmp_path, num_labels=3)(
        **padded(), labels=labels
    )
    expected = torch.stack([theirs.logits[text, place] for text, place in tokens])
    rows, places = packed(padded())
    size = rows["input_ids"].shape[1]
    flat = torch.tensor([places[text][0] * size + places[text][1] + place for text, place in tokens])
    in_rows = torch.tensor([text * max(LENGTHS) + place for text, place in tokens])
    for inputs in ({**padded(), "token_positions": in_rows}, {**rows, "cls_positions": CLS, "token_positions": flat}):
        mine = model(**inputs, labels=wanted)
        torch.testing.assert_close([mine.logits, mine.loss_sum / mine.total], [expected, theirs.loss], **TOLERANCE)
        assert mine.total == 4
    everywhere = model(**padded())
    assert everywhere.loss_sum is None
    torch.testing.assert_close(everywhere.logits[in_rows], expected, **TOLERANCE)


def test_plain_spans(tmp_path):
    model = AlbertForQuestionAnswering(CONFIG).eval()
    randomise(model, 3)
    starts, ends = torch.tensor([4, 0, 11, 2]), torch.tensor([9, 0, 24, 2])
    other = reference(transformers.AlbertForQuestionAnswering, model, tmp_path)
    theirs = other(**padded(), start_positions=starts, end_positions=ends)
    mine = model(**padded(), start_positions=starts, end_positions=ends)
    found = [mine.start_logits, mine.end_logits, mine.loss_sum / mine.total]
    torch.testing.assert_close(found, [theirs.start_logits, theirs.end_logits, theirs.loss], **TOLERANCE)

    rows, places = packed(padded())
    allowed = (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]).long()
    positions = torch.full((len(LENGTHS), max(LENGTHS)), -1)
    for index, (row, start) in enumerate(places):
        positions[index, : LENGTHS[index]] = row * 48 + start + torch.arange(LENGTHS[index])
    found = model(**rows, window_positions=positions, allowed=allowed)
    used = allowed.bool()
    torch.testing.assert_close(found.start_logits[used], theirs.start_logits[used], **TOLERANCE)
    torch.testing.assert_close(found.end_logits[used], theirs.end_logits[used], **TOLERANCE)
    assert (found.start_logits[~used] == -torch.inf).all()


def test_conditioned_spans_are_those_of_xlnet_s_head(tmp_path):
    """`transformers` has no such head for ALBERT, but XLNet's has the same parts."""
    model = AlbertForConditionedQuestionAnswering(CONFIG).eval()
    randomise(model, 4)
    config = transformers.XLNetConfig(d_model=CONFIG.hidden_size, n_head=3, layer_norm_eps=CONFIG.layer_norm_eps)
    start = modeling_xlnet.XLNetPoolerStartLogits(config)
    end = modeling_xlnet.XLNetPoolerEndLogits(config)
    answer = modeling_xlnet.XLNetPoolerAnswerClass(config)
    start.dense.load_state_dict(model.start.state_dict())
    end.dense_0.weight.data = torch.cat((model.end_of_token.weight, model.end_of_start.weight), dim=1).data
    end.dense_0.bias.data = model.end_of_token.bias.data
    end.LayerNorm.load_state_dict(model.end_layer_norm.state_dict())
    end.dense_1.load_state_dict(model.end.state_dict())
    answer.dense_0.load_state_dict(model.verdict_dense.state_dict())
    answer.dense_1.load_state_dict(model.verdict.state_dict())

    allowed = ((torch.arange(25) < torch.tensor(LENGTHS)[:, None] - 1) & (torch.arange(25) > 4)).long()
    allowed[:, 0] = 1
    barred = 1.0 - allowed.float()
    starts, ends = torch.tensor([7, 0, 11, 6]), torch.tensor([9, 0, 20, 6])
    with torch.no_grad():
        hidden = model.albert(**padded()).last_hidden_state
        start_logits = start(hidden, p_mask=barred)
        end_logits = end(hidden, start_positions=starts, p_mask=barred)
        feature = torch.einsum("nl,nlh->nh", functional.softmax(start_logits, dim=-1), hidden)
        null = answer(hidden, start_states=feature, cls_index=torch.zeros(4, dtype=torch.long))
        impossible = (starts == 0).float()
        loss = 0.5 * (functional.cross_entropy(start_logits, starts) + functional.cross_entropy(end_logits, ends))
        loss = loss + 0.5 * functional.binary_cross_entropy_with_logits(null, impossible)

        mine = model(**padded(), allowed=allowed, start_positions=starts, end_positions=ends)
        used = allowed.bool()
        found = [mine.start_logits[used], mine.end_logits[used], mine.null_logits, mine.loss_sum / mine.total]
        torch.testing.assert_close(found, [start_logits[used], end_logits[used], null, loss], **TOLERANCE)

        # Without labels: a beam of the five best starts, [CLS] not among them, and the ends after each.
        found = model(**padded(), allowed=allowed)
        assert (found.start_beam > 0).all()
        for index in range(4):
            best = start_logits[index, 1:].topk(5).indices + 1
            assert found.start_beam[index].tolist() == best.tolist() or LENGTHS[index] < 11
        for beam in range(5):
            after = end(hidden, start_positions=found.start_beam[:, beam], p_mask=barred)
            torch.testing.assert_close(found.end_logits[:, beam][used], after[used], **TOLERANCE)


def test_a_batch_without_sequences_has_gradients_of_zero():
    """The last batches of an evaluation may be empty on some ranks."""
    empty = {name: torch.zeros(1, 8, dtype=torch.long) for name in ("input_ids", "token_type_ids", "position_ids")}
    empty["sequence_ids"] = torch.full((1, 8), -1)
    none = torch.zeros(0, dtype=torch.long)
    classifier = AlbertForSequenceClassification(CONFIG, 2)
    cls = torch.zeros(1, 1, dtype=torch.long)
    assert classifier(**empty, cls_positions=cls, sequences=none, labels=none).loss_sum == 0
    for kind in (AlbertForQuestionAnswering, AlbertForConditionedQuestionAnswering):
        nothing = torch.zeros(0, 1, dtype=torch.long)
        spans = kind(CONFIG)
        assert spans(**empty, window_positions=nothing, allowed=nothing).start_logits.shape == (0, 1)
        output = spans(**empty, window_positions=nothing, allowed=nothing, start_positions=none, end_positions=none)
        output.loss_sum.backward()
        assert output.total == 0


@pytest.mark.parametrize("kind", [AlbertForSequenceClassification, AlbertForTokenClassification])
def test_dropout_before_the_classifier(kind):
    model = kind(dataclasses.replace(CONFIG, classifier_dropout_prob=0.5), 2)
    assert not torch.equal(model(**padded()).logits, model(**padded()).logits)
    model.eval()
    assert torch.equal(model(**padded()).logits, model(**padded()).logits)
