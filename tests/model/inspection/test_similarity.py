"""Compares the similarities with those from forward hooks, and with numbers worked out by hand."""

import math

import pytest
import torch
from torch import Tensor

from model import AlbertModel
from model.inspection.similarity import SimilarityMeter
from tests.model.examples import random_ids, randomise, tiny_config


def test_distances_and_angles_by_hand() -> None:
    # Token 1: (3, 4) -> (3, -4): distance 8, cosine (9 - 16) / 25. Token 2: (1, 0) -> (0, 2): sqrt(5), 0.
    before = torch.tensor([[[3.0, 4.0], [1.0, 0.0], [9.0, 9.0]]])
    after = torch.tensor([[[3.0, -4.0], [0.0, 2.0], [1.0, 1.0]]])
    meter = SimilarityMeter()
    meter.add([before, after], torch.tensor([[1, 1, 0]]))
    found = meter.result()
    assert found.l2_distances == pytest.approx(((8 + math.sqrt(5)) / 2,))
    assert found.cosines == pytest.approx((-7 / 25 / 2,))
    assert found.degrees == pytest.approx((math.degrees(math.acos(-0.14)),))
    assert found.tokens == 2


@pytest.mark.parametrize("fields", [{}, {"inner_group_num": 2}, {"parameter_sharing": "none"}])
def test_it_is_what_hooks_on_the_blocks_see(fields: dict[str, int]) -> None:
    config = tiny_config(num_hidden_layers=4, **fields)
    model = AlbertModel(config).eval()
    randomise(model, seed=1)
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []
    for module in model.encoder.attention:
        module.register_forward_hook(lambda _, arguments, __: inputs.append(arguments[0]))
    for module in model.encoder.feed_forward:
        module.register_forward_hook(lambda _, __, output: outputs.append(output))
    meter, wanted = SimilarityMeter(), [[0.0, 0.0] for _ in range(4)]
    lengths = ([9, 5], [12, 1])
    for seed, of_batch in enumerate(lengths):
        inputs.clear()
        outputs.clear()
        mask = torch.arange(12) < torch.tensor(of_batch)[:, None]
        meter.add(model(random_ids(seed, 2, 12), attention_mask=mask.long()).hidden_states, mask)
        depth = config.inner_group_num
        for layer, sums in enumerate(wanted):
            for row, length in enumerate(of_batch):
                for position in range(length):
                    x = inputs[layer * depth][row, position].tolist()
                    y = outputs[(layer + 1) * depth - 1][row, position].tolist()
                    sums[0] += math.dist(x, y)
                    sums[1] += sum(a * b for a, b in zip(x, y)) / math.hypot(*x) / math.hypot(*y)
    found = meter.result()
    assert found.tokens == 27
    assert found.l2_distances == pytest.approx([sums[0] / 27 for sums in wanted], rel=1e-6)
    assert found.cosines == pytest.approx([sums[1] / 27 for sums in wanted], rel=1e-6)


def test_mistakes() -> None:
    meter = SimilarityMeter()
    with pytest.raises(ValueError, match="no token"):
        meter.result()
    states = [torch.ones(1, 2, 3)] * 3
    meter.add(states, torch.zeros(1, 2))
    with pytest.raises(ValueError, match="no token"):
        meter.result()
    with pytest.raises(ValueError, match="3 layers after batches of 2"):
        meter.add([*states, torch.ones(1, 2, 3)], torch.ones(1, 2))
