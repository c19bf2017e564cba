"""Initial weights: statistics of TensorFlow's truncated normal, and heads that look at the neighbours of a token."""

import dataclasses
import math

import pytest
import torch
from torch import nn

from model import AlbertConfig, AlbertForPreTraining, AlbertModel
from model.attention.self_attention import SelfAttention
from model.config import PRESETS
from model.initialisation import LOGIT

PAPER = {"initial_attention": "random", "embedding_initializer_range": None}
# A standard normal cut at two: its variance is 1 - 2 * 2 * pdf(2) / (cdf(2) - cdf(-2)).
PDF_AT_2 = math.exp(-2.0) / math.sqrt(2 * math.pi)
CUT_STANDARD_DEVIATION = math.sqrt(1 - 4 * PDF_AT_2 / math.erf(2 / math.sqrt(2)))


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return AlbertForPreTraining(AlbertConfig.preset("albert-tiny", embedding_size=64, vocab_size=2000, **PAPER))


def test_matrices_follow_the_truncated_normal(model: nn.Module) -> None:
    matrices = {name: p for name, p in model.named_parameters() if p.ndim == 2}
    assert len(matrices) == 3 + 1 + 4 + 2 + 1 + 1 + 1
    for name, matrix in matrices.items():
        count = matrix.numel()
        assert matrix.abs().max() <= 0.04, name
        # five standard errors
        assert abs(matrix.mean().item()) < 5 * 0.02 * CUT_STANDARD_DEVIATION / math.sqrt(count), name
        spread = matrix.std().item() / 0.02
        assert abs(spread - CUT_STANDARD_DEVIATION) < 5 * CUT_STANDARD_DEVIATION / math.sqrt(2 * count), name


def test_the_cut_is_at_two_standard_deviations(model: nn.Module) -> None:
    weights = torch.cat([p.detach().flatten() for p in model.parameters() if p.ndim == 2])
    # P(|z| > 1) after the cut, by the normal distribution function.
    expected = 1 - math.erf(1 / math.sqrt(2)) / math.erf(2 / math.sqrt(2))
    assert abs((weights.abs() > 0.02).float().mean().item() - expected) < 0.005
    assert weights.abs().max() > 0.0399


def test_vectors_start_at_zero_and_layer_norms_at_one(model: nn.Module) -> None:
    for name, vector in ((name, p) for name, p in model.named_parameters() if p.ndim == 1):
        expected = 1.0 if name.endswith("layer_norm.weight") else 0.0
        assert bool((vector == expected).all()), name


def test_the_seed_decides_the_weights() -> None:
    config = AlbertConfig.preset("albert-tiny", vocab_size=50)
    torch.manual_seed(7)
    first = AlbertForPreTraining(config).state_dict()
    torch.manual_seed(7)
    second = AlbertForPreTraining(config).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


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


@pytest.mark.parametrize("sizes", [{}, {"hidden_size": 256}, {"embedding_size": 64}, {"embedding_size": 256}])
@pytest.mark.parametrize("layer", [0, 1])
def test_half_of_the_heads_begin_at_one_neighbour_each(sizes: dict[str, int], layer: int) -> None:
    torch.manual_seed(0)
    model = AlbertModel(dataclasses.replace(NEIGHBOURS, **sizes)).eval()
    with torch.no_grad():
        weights = attention_logits(model, layer).softmax(-1)
    for head, offset in enumerate((-1, 1, -2, 2)):
        at_offset = torch.diagonal(weights[head], offset)[3:-3]
        assert at_offset.mean() > 0.7
    for head in range(4, 8):
        assert weights[head].max() < 0.5


@pytest.mark.parametrize(
    ("sizes", "deviation"),
    [({}, 0.0396), ({"hidden_size": 256}, 0.0793), ({"embedding_size": 64}, 0.0396), ({"embedding_size": 256}, 0.0396)],
)
def test_initial_logits_are_12_at_the_neighbour_and_small_in_the_other_heads(
    sizes: dict[str, int], deviation: float
) -> None:
    """A query has the variance H x 0.0176^2, and so has a key: that is the standard deviation of their logit."""
    torch.manual_seed(0)
    model = AlbertModel(dataclasses.replace(NEIGHBOURS, **sizes)).eval()
    with torch.no_grad():
        logits = attention_logits(model, layer=0)
    for head, offset in enumerate((-1, 1, -2, 2)):
        assert torch.diagonal(logits[head], offset).mean().item() == pytest.approx(LOGIT, rel=0.06)
    for head in range(4, 8):
        assert logits[head].std().item() == pytest.approx(deviation, rel=0.15)


@pytest.mark.parametrize("sizes", [{}, {"hidden_size": 256}, {"embedding_size": 256}])
def test_words_are_as_large_as_positions_in_the_first_layer(sizes: dict[str, int]) -> None:
    torch.manual_seed(0)
    model = AlbertModel(dataclasses.replace(NEIGHBOURS, **sizes)).eval()
    with torch.no_grad():
        hidden = model(torch.randint(5, 500, (4, LENGTH))).hidden_states[0]  # (4, S, H)
    words, positions = (part.square().mean().sqrt().item() for part in (hidden[..., :-32], hidden[..., -32:]))
    assert words / positions == pytest.approx(1.0, abs=0.25)


def test_the_paper_s_models_start_as_in_the_paper() -> None:
    for name in PRESETS:
        config = AlbertConfig.preset(name)
        small = name == "albert-tiny"
        assert (config.initial_attention, config.embedding_initializer_range) == (
            ("neighbours", 0.1) if small else ("random", None)
        )


def test_only_words_have_their_own_range() -> None:
    torch.manual_seed(0)
    state = AlbertForPreTraining(
        dataclasses.replace(NEIGHBOURS, **PAPER | {"embedding_initializer_range": 0.1})
    ).state_dict()
    for name, tensor in state.items():
        if name.endswith("weight") and tensor.ndim == 2:
            words = name == "albert.embeddings.word_embeddings.weight"
            assert float(tensor.std()) == pytest.approx(0.088 if words else 0.0176, rel=0.15), name


def test_words_and_segments_begin_beside_the_positions() -> None:
    state = AlbertForPreTraining(NEIGHBOURS).state_dict()
    embeddings = "albert.embeddings."
    for table, words in (("word", True), ("token_type", True), ("position", False)):
        weight = state[f"{embeddings}{table}_embeddings.weight"]
        assert bool((weight[:, -32:] == 0).all()) == words
        assert bool((weight[:, :-32] == 0).all()) == (not words)


def test_sizes_that_are_too_small_are_refused() -> None:
    for sizes in ({"embedding_size": 3}, {"num_attention_heads": 128}):
        with pytest.raises(ValueError, match="initial_attention 'neighbours' needs heads of 2 units"):
            dataclasses.replace(NEIGHBOURS, **sizes)
    with pytest.raises(ValueError, match="initial_attention"):
        dataclasses.replace(NEIGHBOURS, initial_attention="neighbors")
    with pytest.raises(ValueError, match="embedding_initializer_range is -1"):
        dataclasses.replace(NEIGHBOURS, embedding_initializer_range=-1)


def test_wide_embeddings_leave_three_quarters_of_the_model_to_words() -> None:
    units = {size: dataclasses.replace(NEIGHBOURS, embedding_size=size).position_units for size in (64, 128, 256, 512)}
    assert units == {64: 16, 128: 32, 256: 32, 512: 32}


def test_a_model_without_data_can_be_made() -> None:
    """As `empty_model` does before it loads weights."""
    with torch.device("meta"):
        assert AlbertForPreTraining(NEIGHBOURS).mlm_head.bias.is_meta
