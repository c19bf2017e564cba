"""The initial weights of `initial_attention` "neighbours": heads look at the tokens beside their own."""

import dataclasses

import pytest
import torch

from model import AlbertConfig, AlbertForPreTraining, AlbertModel
from model.attention.self_attention import SelfAttention
from model.config import PRESETS

LENGTH = 100
NEIGHBOURS = AlbertConfig.preset("albert-tiny", vocab_size=500, max_position_embeddings=LENGTH)
PAPER = dataclasses.replace(NEIGHBOURS, initial_attention="random", embedding_initializer_range=None)


def attention_weights(model: AlbertModel, layer: int) -> torch.Tensor:
    """(heads, S, S) of one row of random tokens in the given layer's attention, computed here step by step."""
    ids = torch.randint(5, 500, (1, LENGTH), generator=torch.Generator().manual_seed(1))
    hidden = model(ids).hidden_states[layer][0]  # (S, H)
    block = model.encoder.attention[0]
    assert isinstance(block, SelfAttention)
    projection, heads = block.query_key_value, block.num_attention_heads
    query = (hidden @ projection.query_weight.T).unflatten(-1, (heads, -1)).transpose(0, 1)  # (heads, S, D)
    key = (hidden @ projection.key_weight.T).unflatten(-1, (heads, -1)).transpose(0, 1)  # (heads, S, D)
    return (query @ key.transpose(1, 2) / query.shape[-1] ** 0.5).softmax(-1)  # (heads, S, S)


@pytest.mark.parametrize("sizes", [{}, {"hidden_size": 256}, {"embedding_size": 64}, {"embedding_size": 256}])
@pytest.mark.parametrize("layer", [0, 1])
def test_half_of_the_heads_begin_at_one_neighbour_each(sizes: dict[str, int], layer: int) -> None:
    torch.manual_seed(0)
    model = AlbertModel(dataclasses.replace(NEIGHBOURS, **sizes)).eval()
    with torch.no_grad():
        weights = attention_weights(model, layer)
    for head, offset in enumerate((-1, 1, -2, 2)):
        at_offset = torch.diagonal(weights[head], offset)[3:-3]
        assert at_offset.mean() > 0.7
    for head in range(4, 8):
        assert weights[head].max() < 0.5


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
    state = AlbertForPreTraining(dataclasses.replace(PAPER, embedding_initializer_range=0.1)).state_dict()
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
