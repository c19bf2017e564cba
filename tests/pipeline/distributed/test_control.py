"""The ranks succeed or fail together, and exchange values."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.errors import UserError
from pipeline.distributed.control import ControlGroup, all_or_raise
from tests.pipeline.workers import processes


def test_a_rank_alone_raises_its_own_failure() -> None:
    def work() -> int:
        raise OSError("full")

    assert all_or_raise(None, lambda: 7) == 7
    with pytest.raises(UserError, match="full"):
        all_or_raise(None, work, (OSError,))
    with pytest.raises(OSError, match="full"):  # not among the errors that a rank may have
        all_or_raise(None, work)


def exchange() -> dict[str, Any]:
    """What each rank of two does; the result of rank 0."""
    control = ControlGroup()
    own = {"rank": control.rank, "array": np.full(2 - control.rank, control.rank / 3, np.float32)}
    found: dict[str, Any] = {"gathered": control.gather(own), "broadcast": control.broadcast(own["rank"])}
    finish = control.begin_sum([1.0, control.rank])
    found["sum"] = finish()

    def fail() -> None:
        if control.rank == 1:
            raise OSError("no room")

    try:
        control.all_or_raise(fail, (OSError,))
    except UserError as error:
        found["failure"] = str(error)
    values = control.gather((control.rank, found["broadcast"], found["failure"]))
    return found | {"of all": values}


@pytest.mark.slow
def test_two_ranks_exchange_values(tmp_path: Path) -> None:
    found = processes.run(2, exchange, scratch=tmp_path)
    assert [value["rank"] for value in found["gathered"]] == [0, 1]
    assert [value["array"].tolist() for value in found["gathered"]] == [[0.0, 0.0], [float(np.float32(1 / 3))]]
    assert found["sum"] == [2.0, 1.0]
    assert found["of all"] == [(0, 0, "no room"), (1, 0, "no room")]
