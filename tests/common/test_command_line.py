"""Mistakes on a command line, and errors of files, are one line and status 2."""

import argparse
import errno
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from common.command_line import Parser, above_zero, below_one, in_one_line, natural, positive, price
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
