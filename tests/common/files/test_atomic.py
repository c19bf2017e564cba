"""Atomic writing: a file is either absent, the old one, or the complete new one."""

import errno
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from common.files import atomic


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
