"""The initial weights are those of TensorFlow's truncated normal, checked by their statistics."""

import math

import pytest
import torch
from torch import nn

from model import AlbertConfig, AlbertForPreTraining

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
