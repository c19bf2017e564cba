import sys

import pytest

from common import progress_bar
from common.progress_bar import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_every_half_minute_and_one_at_the_end(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("shards", 4_000_000, "B") as shown:
        for clock[0] in (29, 31, 60):
            shown.update(1_000_000)
        said = capsys.readouterr().err.splitlines()
        clock[0] = 61
        shown.update(1_000_000)
    assert said == ["shards: 2.0 of 4.0 MB (50 %), 0.1 MB/s, 31 s elapsed, 31 s to go"]
    assert "4.0 of 4.0 MB (100 %)" in capsys.readouterr().err
    for seconds, lines in ((4.9, 0), (5.0, 1)):  # a short step may be silent
        clock[0] = 0
        with Progress("plan", 2, "files", quiet_seconds=5.0) as shown:
            shown.update(2)
            clock[0] = seconds
        assert len(capsys.readouterr().err.splitlines()) == lines


def test_what_an_earlier_run_has_done_says_nothing_of_the_speed(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Progress("shards", 10_000_000, "B")
    shown.resume(6_000_000)
    shown.update(1_000_000)
    expected = "shards: 7.0 of 10.0 MB (70 %), 0.1 MB/s, 10 s elapsed, 30 s to go"
    assert shown.line(10.0) == expected
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress("shards", 1000, "rows") as shown:
        shown.resume(900)
    assert "900/1000" in capsys.readouterr().err
