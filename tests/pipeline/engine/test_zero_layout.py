"""Where each tensor's elements lie in DeepSpeed's buffers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engine import zero_layout
from pipeline.engine.lamb import TensorSlice


@pytest.mark.parametrize(
    "pieces", [[(0, 4), (6, 4)], [(0, 5), (4, 6)], [(0, 10), (0, 10)], [(0, 4), (4, 5)], [(0, 4), (4, 7)], []]
)
def test_cover_refuses_gaps_and_overlaps(pieces):
    with pytest.raises(RuntimeError, match="do not hold each of the 10 elements of w exactly once"):
        zero_layout.check_cover("w", 10, pieces)


@given(st.integers(0, 40), st.integers(1, 9))
def test_owned_parts_of_a_whole_tensor_cover_it(elements, world):
    flat = torch.arange(elements, dtype=torch.float32)
    whole = TensorSlice("w", (elements,), 0, 0, elements, flat, 0)
    parts = [zero_layout.owned_part(whole, rank, world) for rank in range(world)]
    zero_layout.check_cover("w", elements, [(part.start, part.length) for part in parts])
    for part in parts:
        assert torch.equal(part.weight, flat[part.start : part.start + part.length])
