"""The command line: mistakes, and how it ends."""

import sys

import pytest

from data_prep.__main__ import entry


def finish(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["data_prep", *arguments])
    return entry()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shards", "--seed", "1"], "the following arguments are required: --documents, --vocab, --out"),
        (["shards", "--sead", "1"], "unknown argument --sead; did you mean --seed?"),
        (["shrads"], "unknown job shrads; did you mean shards?"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert finish(arguments, monkeypatch) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


def test_without_a_job_it_prints_the_jobs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        finish([], monkeypatch)
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"    {job} " in shown for job in ("extract", "vocab", "shards"))
