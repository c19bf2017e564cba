"""Places that cannot be written to, and names that become paths."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from common.errors import UserError
from common.files import places
from common.files.places import plain_name


def test_what_is_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for path, reason in (
        ("file", "Not a directory"), ("file/below", "Not a directory"), ("link", "No such file or directory"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=f"cannot write to .*{path}: {reason}; choose another --output"):
            places.check_directory(tmp_path / path, "--output")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_read_only_file_system(tmp_path: Path) -> None:
    subprocess.run(["mount", "--bind", tmp_path, tmp_path], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", tmp_path], check=True)
        with pytest.raises(UserError, match="Read-only file system; choose another --out"):
            places.check_directory(tmp_path / "out")
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.EACCES, "Permission denied", "a/b"), "a/b: Permission denied; make it accessible"),
        (OSError(errno.EACCES, "Permission denied", b"a/b"), "a/b: Permission denied; make it accessible"),
        (OSError(errno.ENOSPC, "No space left", "a/b"), "the disk is full at a/b (No space left)"),
        (OSError(errno.EDQUOT, "Quota exceeded"), "the disk is full (Quota exceeded); free some space and give the"),
        (UserError("a mistake"), "a mistake"),
        (OSError(errno.EPIPE, "Broken pipe"), ""),
        (ValueError("no error of a file"), ""),
    ],
)
def test_an_error_of_a_named_file_or_a_full_disk_is_a_line(error: Exception, line: str) -> None:
    explained = places.explain(error)
    assert explained is None if not line else str(explained).startswith(line)


BAD = ["", ".", "..", "../victim", "/etc/passwd", "a/b", "a\\b", "a\0b", "a\nb", "\ud800", "x" * 256, 3, None, ["a"]]


@pytest.mark.parametrize("name", BAD)
def test_other_names_are_refused_in_one_line(name: object) -> None:
    with pytest.raises(UserError, match=r"file\.json names"):
        plain_name(name, "file.json")
