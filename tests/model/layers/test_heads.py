"""The heads: which positions they read, and sums of losses compared with float64."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from model import AlbertForPreTraining
from model.layers.heads import classification_sums
from tests.model.examples import few_examples, random_ids, randomise, tiny_config


@few_examples
@given(
    labels=st.lists(st.sampled_from([-100, 0, 1, 2]), min_size=1, max_size=9),
    seed=st.integers(0, 1000),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
def test_sums_equal_double_precision_arithmetic(labels: list[int], seed: int, dtype: torch.dtype) -> None:
    logits = (torch.randn(1, len(labels), 3, generator=torch.Generator().manual_seed(seed)) * 4).to(dtype)
    sums = classification_sums(logits, torch.tensor([labels]))
    exact = logits[0].double().numpy()
    used = [i for i, label in enumerate(labels) if label != -100]
    loss = sum(np.log(np.exp(exact[i]).sum()) - exact[i, labels[i]] for i in used)
    assert all(value.dtype == torch.float32 and value.shape == () for value in sums)
    np.testing.assert_allclose(sums.loss.item(), loss, rtol=1e-5, atol=1e-5)
    assert sums.hits.item() == sum(exact[i].argmax() == labels[i] for i in used)
    assert sums.total.item() == len(used)


def test_masked_positions_select_from_the_full_logits() -> None:
    model = AlbertForPreTraining(tiny_config())
    randomise(model, seed=1)
    ids = random_ids(0, 2, 10)
    positions = torch.tensor([[3, 7, 0], [9, 1, 4]])
    full = model(ids).mlm_logits
    some = model(ids, masked_positions=positions).mlm_logits
    assert full.shape == (2, 10, 50)
    for row in range(2):
        torch.testing.assert_close(some[row], full[row, positions[row]], rtol=1e-5, atol=1e-5)


def test_the_output_matrix_is_the_word_embeddings() -> None:
    model = AlbertForPreTraining(tiny_config())
    ids = random_ids(0, 1, 6)
    before = model(ids).mlm_logits
    unused = 4  # no token of `ids`: only the output sees its embedding
    with torch.no_grad():
        model.albert.embeddings.word_embeddings.weight[unused] += 1.0
    changed = (model(ids).mlm_logits != before).any(dim=1)[0]
    assert changed.nonzero().flatten().tolist() == [unused]


def test_a_model_without_a_sentence_head_has_no_pooler_and_counts_no_pairs() -> None:
    model = AlbertForPreTraining(tiny_config(sentence_head=None))
    assert not any("pooler" in name or "sentence" in name for name in model.state_dict())
    output = model(random_ids(0, 2, 6), sentence_labels=torch.tensor([0, 1]))
    assert output.sentence_logits is None
    assert output.sentence_loss_sum == output.sentence_correct == output.sentence_count == 0
