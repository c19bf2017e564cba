"""Checksums of weights, moments and batches, computed on the device: 64-bit sums that any flipped bit changes.

The checksum of a tensor is the sum of its words (its elements, as whole numbers of up to 32 bits) times odd numbers
that depend on the word's position, modulo 2**64. A flipped bit adds or takes away an odd number times a power of two
below 2**32, which is never 0. It is exact, so it does not depend on the order of the sum, the device or the chunks. It
is linear, so the checksums of the parts that the ranks hold add up to that of the whole tensor.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from deepspeed import DeepSpeedEngine
from torch import Tensor

from pipeline.engine import state, zero_layout
from pipeline.engine.lamb import TensorSlice
from pipeline.engine.optimizers import KINDS

BLOCK = 1 << 16
"""Words that share a multiplier; their own multipliers repeat in each block."""
CHUNK = 64
"""Blocks that a GPU adds up at once: two temporaries of 32 MiB. A processor takes one, which fits into its cache."""

_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int32}  # by the bytes of an element
_POSITIONS, _BLOCKS, _TENSORS, _FIELDS = range(4)  # streams of multipliers
_MODULUS = 1 << 64
_ODD = (-7046029254386353131, -4658895280553007687, -7723592293110705685)  # large odd numbers, as signed 64 bits


def _mix(values: Tensor) -> Tensor:
    """Another number for each int64 of `values`, one to one, whose bits all depend on all of its bits."""
    values = values ^ ((values >> 32) & 0xFFFFFFFF)
    values = values * _ODD[1]
    values = values ^ ((values >> 29) & 0x7FFFFFFFF)
    return values * _ODD[2]


@functools.cache
def _table(stream: int, size: int, device: torch.device) -> Tensor:
    numbers = torch.arange(stream << 40, (stream << 40) + size, dtype=torch.int64)  # (size,)
    return (_mix(numbers * _ODD[0]) | 1).to(device)


def _multipliers(stream: int, first: int, last: int, device: torch.device) -> Tensor:
    """The odd int64 multipliers (last - first,) of positions [first, last)."""
    return _table(stream, max(1 << (last - 1).bit_length(), 16), device)[first:last]


@torch.no_grad()
def tensor_checksum(values: Tensor, start: int = 0, dtype: torch.dtype | None = None) -> Tensor:
    """The checksum of a tensor, or of a part of one: int64 () on its device.

    Args:
        values: any shape.
        start: position of its first element in the flattened whole tensor.
        dtype: the elements are first rounded to this type.
    """
    flat = values.detach().reshape(-1)  # (N,)
    factor = -(-flat.element_size() // 4) if dtype is None else 1
    device, total = flat.device, torch.zeros((), dtype=torch.int64, device=flat.device)
    first, end = start * factor, (start + flat.numel()) * factor  # of its words in the whole tensor
    blocks = 1 if device.type == "cpu" else CHUNK
    within = _multipliers(_POSITIONS, 0, BLOCK, device)  # (BLOCK,)
    for block in range(first // BLOCK, -(-end // BLOCK), blocks):
        begin, behind = max(first, block * BLOCK), min(end, (block + blocks) * BLOCK)
        part = flat[begin // factor - start : behind // factor - start]
        part = part if dtype is None else part.to(dtype)
        between = _multipliers(_BLOCKS, block, -(-behind // BLOCK), device)  # (blocks,)
        multipliers = (between[:, None] * within).view(-1)[begin - block * BLOCK : behind - block * BLOCK]  # (words,)
        total = total + (part.view(_WORDS[part.element_size()]) * multipliers).sum()
    return total


@torch.no_grad()
def batch_checksum(tensors: dict[str, Tensor], is_real: Tensor) -> Tensor:
    """The checksum of a batch: int64 () on its device.

    It is a sum over the rows, so it does not depend on how the rows of a step are divided into micro-batches.

    Args:
        tensors: the model's input, by name, each (B, ...). Those of another length are left out.
        is_real: bool (B,) False for empty rows, which count as nothing.
    """
    rows = [tensor.reshape(len(is_real), -1) for tensor in tensors.values() if len(tensor) == len(is_real)]
    words = torch.cat([row.view(_WORDS[row.element_size()]) for row in rows], dim=1)  # (B, words of a row)
    sums = (words * _multipliers(_FIELDS, 0, words.shape[1], words.device)).sum(1)  # (B,)
    return torch.where(is_real, _mix(sums), 0).sum()


def combine(checksums: Sequence[int]) -> int:
    """One checksum of several tensors in this order, from 0 to 2**64 - 1. It is linear, as those of the tensors are."""
    multipliers = _multipliers(_TENSORS, 0, len(checksums), torch.device("cpu")).tolist()
    return sum(one * multiplier for one, multiplier in zip(checksums, multipliers)) % _MODULUS


def sum_checksums(*checksums: int) -> int:
    """The checksum of a whole, from those of its parts."""
    return sum(checksums) % _MODULUS


@dataclass(frozen=True)
class RankChecksums:
    """The checksums of what one rank holds. Each list has one for each tensor, in the order of `names`.

    Attributes:
        names: of the model's tensors.
        replicas: what must be equal on all ranks, by name: "weights" of the model up to ZeRO stage 2; at stage 0 also
            the optimizer's "fp32 weights" and moments.
        own: by kind (`KINDS`), the fp32 weights and moments that this rank updates: a part of each tensor from stage 1
            on, which add up over the ranks.
        rounded: those of "weight" in `own`, rounded to the model's precision.
        unequal: tensors in which the model's weights are not those that the optimizer's give when they are rounded, as
            far as this rank updates them.
    """

    names: tuple[str, ...]
    replicas: dict[str, list[int]]
    own: dict[str, list[int]]
    rounded: list[int]
    unequal: tuple[str, ...]


def rank_checksums(engine: DeepSpeedEngine) -> RankChecksums:
    """The checksums of what this rank holds, after a step. Not collective. Waits for the device."""
    slices = zero_layout.slices(engine)
    parameters = [parameter for _, parameter in engine.module.named_parameters()]
    stage = zero_layout.stage(engine)
    found: dict[str, list[Tensor]] = {kind: [] for kind in (*KINDS, "rounded", "model's", "weights")}
    for parameter, (place, values) in zip(parameters, state.tensor_states(engine, slices)):
        for kind in KINDS:
            found[kind].append(tensor_checksum(values[kind], place.start))
        if place.flat is parameter:  # stage 0 in fp32: the optimizer updates the model's own weights
            for kind in ("rounded", "model's", "weights"):
                found[kind].append(found["weight"][-1])
            continue
        found["rounded"].append(tensor_checksum(values["weight"], place.start, parameter.dtype))
        if stage < 3:
            found["weights"].append(tensor_checksum(parameter))
        is_whole = stage < 3 and place.length == parameter.numel()
        found["model's"].append(
            found["weights"][-1] if is_whole else tensor_checksum(_part(parameter, place, stage), place.start)
        )
    sums = torch.stack([one.to(engine.device) for kind in found for one in found[kind]]).tolist()
    numbers = iter(one % _MODULUS for one in sums)
    lists = {kind: [next(numbers) for _ in found[kind]] for kind in found}
    own = {kind: lists[kind] for kind in KINDS}
    replicas = {"weights": lists["weights"]} if stage < 3 else {}
    if stage == 0:
        replicas |= {"fp32 weights" if kind == "weight" else kind: own[kind] for kind in KINDS}
    names = tuple(place.name for place in slices)
    unequal = tuple(name for name, ours, model_s in zip(names, lists["rounded"], lists["model's"]) if ours != model_s)
    return RankChecksums(names, replicas, own, lists["rounded"], unequal)


def _part(parameter: Tensor, place: TensorSlice, stage: int) -> Tensor:
    """The elements of a model's parameter that lie in `place`, where ZeRO divides the optimizer's weights."""
    if stage == 3:
        return parameter.ds_tensor.reshape(-1)[: place.length]  # type: ignore[attr-defined]
    return parameter.reshape(-1)[place.start : place.start + place.length]
