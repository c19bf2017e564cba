"""What the ranks exchange on the host: who gets it, what a failure on one rank does, and how long a wait may last."""

from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from pipeline.distributed.control import ControlGroup
from tests.pipeline.workers import processes

pytestmark = pytest.mark.slow
WORLD = 3


def exchange() -> list[dict[str, Any]]:
    """What each of the ranks has found."""
    control = ControlGroup()
    group = control._group
    assert group is not None
    found: dict[str, Any] = {"limit": group._get_backend(torch.device("cpu")).options._timeout}
    unpickle = dist.distributed_c10d._tensor_to_object
    with mock.patch.object(dist.distributed_c10d, "_tensor_to_object", side_effect=unpickle) as received:
        found["gathered"] = control.gather(f"of rank {control.rank}")
        found["received"] = received.call_count
    found["of rank 0"] = control.on_rank_0(lambda: control.rank + 7)

    def fail(rank: int) -> int:
        if control.rank == rank:
            raise OSError("no space")
        return control.rank

    for name, work in (
        ("on rank 0", lambda: control.on_rank_0(lambda: fail(0), (OSError,), ValueError)),
        ("on one", lambda: control.all_or_raise(lambda: fail(1), (OSError,), ValueError)),
    ):
        try:
            work()
        except ValueError as error:
            found[name] = str(error)
    everything: list[Any] = [None] * WORLD
    dist.all_gather_object(everything, found)
    return everything


def test_who_receives_who_fails_and_how_long_a_wait_may_last(tmp_path):
    exchanged = processes.run(WORLD, exchange, scratch=tmp_path)
    assert [found["gathered"] for found in exchanged] == [[f"of rank {rank}" for rank in range(WORLD)], None, None]
    assert [found["received"] for found in exchanged] == [WORLD, 0, 0], "only rank 0 receives what is gathered"
    assert [found["of rank 0"] for found in exchanged] == [7] * WORLD
    assert [(found["on rank 0"], found["on one"]) for found in exchanged] == [("no space", "no space")] * WORLD
    terabyte = timedelta(seconds=1e12 / 100e6)  # all shards from a slow disk
    assert all(found["limit"] > terabyte for found in exchanged)
