"""Which layer uses which parameters, and where dropout acts."""

import pytest
import torch

from model import AlbertModel
from model.layers.attention import AttentionPattern, SelfAttention
from model.layers.embeddings import FactorisedEmbeddings
from model.layers.encoder import FeedForward
from tests.model.examples import random_ids, randomise, tiny_config

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
