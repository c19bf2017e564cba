"""The heads: which positions they read, and sums of losses compared with float64."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from model import AlbertForPreTraining, ExecutionOptions
from model.layers import heads
from model.layers.heads import chunked_sums, classification_sums, sums_of_logits
from tests.model.examples import few_examples, random_ids, tiny_config


@few_examples
@given(
    labels=st.lists(st.sampled_from([-100, 0, 1, 2]), min_size=1, max_size=9),
    seed=st.integers(0, 1000),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]),
)
def test_sums_equal_double_precision_arithmetic(labels, seed, dtype):
    logits = (torch.randn(1, len(labels), 3, generator=torch.Generator().manual_seed(seed)) * 4).to(dtype)
    sums = classification_sums(logits, torch.tensor([labels]))
    exact = logits[0].double().numpy()
    used = [i for i, label in enumerate(labels) if label != -100]
    loss = sum(np.log(np.exp(exact[i]).sum()) - exact[i, labels[i]] for i in used)
    assert all(value.dtype == torch.float32 and value.shape == () for value in sums)
    np.testing.assert_allclose(sums.loss.item(), loss, rtol=1e-5, atol=1e-5)
    assert sums.hits.item() == sum(exact[i].argmax() == labels[i] for i in used)
    assert sums.total.item() == len(used)


def test_a_model_without_a_sentence_head_has_no_pooler_and_counts_no_pairs():
    model = AlbertForPreTraining(tiny_config(sentence_head=None))
    assert not any("pooler" in name or "sentence" in name for name in model.state_dict())
    output = model(random_ids(0, 2, 6), sentence_labels=torch.tensor([0, 1]))
    assert output.sentence_logits is None
    assert output.sentence_loss_sum == output.sentence_correct == output.sentence_count == 0


def test_chunked_loss_leaves_out_the_logits_in_training_only():
    model, ids = AlbertForPreTraining(tiny_config(), ExecutionOptions(chunked_loss=True)), random_ids(0, 2, 6)
    assert model(ids, masked_labels=ids).mlm_logits is None
    assert model.eval()(ids, masked_labels=ids).mlm_logits is not None


@pytest.mark.parametrize("chunked_loss", [False, True])
def test_every_module_with_parameters_is_called(chunked_loss):
    # ZeRO stage 3 gathers what a module owns when it is called.
    model, ids = AlbertForPreTraining(tiny_config(), ExecutionOptions(chunked_loss=chunked_loss)), random_ids(0, 2, 6)
    owners = {module for module in model.modules() if list(module.parameters(recurse=False))}
    for module in owners:
        module.register_forward_hook(lambda module, *_: missed.discard(module))
    missed = owners.copy()
    model(ids, masked_labels=ids)
    assert not missed


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that an operator made."""

    elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple) else (made,):
            self.elements = max(self.elements, one.numel() if isinstance(one, torch.Tensor) else 0)
        return made


@pytest.mark.parametrize(
    ("dtype", "scale", "tolerance"),
    [(torch.float32, 1.0, 1e-6), (torch.bfloat16, 1.0, 1e-2), (torch.float16, 2.0**10, 2e-3)],
)
def test_chunks_give_the_sums_and_gradients_of_all_logits_without_them(dtype, scale, tolerance, monkeypatch):
    monkeypatch.setattr(heads, "CHUNK", 4)
    generator = torch.Generator().manual_seed(0)
    inputs, weight, bias = (torch.randn(size, generator=generator).to(dtype) for size in ((11, 6), (300, 6), (300,)))
    labels = torch.randint(0, 300, (11,), generator=generator)
    labels[[2, 10]] = -100
    exact = [one.double().requires_grad_() for one in (inputs, weight, bias)]
    whole = torch.nn.functional.cross_entropy(exact[0] @ exact[1].T + exact[2], labels, reduction="sum")
    (scale * whole).backward()
    chunked = [one.requires_grad_() for one in (inputs, weight, bias)]
    with Largest() as largest:
        sums = chunked_sums(*chunked, labels, sums_of_logits)
        (scale * sums.loss).backward()
    assert largest.elements == weight.numel()  # 1,800; one chunk has 1,200 logits, all have 3,300
    assert sums.loss.dtype == torch.float32
    assert float(sums.loss.detach()) == pytest.approx(float(whole.detach()), rel=tolerance)
    guesses = (exact[0] @ exact[1].T + exact[2]).argmax(-1)
    assert (float(sums.hits), float(sums.total)) == (float((guesses == labels).sum()), 9.0)
    for one, other in zip(chunked, exact):
        assert one.grad is not None
        assert float((one.grad.double() - other.grad).norm() / other.grad.norm()) <= tolerance
