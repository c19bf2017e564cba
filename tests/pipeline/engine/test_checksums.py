"""Checksums: any flipped bit changes them, and neither chunks, parts nor the division of a batch do."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipeline.engine import checksums
from pipeline.engine.checksums import BLOCK, batch_checksum, combine, sum_checksums, tensor_checksum

WORDS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32, torch.int64: torch.int64}
DTYPES = st.sampled_from(list(WORDS))


def tensor(size: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.int64:
        return torch.randint(0, 30000, (size,), generator=generator)
    return torch.randn(size, generator=generator).to(dtype)


def flipped(values: torch.Tensor, place: int, bit: int) -> torch.Tensor:
    words = values.clone().view(WORDS[values.dtype])
    sign = bit == 8 * words.element_size() - 1
    words[place] ^= torch.iinfo(words.dtype).min if sign else 1 << bit
    return words.view(values.dtype)


def by_hand(values: torch.Tensor, start: int = 0) -> int:
    """The definition, in Python's whole numbers. The multipliers are those of the module."""
    words = values.view(torch.int16 if values.element_size() == 2 else torch.int32).tolist()
    within = checksums._multipliers(0, 0, BLOCK, torch.device("cpu")).tolist()
    between = checksums._multipliers(1, 0, 16, torch.device("cpu")).tolist()
    total = 0
    for place, word in enumerate(words, start * values.element_size() // min(values.element_size(), 4)):
        total += word * within[place % BLOCK] * between[place // BLOCK]
    return total % 2**64


def checksum(values: torch.Tensor, start: int = 0) -> int:
    return int(tensor_checksum(values, start)) % 2**64


@given(st.data(), DTYPES)
def test_every_flipped_bit_changes_the_checksum(data: st.DataObject, dtype: torch.dtype) -> None:
    values = tensor(data.draw(st.integers(1, 200)), dtype)
    place = data.draw(st.integers(0, len(values) - 1))
    bit = data.draw(st.integers(0, 8 * values.element_size() - 1))
    assert checksum(flipped(values, place, bit)) != checksum(values)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.int64])
def test_it_is_the_definition_whatever_the_parts(dtype: torch.dtype) -> None:
    values = tensor(2 * BLOCK + 777, dtype)
    wanted = by_hand(values)
    assert checksum(values) == wanted
    for cut in (1, 1000, BLOCK, BLOCK + 1):
        assert sum_checksums(checksum(values[:cut]), checksum(values[cut:], cut)) == wanted
    assert checksum(values.view(-1, 1)) == wanted


def test_rounding_the_order_of_elements_and_that_of_tensors_count() -> None:
    values = tensor(BLOCK + 5, torch.float32)
    rounded = tensor_checksum(values[3:], 3, torch.bfloat16)
    assert rounded == tensor_checksum(values.bfloat16()[3:], 3)
    assert len({checksum(values), checksum(values.flip(0)), checksum(values.roll(1)), int(rounded)}) == 4
    assert combine([1, 2]) != combine([2, 1])
    assert combine([5, 7]) == sum_checksums(combine([2, 3]), combine([3, 4])), "it is linear"


def batch(rows: int) -> dict[str, torch.Tensor]:
    """Ids, sequences and a label of each row, and a field that has nothing to do with rows."""
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, 30000, (rows, 7)))
    return {"input_ids": ids, "sequence_ids": ids % 3, "labels": ids[:, 0] % 2, "other": torch.arange(99)}


REAL = torch.ones(6, dtype=torch.bool)


def test_the_division_of_a_batch_and_empty_rows_do_not_change_its_checksum() -> None:
    whole = batch(6)
    wanted = int(batch_checksum(whole, REAL))
    cuts = slice(0, 2), slice(2, 3), slice(3, 6)
    parts = [{name: field if name == "other" else field[cut] for name, field in whole.items()} for cut in cuts]
    sizes = [len(part["input_ids"]) for part in parts]
    assert (
        sum_checksums(*(int(batch_checksum(part, REAL[:size])) for part, size in zip(parts, sizes))) == wanted % 2**64
    )
    more = batch(8)
    for name in ("input_ids", "sequence_ids", "labels"):
        more[name][:6] = whole[name]
    assert int(batch_checksum(more, torch.tensor([*[True] * 6, False, False]))) == wanted


@given(st.sampled_from(("input_ids", "sequence_ids", "labels")), st.integers(0, 5), st.integers(0, 63))
def test_every_flipped_bit_of_a_batch_changes_its_checksum(name: str, row: int, bit: int) -> None:
    whole = batch(6)
    changed = dict(whole)
    width = whole[name][0].numel()
    changed[name] = flipped(whole[name].flatten(), row * width, bit).view(whole[name].shape)
    assert batch_checksum(changed, REAL) != batch_checksum(whole, REAL)
