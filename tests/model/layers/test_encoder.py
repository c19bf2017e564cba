"""Which layer uses which parameters, where dropout acts, and the heads: what they read, and their sums of losses."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from model import AlbertForPreTraining, AlbertModel, ExecutionOptions
from model.layers import heads
from model.layers.attention import AttentionPattern, SelfAttention
from model.layers.embeddings import FactorisedEmbeddings
from model.layers.encoder import FeedForward
from model.layers.heads import chunked_sums, classification_sums, sums_of_logits
from tests.model.examples import few_examples, random_ids, randomise, tiny_config

# parameter_sharing, groups -> for each of 4 layers its (attention, feed-forward).
TABLES = [
    ("all", 1, [(0, 0)] * 4),
    ("all", 2, [(0, 0), (0, 0), (1, 1), (1, 1)]),
    ("all", 3, [(0, 0), (0, 0), (1, 1), (2, 2)]),
    ("attention", 1, [(0, 0), (0, 1), (0, 2), (0, 3)]),
    ("attention", 2, [(0, 0), (0, 1), (1, 2), (1, 3)]),
    ("ffn", 1, [(0, 0), (1, 0), (2, 0), (3, 0)]),
    ("none", 1, [(0, 0), (1, 1), (2, 2), (3, 3)]),
]


@pytest.mark.parametrize(("sharing", "groups", "expected"), TABLES)
def test_each_layer_applies_its_parameters_in_their_order(sharing, groups, expected):
    config = tiny_config(num_hidden_layers=4, parameter_sharing=sharing, num_hidden_groups=groups)
    assert config.num_attention_blocks == 1 + max(attention for attention, _ in expected)
    assert config.num_ffn_blocks == 1 + max(ffn for _, ffn in expected)
    model = AlbertModel(config)
    calls = []
    for kind, modules in (("attention", model.encoder.attention), ("ffn", model.encoder.feed_forward)):
        for number, module in enumerate(modules):
            module.register_forward_hook(lambda *_, call=(kind, number): calls.append(call))
    states = model(random_ids(0, 1, 5)).hidden_states
    assert calls == [call for attention, ffn in expected for call in (("attention", attention), ("ffn", ffn))]
    assert len(states) == 5


def test_dropout_acts_on_both_residual_branches_and_on_the_embeddings_before_their_projection():
    """With dropout close to 1, a block returns the LayerNorm of its input, and the embeddings are the bias."""
    config = tiny_config(hidden_dropout_prob=0.9999)
    hidden = torch.randn(2, 4, 24, generator=torch.Generator().manual_seed(1))
    feed_forward, attention, embeddings = FeedForward(config), SelfAttention(config), FactorisedEmbeddings(config)
    for module in (feed_forward, attention, embeddings):
        randomise(module, seed=0)
    attended = (AttentionPattern(), attention.query_key_value())
    for module, run in ((feed_forward, feed_forward), (attention, lambda hidden: attention(hidden, *attended)[0])):
        torch.manual_seed(0)
        torch.testing.assert_close(run(hidden), module.layer_norm(hidden))
        module.eval()
        assert not torch.allclose(run(hidden), module.layer_norm(hidden))
    torch.manual_seed(0)
    nothing_left = embeddings.projection.bias.expand(2, 4, 24)
    torch.testing.assert_close(embeddings(random_ids(0, 2, 4), None, None), nothing_left)


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
