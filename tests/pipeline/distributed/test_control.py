"""The ranks succeed or fail together."""

from pathlib import Path

import pytest

from common.errors import UserError
from pipeline.distributed.control import all_or_raise
from tests.pipeline.workers import processes
from tests.pipeline.workers.cases.control import agree_in_many_ways


def test_a_rank_alone_raises_its_own_failure() -> None:
    def work() -> int:
        raise OSError("full")

    assert all_or_raise(None, lambda: 7) == 7
    with pytest.raises(UserError, match="full"):
        all_or_raise(None, work, (OSError,))
    with pytest.raises(OSError, match="full"):  # not among the errors that a rank may have
        all_or_raise(None, work)


@pytest.mark.slow
def test_what_fails_on_one_rank_fails_on_all_with_the_first_message(tmp_path: Path) -> None:
    assert processes.run(3, agree_in_many_ways, scratch=tmp_path) == {
        "all succeed": [0, 10, 20],
        "one fails": ["rank 1 is ill"] * 3,
        "two fail": ["rank 1 is ill"] * 3,
        "without a message": ["ValueError"] * 3,
        "afterwards": [[0, 1, 2]] * 3,
    }
