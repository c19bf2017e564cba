"""Which layer uses which parameters, and where dropout acts."""

import pytest
import torch

from model import AlbertModel
from model.attention.self_attention import AttentionPattern, SelfAttention
from model.layers.embeddings import FactorisedEmbeddings
from model.layers.encoder import FeedForward, block_indices
from tests.model.examples import random_ids, randomise, tiny_config

# parameter_sharing, groups, blocks a layer -> for each of 4 layers its blocks as (attention, feed-forward).
TABLES = [
    ("all", 1, 1, [[(0, 0)], [(0, 0)], [(0, 0)], [(0, 0)]]),
    ("all", 2, 1, [[(0, 0)], [(0, 0)], [(1, 1)], [(1, 1)]]),
    ("all", 3, 1, [[(0, 0)], [(0, 0)], [(1, 1)], [(2, 2)]]),
    ("all", 4, 1, [[(0, 0)], [(1, 1)], [(2, 2)], [(3, 3)]]),
    ("all", 1, 2, [[(0, 0), (1, 1)]] * 4),
    ("all", 2, 2, [[(0, 0), (1, 1)]] * 2 + [[(2, 2), (3, 3)]] * 2),
    ("attention", 1, 1, [[(0, 0)], [(0, 1)], [(0, 2)], [(0, 3)]]),
    ("attention", 2, 1, [[(0, 0)], [(0, 1)], [(1, 2)], [(1, 3)]]),
    ("ffn", 1, 1, [[(0, 0)], [(1, 0)], [(2, 0)], [(3, 0)]]),
    ("ffn", 1, 2, [[(0, 0), (1, 1)], [(2, 0), (3, 1)], [(4, 0), (5, 1)], [(6, 0), (7, 1)]]),
    ("none", 1, 1, [[(0, 0)], [(1, 1)], [(2, 2)], [(3, 3)]]),
]


@pytest.mark.parametrize(("sharing", "groups", "inner", "expected"), TABLES)
def test_blocks_of_each_layer(sharing: str, groups: int, inner: int, expected: list[list[tuple[int, int]]]) -> None:
    config = tiny_config(
        num_hidden_layers=4, parameter_sharing=sharing, num_hidden_groups=groups, inner_group_num=inner
    )
    assert block_indices(config) == expected
    assert config.num_attention_blocks == 1 + max(block[0] for layer in expected for block in layer)
    assert config.num_ffn_blocks == 1 + max(block[1] for layer in expected for block in layer)


@pytest.mark.parametrize(("sharing", "groups", "inner", "expected"), TABLES)
def test_the_encoder_applies_these_blocks_in_this_order(
    sharing: str, groups: int, inner: int, expected: list[list[tuple[int, int]]]
) -> None:
    config = tiny_config(
        num_hidden_layers=4, parameter_sharing=sharing, num_hidden_groups=groups, inner_group_num=inner
    )
    model = AlbertModel(config)
    calls: list[tuple[str, int]] = []
    for kind, modules in (("attention", model.encoder.attention), ("ffn", model.encoder.feed_forward)):
        for number, module in enumerate(modules):
            module.register_forward_hook(lambda *_, call=(kind, number): calls.append(call))
    states = model(random_ids(0, 1, 5)).hidden_states
    assert calls == [call for layer in expected for a, f in layer for call in (("attention", a), ("ffn", f))]
    assert len(states) == 5


def test_dropout_acts_on_both_residual_branches() -> None:
    """With dropout close to 1, a block returns the LayerNorm of its input."""
    config = tiny_config(hidden_dropout_prob=0.9999)
    hidden = torch.randn(2, 4, 24, generator=torch.Generator().manual_seed(1))
    for sublayer, arguments in ((FeedForward(config), ()), (SelfAttention(config), (AttentionPattern(),))):
        randomise(sublayer, seed=0)
        torch.manual_seed(0)
        torch.testing.assert_close(sublayer(hidden, *arguments), sublayer.layer_norm(hidden))
        assert not torch.allclose(sublayer.eval()(hidden, *arguments), sublayer.layer_norm(hidden))


def test_dropout_acts_on_the_embeddings_before_their_projection() -> None:
    embeddings = FactorisedEmbeddings(tiny_config(hidden_dropout_prob=0.9999))
    randomise(embeddings, seed=0)
    torch.manual_seed(0)
    nothing_left = embeddings.projection.bias.expand(2, 4, 24)
    torch.testing.assert_close(embeddings(random_ids(0, 2, 4), None, None), nothing_left)


@pytest.mark.parametrize("field", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_dropout_is_drawn_in_training_and_off_in_evaluation(field: str) -> None:
    torch.manual_seed(0)
    model = AlbertModel(tiny_config(**{field: 0.5}))
    ids = random_ids(0, 2, 9)
    with torch.no_grad():
        assert not torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)
        model.eval()
        assert torch.equal(model(ids).last_hidden_state, model(ids).last_hidden_state)
