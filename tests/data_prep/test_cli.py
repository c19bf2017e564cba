"""The command line: help, mistakes, and how it ends."""

import errno
import sys

import pytest

from common.errors import UserError
from data_prep import __main__ as command_line
from data_prep.__main__ import JOBS, entry, main
from tests.data_prep import corpora


@pytest.mark.parametrize("job", JOBS)
def test_each_job_has_help_with_an_example(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([job, "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert f"python -m data_prep {job}" in out.split("options:")[0]


def test_help_names_every_job_and_is_quick(capsys: pytest.CaptureFixture[str]) -> None:
    result = corpora.run(
        [
            "-c",
            "import sys\nfrom data_prep.__main__ import main\n"
            "try: main(['--help'])\n"
            "except SystemExit: pass\n"
            "print('imported', {'numpy', 'pyarrow', 'sentencepiece', 'mpi4py'} & set(sys.modules))",
        ]
    )
    assert result.stdout.splitlines()[-1] == "imported set()"
    for job in JOBS:
        assert f"    {job} " in result.stdout


def finish(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["data_prep", *arguments])
    return entry()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shards", "--seed", "1"], "the following arguments are required: --documents, --vocab, --out"),
        (["shards", "--sead", "1"], "unknown argument --sead; did you mean --seed?"),
        (["show", "DIR", "-n", "three"], "argument -n: invalid int value: 'three'"),
        (["shrads"], "unknown job shrads; did you mean shards?"),
        (["frobnicate"], "unknown job frobnicate; choose one of sample, extract"),
        ([], "the following arguments are required: JOB"),
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


@pytest.mark.parametrize(
    ("raised", "status", "shown"),
    [
        (KeyboardInterrupt(), 130, "interrupted; give the same command to go on"),
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), 2, "error: the disk is full at /data/x"),
        (UserError("no such thing; bring one"), 2, "error: no such thing; bring one"),
    ],
)
def test_how_a_job_ends(
    raised: BaseException,
    status: int,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(arguments: list[str]) -> None:
        raise raised

    monkeypatch.setattr(command_line, "main", fail)
    assert finish([], monkeypatch) == status
    assert capsys.readouterr().err.startswith(shown)
