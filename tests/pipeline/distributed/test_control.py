"""The ranks succeed or fail together."""

import math
import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from common.errors import UserError
from pipeline.distributed.control import ControlGroup, all_or_raise, decode, encode
from tests.pipeline.conftest import REPOSITORY


class Point(NamedTuple):
    """A value that travels."""

    x: float
    at: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Line:
    """A value that travels."""

    points: list[Point]
    names: dict[int, str | None]


@pytest.mark.parametrize(
    "value",
    [
        None, 7, -1.5e-300, "\u00e4\n", [1, (2.5, "x")], {3: [], "a": (), (1, 2): True}, {"tuple": 1}, math.inf,
        Line(points=[Point(0.1, (1, 2))], names={0: None}), [2**70, {"record": ["Line"]}],
    ],
)  # fmt: skip
def test_a_value_arrives_as_it_was_sent(value: object) -> None:
    assert decode(encode(value), (Line, Point)) == value


def test_arrays_arrive_bit_for_bit() -> None:
    sent = {4: np.array([[0.1, np.nan, -0.0]], dtype=np.float32), 5: np.zeros((0, 3), dtype=np.int64)}
    found = decode(encode(sent))
    for name, array in sent.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        assert found[name].tobytes() == array.tobytes()


def test_only_the_named_records_are_made() -> None:
    with pytest.raises(KeyError):
        decode(encode(Point(1.0, ())))
    with pytest.raises(TypeError):
        encode(object())


def test_nothing_between_ranks_is_pickled() -> None:
    pickles = re.compile(r"(import|from) (pickle|dill|cloudpickle)\b|(gather|broadcast|scatter|send|recv)_object")
    for path in (REPOSITORY / "pipeline").rglob("*.py"):
        assert not pickles.search(path.read_text(encoding="utf-8")), path


def test_a_rank_alone_raises_its_own_failure() -> None:
    def work() -> int:
        raise OSError("full")

    assert all_or_raise(None, lambda: 7) == 7
    with pytest.raises(UserError, match="full"):
        all_or_raise(None, work, (OSError,))
    with pytest.raises(OSError, match="full"):  # not among the errors that a rank may have
        all_or_raise(None, work)


def test_the_numbers_of_all_ranks_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other rank of two is a stand-in, which has 10, 20."""
    control = ControlGroup.__new__(ControlGroup)
    control._group, control.world_size = None, 1
    assert (control.sum([1, 2]), control.all_gather([1, 2])) == ([1.0, 2.0], [[1, 2]])
    others = torch.tensor([10, 20])

    def all_reduce(total: torch.Tensor, group: object, async_op: bool) -> SimpleNamespace:
        return SimpleNamespace(wait=lambda: total.add_(others))

    monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)
    control._group, control.world_size = object(), 2
    finish = control.begin_sum([1, 2])
    assert finish() == [11.0, 22.0]
