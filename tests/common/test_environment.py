"""Numbers in the environment that a launcher, or a person, has set; closed streams; Ctrl-C in the first seconds."""

import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from common.environment import whole_number
from common.errors import UserError

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
