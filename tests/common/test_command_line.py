"""Mistakes on a command line, errors of files, and numbers in the environment are one line and status 2.

Closed streams, and Ctrl-C in the first seconds.
"""

import argparse
import errno
import os
import re
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from common.command_line import Parser, above_zero, below_one, in_one_line, natural, positive, price
from common.environment import whole_number
from common.errors import UserError


def parser() -> Parser:
    made = Parser(prog="tool")
    made.add_argument("--out", type=Path, metavar="DIR")
    made.add_argument("--data", nargs="+", metavar="DIR[:WEIGHT]")
    made.add_argument("--name", metavar="TEXT")
    made.add_argument("file", nargs="?", type=Path)
    return made


def test_errors_of_files_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(error: Exception) -> None:
        raise error

    assert in_one_line(lambda: 75) == 75
    assert in_one_line(lambda: None) == 0
    denied = PermissionError(errno.EACCES, "Permission denied", "/a/b")  # more of them: files/test_places.py
    assert in_one_line(partial(fail, denied)) == 2
    said = "/a/b: Permission denied; make it accessible, or choose another place"
    assert capsys.readouterr().err == f"error: {said}\n"
    with pytest.raises(OSError, match="Bad file descriptor"):
        in_one_line(partial(fail, OSError(errno.EBADF, "Bad file descriptor")))


@pytest.mark.parametrize("command", ["pipeline.plan --help", "data_prep --help"])
def test_output_into_a_closed_pipe_is_no_error(command: str) -> None:
    """As of `| head -1`, which closes the pipe before the command has written all."""
    read, write = os.pipe()
    os.close(read)
    try:
        line = [sys.executable, "-m", *command.split()]
        environment = {**os.environ, "DS_ACCELERATOR": "cpu"}  # or DeepSpeed reports that it finds no GPU
        ended = subprocess.run(line, stdout=write, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    finally:
        os.close(write)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("read", "at_bounds", "outside"),
    [
        (positive, ["1", "1000000000"], ["0", "1000000001"]),
        (natural, ["0", str(2**63 - 1)], ["-1", str(2**63)]),
        (below_one, ["0", "0.999"], ["1", "-0.1", "nan"]),
        (above_zero, ["1e-9", "1e9"], ["0", "1e10", "nan"]),
        (price, ["0", "3"], ["-1", "nan", "inf"]),
    ],
)
def test_numbers_are_read_within_their_bounds(read, at_bounds, outside):
    assert [read(text) for text in at_bounds] == [type(read(text))(text) for text in at_bounds]
    for text in outside:
        with pytest.raises(argparse.ArgumentTypeError, match=f"{text} is not "):
            read(text)


def test_a_flag_of_several_values_that_is_given_twice_is_refused() -> None:
    """argparse would keep the last values only."""
    parser = Parser(prog="x")
    parser.add_argument("--where", nargs="+")
    parser.add_argument("--keep-at", nargs="+", action="extend")
    parser.add_argument("--steps")
    assert parser.parse_all(["--where", "a", "b", "--keep-at", "1", "--keep-at", "2"]).keep_at == ["1", "2"]
    assert parser.parse_all(["--steps", "1", "--steps", "2"]).steps == "2"
    with pytest.raises(UserError, match="--where is given 2 times; give all of its values after one --where"):
        parser.parse_all(["--where", "a", "--steps", "1", "--where=b"])


def test_a_flag_is_near_another_by_its_letters_and_not_by_its_dashes() -> None:
    parser = Parser(prog="x")
    parser.add_argument("--nodes")
    unknown = "see `x --help`"
    for given, said in (("--node", "did you mean --nodes?"), ("--init", unknown), ("--steps", unknown)):
        with pytest.raises(UserError, match=f"unknown argument {given}; {re.escape(said)}"):
            parser.parse_all([given, "a"])


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--out", ""], "of --out is empty, as from an unset variable"),
        (["--data", "a", ""], "of --data is empty"),
        ([""], "after tool is empty"),
        (["--out", "s3://bucket/shards"], "URLs are not supported"),
        (["--data", "here", "hf://datasets/a/b:3"], "URLs are not supported"),
        (["FILE:///etc/hosts"], "URLs are not supported"),
    ],
)
def test_what_is_no_path_of_a_file_is_refused(words: list[str], fault: str) -> None:
    for parse in (parser().parse_all, parser().parse_args):
        with pytest.raises(UserError, match=fault):
            parse(words)
    assert parser().parse_all(["--name", "https://a", "--out", "a:b"]).name == "https://a", "a text may be a URL"


REPOSITORY = Path(__file__).parents[2]
WRONG = ("", "x", "-1", "1.5", "1e3", " 1", "²", "9" * 5000, str(2**31))


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_number_is_one_line(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("RANK", text)
    with pytest.raises(UserError, match=r"RANK is .* no whole number from 0 to 2147483647") as raised:
        whole_number("RANK")
    assert len(str(raised.value)) < 300


def test_a_number_is_read_within_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "29500")
    assert whole_number("RANK", 1, 29500) == 29500
    with pytest.raises(UserError, match="'29500', which is no whole number from 1 to 29499"):
        whole_number("RANK", 1, 29499)
    monkeypatch.delenv("RANK")
    assert whole_number("RANK", default=7) == 7
    with pytest.raises(UserError, match="is not set"):
        whole_number("RANK")


def test_streams_that_are_closed_are_opened_on_nothing(tmp_path: Path) -> None:
    code = (
        "import os, sys; sys.argv[0] = 'albert'; import common.environment as e; e.begin_command()\n"
        f"opened = os.open({str(tmp_path / 'file')!r}, os.O_CREAT | os.O_WRONLY)\n"
        "print('lost'); print('lost', file=sys.stderr); sys.stdout.flush(); sys.stderr.flush()\n"
        "os.write(opened, str(opened > 2).encode())"
    )
    shell = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} <&- >&- 2>&-"
    subprocess.run(["bash", "-c", shell], cwd=REPOSITORY, check=True)
    assert (tmp_path / "file").read_text() == "True"


BEGIN = """
import sys; sys.argv[0], sys.orig_argv = '-m', ['python', '-m', 'data_prep']
import signal, data_prep; sys.argv[0] = 'x'
from common.command_line import Parser
"""
END = """
try: signal.raise_signal(signal.SIGINT)
finally: print('cleaned up', flush=True)
"""


@pytest.mark.parametrize(
    ("works", "stdout", "stderr"), [(False, "", ""), (True, "cleaned up\n", "interrupted\n")], ids=["imports", "works"]
)
def test_an_interrupt_prints_no_traceback_and_what_works_is_cleaned_up(works: bool, stdout: str, stderr: str) -> None:
    code = BEGIN + ("Parser(prog='x').parse_all([])" if works else "") + END
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert (done.stdout, done.stderr, done.returncode) == (stdout, stderr, -signal.SIGINT)
