"""One command at a time on one output: the second waits, or says who works there."""

import errno
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from common.errors import UserError
from common.files import atomic, locks

OTHER_PROCESS = """
import sys
from pathlib import Path
from common.files.locks import holding
with holding(Path(sys.argv[1]), Path("out")):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def other(tmp_path: Path):  # type: ignore[no-untyped-def]
    """A process that holds the lock tmp_path/dir/.lock until its stdin has a line."""
    words = [sys.executable, "-c", OTHER_PROCESS, str(tmp_path / "dir" / ".lock")]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_the_second_says_who_holds_it(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    lock = tmp_path / "dir" / ".lock"
    expected = rf"writing to out \(process {other.pid} on host {socket.gethostname()}\); wait for it"
    with pytest.raises(UserError, match=expected), locks.holding(lock, Path("out")):
        pytest.fail("two at once")
    assert lock.exists()


def test_a_killed_holder_is_in_nobodys_way(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    other.kill()
    other.wait()
    lock = tmp_path / "dir" / ".lock"
    assert lock.exists()
    with locks.holding(lock, Path("out")):
        assert lock.read_text() == f"{socket.gethostname()} {os.getpid()}\n"
    assert not lock.exists()


def test_one_that_waits_comes_next(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    held = threading.Event()

    def wait() -> None:
        with locks.holding(tmp_path / "dir" / ".lock", Path("out"), seconds=60):
            held.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not held.is_set()
    assert other.stdin is not None
    other.stdin.write("\n")
    other.stdin.flush()
    thread.join()
    assert held.is_set()


def test_a_directory_that_was_made_for_the_lock_goes_with_it(tmp_path: Path) -> None:
    with locks.holding(tmp_path / "made" / ".lock", tmp_path / "made"):
        pass
    assert not (tmp_path / "made").exists()
    with locks.holding(tmp_path / "made" / ".lock", tmp_path / "made"):
        (tmp_path / "made" / "result").touch()
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["result"]
    (tmp_path / "there").mkdir()
    with locks.holding(tmp_path / "there" / ".lock", tmp_path / "there"):
        pass
    assert (tmp_path / "there").is_dir()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("text", "is not a lock of this project; move it away"),
        ("directory", "Is a directory"),
        ("link", "Too many levels of symbolic links"),
        ("fifo", "is not a lock of this project; move it away"),
    ],
)
def test_what_is_no_lock_stays_as_it_is(tmp_path: Path, kind: str, message: str) -> None:
    lock = tmp_path / ".lock"
    if kind == "text":
        lock.write_text("a person's notes\n")
    elif kind == "directory":
        lock.mkdir()
    elif kind == "link":
        (tmp_path / "target").write_text("node1 5\n")
        lock.symlink_to(tmp_path / "target")
    else:
        os.mkfifo(lock)
    with pytest.raises(UserError, match=message), locks.holding(lock, tmp_path):
        pytest.fail("locked")
    if kind == "text":
        assert lock.read_text() == "a person's notes\n"
    if kind == "link":
        assert (tmp_path / "target").read_text() == "node1 5\n"


def test_a_full_disk_is_one_line_and_leaves_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int, content: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(locks.os, "pwrite", fail)
    with (
        pytest.raises(UserError, match=r"cannot write to out: No space left on device; free some space"),
        locks.holding(tmp_path / ".lock", Path("out")),
    ):
        pytest.fail("locked")
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_of_a_person_is_locked_and_stays_as_it_is(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    lock.touch()
    before = lock.stat()
    with locks.holding(lock, tmp_path):
        assert locks.is_held(lock)
        with pytest.raises(UserError, match="its lock does not say which"), locks.holding(lock, tmp_path):
            pytest.fail("two at once")
    assert (lock.stat().st_size, lock.stat().st_ino, lock.stat().st_mtime_ns) == (0, before.st_ino, before.st_mtime_ns)


def test_a_lock_that_is_being_made_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between making its file and writing its line, a holder has an empty file as well."""
    lock = tmp_path / ".lock"
    lock.touch()
    monkeypatch.setattr(locks.time, "sleep", lambda seconds: lock.write_text("node1 5\n"))
    with locks.holding(lock, tmp_path):
        assert lock.read_text() == f"{socket.gethostname()} {os.getpid()}\n"
    assert not lock.exists()


@pytest.mark.parametrize("watches", [False, True], ids=["the holder", "another process of its job"])
def test_nothing_is_published_in_a_directory_that_has_taken_the_place(tmp_path: Path, watches: bool) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    other.mkdir()
    (other / "shard").write_text("theirs")
    out.mkdir()
    (out / ".lock").write_text("node1 5\n")
    with locks.watching(out / ".lock") if watches else locks.holding(out / ".lock", out):
        atomic.write_text(out / "shard", "ours")
        out.rename(tmp_path / "kept")
        other.rename(out)
        with pytest.raises(UserError, match=f"{out} was moved or replaced while this command worked in it"):
            atomic.write_text(out / "shard", "ours again")
        atomic.write_text(tmp_path / "elsewhere", "ours")
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [("shard", "theirs")]
    atomic.write_text(out / "shard", "ours")
    if not watches:
        (out / "shard").unlink()
        with locks.holding(tmp_path / "made" / ".lock", out):
            (tmp_path / "made").rename(tmp_path / "moved")
            (tmp_path / "made").mkdir()
        assert (tmp_path / "made").is_dir(), "an empty directory that another one has put there stays"


def test_a_file_that_its_last_holder_removes_meanwhile_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening the file and locking it, the holder before may have removed it, and a third have made another."""
    lock, try_flock, tries = tmp_path / ".lock", locks._try_flock, []

    def remove_first(descriptor: int) -> bool:
        tries.append(descriptor)
        if len(tries) == 1:
            lock.unlink()
        return try_flock(descriptor)

    lock.write_text("node1 5\n")
    monkeypatch.setattr(locks, "_try_flock", remove_first)
    with locks.holding(lock, tmp_path):
        assert lock.read_text() == f"{socket.gethostname()} {os.getpid()}\n"
    assert len(tries) == 2
