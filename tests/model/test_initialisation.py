"""Initial weights: statistics of TensorFlow's truncated normal, and heads that look at the neighbours of a token."""

import dataclasses
import math

import pytest
import torch

from model import AlbertConfig, AlbertForPreTraining, AlbertModel
from model.initialisation import LOGIT
from model.layers.attention import SelfAttention

PAPER = {"initial_attention": "random", "embedding_initializer_range": None}
# A standard normal cut at two: its variance is 1 - 2 * 2 * pdf(2) / (cdf(2) - cdf(-2)).
PDF_AT_2 = math.exp(-2.0) / math.sqrt(2 * math.pi)
CUT_STANDARD_DEVIATION = math.sqrt(1 - 4 * PDF_AT_2 / math.erf(2 / math.sqrt(2)))


@pytest.mark.parametrize("table_range", [None, 0.1])
def test_matrices_follow_the_truncated_normal_and_vectors_are_constant(table_range):
    torch.manual_seed(0)
    fields = PAPER | {"embedding_initializer_range": table_range, "embedding_size": 64, "vocab_size": 2000}
    model = AlbertForPreTraining(AlbertConfig.preset("albert-tiny", **fields))
    parameters = dict(model.named_parameters())
    matrices = {name: parameter for name, parameter in parameters.items() if parameter.ndim == 2}
    assert len(matrices) == 3 + 1 + 4 + 2 + 1 + 1 + 1
    for name, parameter in parameters.items():
        if name not in matrices:
            assert bool((parameter == (1.0 if name.endswith("layer_norm.weight") else 0.0)).all()), name
            continue
        large = table_range and ("word_embeddings" in name or "token_type_embeddings" in name)
        scale, count = table_range if large else 0.02, parameter.numel()
        assert parameter.abs().max() <= 2 * scale, name
        # five standard errors
        assert abs(parameter.mean().item()) < 5 * scale * CUT_STANDARD_DEVIATION / math.sqrt(count), name
        spread = parameter.std().item() / scale
        assert abs(spread - CUT_STANDARD_DEVIATION) < 5 * CUT_STANDARD_DEVIATION / math.sqrt(2 * count), name


LENGTH = 100
NEIGHBOURS = AlbertConfig.preset("albert-tiny", vocab_size=500, max_position_embeddings=LENGTH)


def attention_logits(model: AlbertModel, layer: int) -> torch.Tensor:
    """(heads, S, S) of one row of random tokens in the given layer's attention, computed here step by step."""
    ids = torch.randint(5, 500, (1, LENGTH), generator=torch.Generator().manual_seed(1))
    hidden = model(ids).hidden_states[layer][0]  # (S, H)
    block = model.encoder.attention[0]
    assert isinstance(block, SelfAttention)
    projection, heads = block.query_key_value, block.num_attention_heads
    query = (hidden @ projection.query_weight.T).unflatten(-1, (heads, -1)).transpose(0, 1)  # (heads, S, D)
    key = (hidden @ projection.key_weight.T).unflatten(-1, (heads, -1)).transpose(0, 1)  # (heads, S, D)
    return query @ key.transpose(1, 2) / query.shape[-1] ** 0.5  # (heads, S, S)


@pytest.mark.parametrize(
    ("sizes", "deviation"),
    [({}, 0.0396), ({"hidden_size": 256}, 0.0793), ({"embedding_size": 64}, 0.0396), ({"embedding_size": 256}, 0.0396)],
)
def test_initial_logits_are_12_at_the_neighbour_and_small_in_the_other_heads(sizes, deviation):
    """A query has the variance H x 0.0176^2, and so has a key: that is the standard deviation of their logit.

    All tokens of the row are in one segment, which is 0.4 of the square of each: a part of 0.4^2 of the variance is the
    same for all pairs. A segment's embedding is one random vector, so the logits are means over models.
    """
    rows = []
    for seed in range(8):
        torch.manual_seed(seed)
        model = AlbertModel(dataclasses.replace(NEIGHBOURS, **sizes)).eval()
        with torch.no_grad():
            logits, later = attention_logits(model, layer=0), attention_logits(model, layer=1).softmax(-1)
        rows.append([torch.diagonal(logits[head], offset).mean() for head, offset in enumerate((-1, 1, -2, 2))])
        rows[-1] += [logits[head].std() for head in range(4, 8)]
        for head, offset in enumerate((-1, 1, -2, 2)):
            assert torch.diagonal(later[head], offset)[3:-3].mean() > 0.7
    means = torch.tensor(rows).mean(dim=0)  # (8,)
    assert means[:4].tolist() == pytest.approx([LOGIT] * 4, rel=0.06)
    assert means[4:].tolist() == pytest.approx([deviation * math.sqrt(1 - 0.4**2)] * 4, rel=0.15)


@pytest.mark.parametrize("attention", ["random", "neighbours"])
def test_the_matrices_before_a_residual_sum_have_a_range_of_their_own(attention):
    torch.manual_seed(0)
    config = dataclasses.replace(NEIGHBOURS, initial_attention=attention, residual_initializer_range=0.004)
    parameters = dict(AlbertModel(config).named_parameters())
    for name in ("attention.0.dense", "feed_forward.0.output", "feed_forward.0.intermediate"):
        weight = parameters[f"encoder.{name}.weight"][:-32]  # the last units of positions are 0 in the first two
        scale = 0.02 if "intermediate" in name else 0.004
        assert weight.std().item() == pytest.approx(scale * CUT_STANDARD_DEVIATION, rel=0.03)


@pytest.mark.parametrize("sizes", [{}, {"hidden_size": 256}, {"embedding_size": 256}])
def test_words_are_as_large_as_positions_in_the_first_layer(sizes):
    torch.manual_seed(0)
    model = AlbertModel(dataclasses.replace(NEIGHBOURS, **sizes)).eval()
    with torch.no_grad():
        hidden = model(torch.randint(5, 500, (4, LENGTH))).hidden_states[0]  # (4, S, H)
    words, positions = (part.square().mean().sqrt().item() for part in (hidden[..., :-32], hidden[..., -32:]))
    assert words / positions == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize(("hidden_size", "residual"), [(128, None), (256, None), (256, 0.004)])
def test_pooler_and_sentence_head_keep_the_size_of_what_they_read(hidden_size, residual):
    torch.manual_seed(0)
    fields = {"hidden_size": hidden_size, "residual_initializer_range": residual}
    model = AlbertForPreTraining(dataclasses.replace(NEIGHBOURS, **fields))
    assert model.albert.pooler is not None
    assert model.sentence_head is not None
    with torch.no_grad():
        states = torch.randn(4000, hidden_size)
        pooled = model.albert.pooler.dense(states)  # (4000, H)
        logits = model.sentence_head(states)  # (4000, 2)
    size = 1.0 if residual is None else 0.88 * 0.02 * math.sqrt(hidden_size)  # or that of the paper's weights
    assert pooled.std().item() == pytest.approx(size, rel=0.05)
    # two rows of H weights: five standard errors of their mean square
    assert logits.square().mean().item() == pytest.approx(size**2, rel=5 / math.sqrt(hidden_size))
