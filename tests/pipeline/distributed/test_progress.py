"""What a rank notes, how long it may be silent, and which ranks hang by the reports of all."""

import math

import pytest
import torch

from pipeline.distributed import progress
from pipeline.distributed.progress import LONG_SECONDS, Progress, Report, find_hanging


@pytest.fixture
def own():
    made = Progress()
    made.hang_timeout = 60.0
    made.start_run()
    return made


def test_the_limit_follows_the_median_step(own):
    assert own.limit == math.inf  # what comes before training is not watched
    own.enter("data")
    assert own.limit == LONG_SECONDS
    own.took_step(500.0)  # the first step compiles
    own.enter("data")
    assert own.limit == LONG_SECONDS
    for seconds in (1.0, 2.0, 400.0):
        own.took_step(seconds)
    own.enter("data")
    assert own.limit == 60.0
    for _ in range(4):
        own.took_step(9.0)
    own.enter("data")
    assert own.limit == 90.0


def test_the_limit_of_a_save_follows_the_longest_one(own):
    for _ in range(2):
        own.took_step(1.0)
    own.took_save(27.0)  # the estimate before the first one
    own.enter("save")
    assert own.limit == 270.0
    own.enter("evaluation")
    assert own.limit == 60.0
    for phase in ("scoring", "compilation", "end"):
        own.enter(phase)
        assert own.limit == LONG_SECONDS


def test_a_new_run_of_the_process_learns_its_own_steps(own):
    for _ in range(2):
        own.took_step(50.0)
    own.took_save(100.0)
    own.start_run()
    own.enter("data")
    assert own.limit == LONG_SECONDS
    for _ in range(2):
        own.took_step(1.0)
    own.enter("save")
    assert own.limit == 60.0


def test_a_compilation_is_a_phase():
    own, phases = progress.get_progress(), []

    def backend(graph, inputs):
        phases.append(own.phase)
        return graph.forward

    own.enter("forward", 1)
    progress.note_compilations()
    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert phases == ["compilation"]
    assert own.phase == "forward"
    own.start_run()


WORKS = Report("backward", 5, 1, collectives=40, limit=60.0, idle=1.0)
WAITS = WORKS._replace(idle=100.0)
MISSING = WAITS._replace(phase="data", collectives=39)
COMPILES = MISSING._replace(phase="compilation", limit=1800.0)


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([WORKS, WORKS], []),
        ([WAITS, MISSING], [1]),
        ([WAITS, COMPILES], []),  # rank 0 waits rightly
        ([WAITS, COMPILES._replace(idle=1801.0)], [1]),
        ([WAITS, WAITS], [0, 1]),  # all are in the same collective, which does not end
        ([WAITS._replace(idle=61.0), WAITS._replace(idle=62.0, limit=63.0)], [0, 1]),
        ([WAITS, MISSING, MISSING], [1, 2]),
        ([WAITS, MISSING, MISSING._replace(idle=2.0)], [1]),
    ],
)
def test_only_a_rank_that_the_others_wait_for_hangs(reports, expected):
    assert find_hanging(dict(enumerate(reports))) == expected
