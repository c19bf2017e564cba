"""A file is absent, the old one, or the complete new one. What may be replaced: what the same command made; nothing of
a person is removed.
"""

import errno
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from common.errors import UserError
from common.files import atomic, locks, outputs


def write(directory: Path, text: str, command: str = "tool", source: str = "a") -> None:
    with outputs.making(directory, command, source) as place:
        (place / "sub").mkdir()
        (place / "a.txt").write_text(text)
        (place / "sub" / "b.txt").write_text(text)


def texts(directory: Path) -> dict[str, str]:
    return {name: (directory / name).read_text() for name in outputs.files_below(directory)}


def test_a_command_waits_while_another_one_moves_its_files(tmp_path: Path) -> None:
    out, is_whole = tmp_path / "out", threading.Event()

    def make() -> None:
        with outputs.making(out, "tool", "a") as place:
            (place / "a.txt").write_text("new")
            is_whole.set()

    thread = threading.Thread(target=make)
    with locks.holding(locks.beside(out), out):
        thread.start()
        is_whole.wait()
        time.sleep(0.3)  # in which it would be there
        assert not out.exists()
    thread.join()
    assert texts(out) == {"a.txt": "new"}


def test_the_old_directory_stands_until_the_new_one_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "old")

    def fail_halfway() -> None:
        with outputs.making(out, "tool", "a") as place:
            (place / "a.txt").write_text("half")
            assert texts(out) == {"a.txt": "old", "sub/b.txt": "old"}
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert texts(out) == {"a.txt": "old", "sub/b.txt": "old"}
    write(out, "new")
    assert texts(out) == {"a.txt": "new", "sub/b.txt": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize(
    ("command", "source", "fault"),
    [("other", "a", "was made by tool"), ("tool", "b", "was made from a, not from b"), ("tool", "a", "")],
)
def test_only_the_same_command_from_the_same_source_replaces(tmp_path, command, source, fault):
    write(tmp_path / "out", "x")
    if fault:
        with pytest.raises(UserError, match=f"{fault}; move it away, or choose another place$"):
            write(tmp_path / "out", "y", command, source)
    else:
        write(tmp_path / "out", "y", command, source)
    kept = "x" if fault else "y"
    assert texts(tmp_path / "out") == {"a.txt": kept, "sub/b.txt": kept}


@pytest.mark.parametrize("marker", [None, "", '{"format": 1, "files": {}}'])
def test_a_directory_of_a_person_is_refused_and_kept_as_a_whole(tmp_path: Path, marker: str | None) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    if marker is not None:
        (out / outputs.MARKER).write_text(marker)
    with pytest.raises(UserError, match=r"move (it|the directory) away"):
        write(out, "x")
    assert (out / "notes.txt").read_text() == "mine"
    for name in ("file", "link"):
        path = tmp_path / name
        path.write_text("mine") if name == "file" else path.symlink_to(out)
        with pytest.raises(UserError, match=f"is a {name}"):
            write(path, "x")


def test_what_a_person_added_or_changed_in_ours_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for round_number in (1, 2):
        write(out, "x")
        (out / "a.txt").write_text("changed")
        (out / "notes.txt").write_text("mine")
        (out / "link").symlink_to(tmp_path)
        write(out, "y")
        kept = tmp_path / f"out.old-{round_number}"
        assert sorted(path.name for path in kept.iterdir()) == [outputs.MARKER, "a.txt", "link", "notes.txt", "sub"]
        assert (kept / "a.txt").read_text() == "changed"
    assert texts(out) == {"a.txt": "y", "sub/b.txt": "y"}


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What this thread called os.fsync and os.replace with: ("fsync" or "replace", whether it is a directory)."""
    calls: list[tuple[str, bool]] = []

    def record(name: str, place: str, call: Callable[..., None], first: object, *others: Path) -> None:
        if threading.current_thread() is threading.main_thread():  # another one may end an earlier test's work
            calls.append((name, os.path.isdir(place.format(first))))
        call(first, *others)

    for name, place in (("fsync", "/proc/self/fd/{}"), ("replace", "{}")):
        monkeypatch.setattr(atomic.os, name, partial(record, name, place, getattr(os, name)))
    return calls


def test_a_file_is_synced_before_its_rename_and_its_directory_after_it(tmp_path, synced):
    atomic.write_text(tmp_path / "file", "content")
    assert synced == [("fsync", False), ("replace", False), ("fsync", True)]
    assert (tmp_path / "file").read_text() == "content"


@pytest.mark.parametrize("exists", [True, False])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path: Path, exists: bool) -> None:
    target = tmp_path / "file"
    if exists:
        target.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic.replacing(target) as temporary, temporary.open("w"):
        raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["file"] * exists
    assert not exists or target.read_text() == "old"


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space left on device") as raised, atomic.replacing(tmp_path / "file"):
        raise OSError(errno.ENOSPC, "No space left on device")  # as `write` raises it
    assert raised.value.filename == str(tmp_path / "file")
