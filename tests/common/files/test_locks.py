"""One command at a time on one output: the second waits (test_outputs.py), or says who works there."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import UserError
from common.files import locks

OTHER_PROCESS = """
import sys
from pathlib import Path
from common.files.locks import holding
with holding(Path(sys.argv[1]), Path("out")):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_the_second_says_who_holds_it_and_a_killed_holder_is_in_nobodys_way(tmp_path: Path) -> None:
    lock = tmp_path / "dir" / ".lock"
    words = [sys.executable, "-c", OTHER_PROCESS, str(lock)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        expected = rf"writing to out \(process {other.pid} on host {socket.gethostname()}\); wait for it"
        with pytest.raises(UserError, match=expected), locks.holding(lock, Path("out")):
            pytest.fail("two at once")
        other.kill()
    assert lock.exists()
    with locks.holding(lock, Path("out")):
        assert lock.read_text() == f"{socket.gethostname()} {os.getpid()}\n"
    assert not lock.exists()


def test_a_lock_that_comes_and_goes_is_one(tmp_path: Path) -> None:
    code = "import sys; from tests.common.files.test_locks import hold_often; hold_often(sys.argv[1])"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / ".lock")]) as process:
        hold_often(tmp_path / ".lock")
    assert process.returncode == 0


def hold_often(path: str | Path) -> None:
    for _ in range(2000):
        with locks.holding(Path(path), Path("out"), seconds=60):
            pass


@pytest.mark.parametrize("content", ["a person's notes\n", "", None])
def test_what_is_no_lock_stays_as_it_is(tmp_path: Path, content: str | None) -> None:
    """An empty file is locked, a link to a file is not."""
    lock, target = tmp_path / ".lock", tmp_path / ("target" if content is None else ".lock")
    target.write_text("node1 5\n" if content is None else content)
    if content is None:
        lock.symlink_to(target)
    if content == "":
        with locks.holding(lock, tmp_path), pytest.raises(UserError, match="another process is writing to"):
            locks.holding(lock, tmp_path).__enter__()
    else:
        with pytest.raises(UserError, match="is not a lock of this project; move"), locks.holding(lock, tmp_path):
            pytest.fail("locked")
    assert lock.exists()
    assert content == "" or target.read_text() == (content or "node1 5\n")


@pytest.mark.parametrize("stays", [False, True])
def test_a_directory_that_a_command_left_empty_goes_again(tmp_path: Path, stays: bool) -> None:
    out, own = tmp_path / "new" / "out", tmp_path / "own"
    own.mkdir()
    for place in (out, own):
        with pytest.raises(UserError, match="damaged"), locks.holding(place / locks.LOCK, place, stays=stays):
            raise UserError("the input is damaged")
    assert not out.exists()
    assert own.is_dir(), "a person has made it"
    with locks.holding(out / locks.LOCK, out, stays=stays):
        (out / "settings.json").write_text("{}")
    assert {path.name for path in out.iterdir()} == {"settings.json", *([locks.LOCK] if stays else [])}
