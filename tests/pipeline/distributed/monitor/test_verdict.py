"""Which ranks hang, by the reports of all ranks."""

import pytest

from pipeline.distributed.monitor.verdict import Report, describe, hanging

WORKS = Report("backward", 5, 1, collectives=40, limit=60.0, idle=1.0, state="R")
WAITS = WORKS._replace(idle=100.0, state="S")
MISSING = WAITS._replace(phase="data", collectives=39)
COMPILES = MISSING._replace(phase="compilation", limit=1800.0)


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([WORKS, WORKS], []),
        ([WAITS, MISSING], [1]),
        ([MISSING, WAITS], [0]),
        ([WAITS, COMPILES], []),  # rank 0 waits rightly
        ([WAITS, COMPILES._replace(idle=1801.0)], [1]),
        ([WAITS, MISSING._replace(idle=59.0)], []),
        ([WAITS, WAITS], [0, 1]),  # all are in the same collective, which does not end
        ([WAITS, WAITS._replace(state="T")], [1]),
        ([WAITS._replace(idle=61.0), WAITS._replace(idle=62.0, limit=63.0)], [0, 1]),
        ([WAITS._replace(idle=61.0), WAITS._replace(idle=62.0, limit=63.0, state="T")], [1]),
        ([WAITS, MISSING, MISSING], [1, 2]),
        ([WAITS, MISSING, MISSING._replace(idle=2.0)], [1]),
        ([MISSING], [0]),
    ],
)
def test_only_a_rank_that_the_others_wait_for_hangs(reports: list[Report], expected: list[int]) -> None:
    assert hanging(dict(enumerate(reports))) == expected


def test_the_lines_name_rank_host_phase_and_who_waits() -> None:
    reports = dict(enumerate([WAITS, MISSING._replace(state="D"), WAITS]))
    assert describe([1], reports, ["a", "b", "c"]) == [
        "rank 1 on host b hangs: no progress for 100 s in phase data of step 5, micro-step 1; it waits for a disk; "
        "2 other ranks wait for it in collective 40"
    ]


def test_at_most_eight_ranks_are_named() -> None:
    reports = dict.fromkeys(range(20), MISSING)
    lines = describe(hanging(reports), reports, ["a"] * 20)
    assert (len(lines), lines[-1]) == (9, "and 12 more ranks hang")
