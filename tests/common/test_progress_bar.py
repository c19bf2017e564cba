import sys

import pytest

from common.progress_bar import Progress


def test_a_log_gets_plain_lines_and_a_short_step_none(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("shards", 4_000_000, "B") as shown:
        shown.resume(1_000_000)
        shown.update(3_000_000)
        shown.say("words")
    said = capsys.readouterr()
    assert said.out == "words\n"
    assert "\r" not in said.err
    assert "shards: 1.00M of 4.00M (25 %)" in said.err
    assert said.err.splitlines()[-1].startswith("shards: 4.00M of 4.00M (100 %)")
    with (
        Progress("plan", 2, "files", quiet_seconds=500.0) as short,
        Progress("plan", 2, "files", enabled=False) as other,
        Progress("train", 2, "steps", plain_lines=False) as silent,
    ):
        for shown in (short, other, silent):
            shown.update(2)
            shown.say("words")
    assert capsys.readouterr() == ("words\nwords\n", "")


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress("shards", 1000, "rows") as shown:
        shown.resume(900)
    assert "900/1000" in capsys.readouterr().err
