"""A packed row gives the logits, losses, counts and gradients that its pairs give alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from model import AlbertForPreTraining
from pipeline.data.packed_rows import sequence_offsets
from tests.model.examples import few_examples, gradients, random_ids, randomise, tiny_config

Pair = dict[str, Tensor]


@pytest.fixture(scope="module", autouse=True, params=[0, 512], ids=["one by one", "under a mask"])
def _both_ways(request):
    """Runs every test with the kernel for long rows, and with the kernel for short rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("model.layers.attention.MAX_MASKED_LENGTH", request.param)
        yield


PREDICTIONS = 4
PAIRS = 3


def make_pair(seed: int, length: int, label: int) -> Pair:
    """Returns one pair as a row of its own, with one to three masked tokens."""
    ids = random_ids(seed, 1, length)
    positions = sorted({1, length // 2, length - 1})
    return {
        "input_ids": ids,
        "token_type_ids": (torch.arange(length) > length // 2).long()[None],
        "masked_positions": torch.tensor([positions]),
        "masked_labels": random_ids(seed + 1, 1, len(positions)),
        "sentence_labels": torch.tensor([label]),
    }


def pack(rows: list[list[Pair]], length: int) -> dict[str, Tensor]:
    """Packs pairs into rows, one after the other, with padding at the end."""
    zeros = torch.zeros(len(rows), length, dtype=torch.int64)
    batch = {
        **{name: zeros.clone() for name in ("input_ids", "token_type_ids", "position_ids")},
        "sequence_ids": torch.full((len(rows), length), -1),
        "masked_positions": torch.zeros(len(rows), PAIRS * PREDICTIONS, dtype=torch.int64),
        "masked_labels": torch.full((len(rows), PAIRS * PREDICTIONS), -100),
        "cls_positions": torch.zeros(len(rows), PAIRS, dtype=torch.int64),
        "sentence_labels": torch.full((len(rows), PAIRS), -100),
    }
    for row, pairs in enumerate(rows):
        start = predictions = 0
        for number, pair in enumerate(pairs):
            size = pair["input_ids"].shape[1]
            count = pair["masked_positions"].shape[1]
            tokens, slots = slice(start, start + size), slice(predictions, predictions + count)
            batch["input_ids"][row, tokens] = pair["input_ids"]
            batch["token_type_ids"][row, tokens] = pair["token_type_ids"]
            batch["position_ids"][row, tokens] = torch.arange(size)
            batch["sequence_ids"][row, tokens] = number
            batch["masked_positions"][row, slots] = pair["masked_positions"] + start
            batch["masked_labels"][row, slots] = pair["masked_labels"]
            batch["cls_positions"][row, number] = start
            batch["sentence_labels"][row, number] = pair["sentence_labels"]
            start, predictions = start + size, predictions + count
    offsets = sequence_offsets(batch["sequence_ids"].numpy())
    return batch | {"cu_seqlens": torch.from_numpy(offsets)}


def total(output) -> Tensor:
    return output.mlm_loss_sum + output.sentence_loss_sum


@few_examples
@given(
    rows=st.lists(
        st.lists(st.tuples(st.integers(3, 10), st.sampled_from([0, 1, -100])), min_size=1, max_size=PAIRS),
        min_size=1,
        max_size=3,
    ),
    sharing=st.sampled_from(["all", "attention", "ffn", "none"]),
)
def test_packed_rows_equal_their_pairs_alone(rows, sharing):
    pairs = [
        [make_pair(10 * row + number, length, label) for number, (length, label) in enumerate(row_pairs)]
        for row, row_pairs in enumerate(rows)
    ]
    model = AlbertForPreTraining(tiny_config(parameter_sharing=sharing))
    randomise(model, seed=3)

    batch = pack(pairs, length=33)
    packed = model(**batch)
    total(packed).backward()
    packed_gradients = gradients(model)

    model.zero_grad()
    alone = [[model(**pair) for pair in row_pairs] for row_pairs in pairs]
    flat = [output for outputs in alone for output in outputs]
    torch.stack([total(output) for output in flat]).sum().backward()

    for row, outputs in enumerate(alone):
        masked = torch.cat([output.mlm_logits[0] for output in outputs])
        torch.testing.assert_close(packed.mlm_logits[row, : len(masked)], masked, rtol=1e-5, atol=1e-5)
        sentences = torch.cat([output.sentence_logits for output in outputs])
        torch.testing.assert_close(packed.sentence_logits[row, : len(outputs)], sentences, rtol=1e-5, atol=1e-5)
    for field in packed._fields[2:]:  # the sums
        expected = torch.stack([getattr(output, field) for output in flat]).sum()
        torch.testing.assert_close(getattr(packed, field), expected, rtol=1e-5, atol=1e-5)
    for name, gradient in gradients(model).items():
        scale = max(1.0, gradient.abs().max().item())
        torch.testing.assert_close(packed_gradients[name] / scale, gradient / scale, rtol=1e-5, atol=1e-5, msg=name)


def test_packed_rows_need_their_positions_and_their_cls():
    model = AlbertForPreTraining(tiny_config())
    batch = pack([[make_pair(0, 9, 1)]], length=12)
    for missing in ("position_ids", "cls_positions"):
        with pytest.raises(ValueError, match=missing):
            model(**{name: tensor for name, tensor in batch.items() if name != missing})
    with pytest.raises(ValueError, match="attention_mask"):
        model(**batch, attention_mask=torch.ones_like(batch["input_ids"]))
    with pytest.raises(ValueError, match="41 tokens exceed max_position_embeddings 40"):
        model(random_ids(0, 1, 41))
