"""Places that cannot be written to, before anything is done; errors of the file system in one line."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from common.errors import UserError
from common.files import places


def test_a_place_that_can_be_written_is_not_touched(tmp_path: Path) -> None:
    places.check_directory(tmp_path)
    places.check_directory(tmp_path / "a" / "b")
    places.check_file(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    places.check_file(tmp_path / "file")


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for path, reason in (("file", "is a file"), ("file/below", "is a file"), ("link", "is a link that leads nowhere")):
        with pytest.raises(UserError, match=f"cannot write to .*{path}: .*{reason}; choose another --output"):
            places.check_directory(tmp_path / path, "--output")
    with pytest.raises(UserError, match="File name too long"):
        places.check_directory(tmp_path / ("n" * 300))
    for name in ("link", "."):
        with pytest.raises(UserError, match="is not a regular file, and it would be written"):
            places.check_file(tmp_path / name)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_read_only_file_system(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    subprocess.run(["mount", "--bind", tmp_path, tmp_path], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", tmp_path], check=True)
        with pytest.raises(UserError, match="is on a read-only file system; choose another --out"):
            places.check_directory(tmp_path / "out")
        with pytest.raises(UserError, match="is on a read-only file system; make it writable"):
            places.check_file(tmp_path / "file")
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_a_file_without_the_right_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(UserError, match="file is write-protected; make it writable, or choose another --output"):
        places.check_file(tmp_path / "file", "--output")
    with pytest.raises(UserError, match="is write-protected; choose another --out"):
        places.check_directory(tmp_path)


def test_errors_of_files_are_explained_and_others_are_not() -> None:
    full = places.explain(OSError(errno.ENOSPC, "No space left on device", "/a/b"))
    assert str(full) == "/a/b: No space left on device; free some space"
    denied = places.explain(PermissionError(errno.EACCES, "Permission denied", "/a/b"))
    assert str(denied) == "/a/b: Permission denied; make it accessible, or choose another place"
    assert places.explain(OSError(errno.ENOSPC, "No space left on device")) is None
    assert places.explain(OSError(errno.EBADF, "Bad file descriptor", "/a/b")) is None
