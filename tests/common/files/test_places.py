"""Places that cannot be written to, names that become paths, and files that are read as JSON."""

import errno
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from common.errors import UserError
from common.files import places
from common.files.json_files import Count, Finite, Probability, check_as, parse_object, read_as, read_bytes, read_text
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


@dataclass(frozen=True)
class Part:
    name: str
    bytes: Count
    shape: tuple[int, ...] = ()


@dataclass
class Manifest:
    parts: list[Part]
    fill: Probability = 0.0
    score: Finite | None = None
    options: dict[str, Any] = field(default_factory=dict)


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_file_becomes_the_type_and_missing_keys_their_defaults(tmp_path: Path) -> None:
    path = written(tmp_path / "m.json", '{"parts": [{"name": "a", "bytes": 3, "shape": [2, 3]}], "fill": 1}')
    assert read_as(path, Manifest, "") == Manifest([Part("a", 3, (2, 3))], 1.0)
    assert check_as({"parts": [], "zeal": 1}, Manifest, "m", "", extra="ignore") == Manifest([])
    assert read_text(written(path, "Zoë"), "") == "Zoë"
    with pytest.raises(UserError, match=r"is not UTF-8 text \(byte 2\); save it again"):
        read_text(written(path, b"Zo\xeb"), "save it again")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"parts": [{"name": "a"}]}', "lacks the key parts.0.bytes"),
        ('{"parts": [], "zeal": 1}', "has the unknown key zeal"),
        ('{"parts": [{"name": "a", "bytes": -1}]}', "has parts.0.bytes = -1, which should be greater"),
        ('{"parts": [{"name": "a", "bytes": 9223372036854775808}]}', "has parts.0.bytes = 9223372036854775808"),
        ('{"parts": [{"name": "a", "bytes": true}]}', "has parts.0.bytes = True, which should be a valid integer"),
        ('{"parts": [], "fill": 1.5}', "has fill = 1.5"),
        ('{"parts": [], "score": 1e999}', "has score = inf"),
        ('{"parts": {}}', "has parts = {}"),
        ("[1]", r"has the content = \[1\]"),
        ("", "is no valid JSON"),
        ('{"parts": []', "is no valid JSON"),
        ("[" * 100_000, "is no valid JSON .*recursion limit"),
        ('{"parts": ' + "9" * 4301 + "}", "is no valid JSON .*out of range"),
        (b'{"parts": "\xff"}', "is no valid JSON"),
        ('{"parts": [], "a\\nb": 1}', r"has the unknown key a\\nb"),
    ],
)
def test_what_cannot_be_is_one_line_with_the_key(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = written(tmp_path / "m.json", content)
    with pytest.raises(UserError, match=message) as raised:
        read_as(path, Manifest, "make it again")
    assert str(raised.value).startswith(f"{path} ")
    assert str(raised.value).endswith("; make it again")
    assert len(str(raised.value)) < 1000


def test_what_is_no_file_or_too_large_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    for message, names in {
        "is no regular file": ("fifo", "directory", "/dev/zero"),
        "does not exist": ("link", "loop", "missing", "nul\0"),
        "cannot be read .*too long": ("n" * 300,),
        "more than 1,000 bytes": ("sparse",),
    }.items():
        for name in names:
            with pytest.raises(UserError, match=message):
                read_bytes(tmp_path / name, "name another", max_bytes=1000)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '{"b": [{"c": {"a": 1, "b": 2, "a": 3}}]}'])
def test_a_key_that_an_object_has_twice_is_named(text: str) -> None:
    with pytest.raises(UserError, match=r"it has the key 'a' twice\); restore it$"):
        parse_object(text.encode(), "m", "restore it")
