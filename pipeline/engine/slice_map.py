"""Maps an optimizer's parameters to the tensors of the model: which elements belong to which tensor.

Without ZeRO a parameter is one tensor. With ZeRO a parameter is a flat buffer with slices of many tensors, and with
padding that belongs to none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class TensorSlice:
    """The elements of one tensor that this rank updates, in fp32.

    Attributes:
        name: of the parameter in the model.
        shape: of the whole tensor.
        group: index of its parameter group in the optimizer.
        start, length: this rank's elements [start, start + length) of the flattened tensor; length may be 0.
        flat: the optimizer's tensor that holds them (a key of `optimizer.state`).
        offset: where they start in the flattened `flat`.
    """

    name: str
    shape: tuple[int, ...]
    group: int
    start: int
    length: int
    flat: Tensor
    offset: int

    @property
    def weight(self) -> Tensor:
        """fp32 (length,): a view of the weights that the optimizer updates."""
        return self.of(self.flat.detach())

    def of(self, buffer: Tensor) -> Tensor:
        """(length,): a view of the same elements of another buffer, which has the size of `flat`."""
        return buffer.view(-1).narrow(0, self.offset, self.length)


class _Slice(NamedTuple):
    """Elements [offset, offset + length) of a parameter belong to the tensor number `tensor`."""

    tensor: int
    offset: int
    length: int


class Views(NamedTuple):
    """The slices of some parameters.

    Attributes:
        slices: (index of the parameter, slice) of each slice that is not empty.
        weights: a view of the parameter's elements for each of `slices`.
        tensors: int64 (T,) the number of each tensor, including those of which this rank holds nothing.
        slots: int64 (len(slices),) the index in `tensors` of each slice's tensor.
    """

    slices: list[tuple[int, _Slice]]
    weights: list[Tensor]
    tensors: Tensor
    slots: Tensor

    def of(self, buffers: Sequence[Tensor]) -> list[Tensor]:
        """The same slices of other buffers, one buffer for each parameter, in the order of `slices`."""
        return _cut(self.slices, buffers)


class SliceMap:
    """The slices that every parameter of an optimizer holds.

    Until `attach` is called, each parameter is one tensor. Tensors with a trust ratio are numbered 0, 1, ...

    Attributes:
        tensor_names: of the numbered tensors; their numbers as text until `attach` gives names.
    """

    def __init__(self) -> None:
        self.tensor_names: list[str] = []
        self._attached = False
        self._slices: dict[Tensor, list[_Slice]] = {}
        self._views: dict[tuple[int, ...], Views] = {}

    @property
    def is_attached(self) -> bool:
        """Whether `attach` has been called."""
        return self._attached

    def attach(self, slices: Sequence[TensorSlice], is_scaled: Callable[[int], bool]) -> None:
        """Stores where the tensors lie.

        Args:
            slices: one for each tensor, in the same order on all ranks.
            is_scaled: whether the parameter group of this index has a trust ratio.
        """
        self._attached = True
        self._views.clear()
        self._slices = {}
        self.tensor_names = []
        for place in slices:
            number = -1
            if is_scaled(place.group):
                number = len(self.tensor_names)
                self.tensor_names.append(place.name)
            self._slices.setdefault(place.flat, []).append(_Slice(number, place.offset, place.length))

    def views(self, parameters: Sequence[Tensor], scaled: bool) -> Views:
        """The slices of `parameters`; computed at the first call with the same parameters, then reused.

        Raises:
            RuntimeError: `attach` was called without one of `parameters`.
        """
        key = tuple(map(id, parameters))
        if key not in self._views:
            self._views[key] = self._make_views(parameters, scaled)
        return self._views[key]

    def _make_views(self, parameters: Sequence[Tensor], scaled: bool) -> Views:
        slices: list[tuple[int, _Slice]] = []
        tensors: list[int] = []
        for index, parameter in enumerate(parameters):
            for slice_ in self._slices_of(parameter, scaled):
                tensors.append(slice_.tensor)
                if slice_.length:
                    slices.append((index, slice_))
        slot_of = {tensor: slot for slot, tensor in enumerate(tensors)}
        device = parameters[0].device
        return Views(
            slices,
            _cut(slices, [parameter.detach() for parameter in parameters]),
            torch.tensor(tensors, device=device),
            torch.tensor([slot_of[slice_.tensor] for _, slice_ in slices], dtype=torch.int64, device=device),
        )

    def _slices_of(self, parameter: Tensor, scaled: bool) -> list[_Slice]:
        if parameter not in self._slices:
            if self._attached:
                raise RuntimeError("Lamb met a parameter whose location it was not told; call attach again")
            number = -1
            if scaled:
                number = len(self.tensor_names)
                self.tensor_names.append(str(number))
            self._slices[parameter] = [_Slice(number, 0, parameter.numel())]
        return self._slices[parameter]


def _cut(slices: Sequence[tuple[int, _Slice]], buffers: Sequence[Tensor]) -> list[Tensor]:
    """Views of `slices` in `buffers`; a slice that is a whole buffer keeps the buffer's shape and strides."""
    return [
        buffers[index]
        if slice_.length == buffers[index].numel()
        else buffers[index].narrow(0, slice_.offset, slice_.length)
        for index, slice_ in slices
    ]
