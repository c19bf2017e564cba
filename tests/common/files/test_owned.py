"""What may be replaced or removed: only what carries our marker, and of that only our files."""

import errno
import os
import re
from pathlib import Path

import pytest

from common.errors import UserError
from common.files import owned


def write(directory: Path, text: str) -> None:
    with owned.replacing_directory(directory, "tool") as place:
        (place / "sub").mkdir()
        (place / "a.txt").write_text(text)
        (place / "sub" / "b.txt").write_text(text)


def texts(directory: Path) -> dict[str, str]:
    files = [path for path in directory.rglob("*") if path.is_file() and path.name != owned.MARKER]
    return {path.relative_to(directory).as_posix(): path.read_text() for path in files}


def test_the_old_directory_stands_until_the_new_one_is_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "old")

    def fail_halfway() -> None:
        with owned.replacing_directory(out, "tool") as place:
            (place / "a.txt").write_text("half")
            assert texts(out) == {"a.txt": "old", "sub/b.txt": "old"}
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert texts(out) == {"a.txt": "old", "sub/b.txt": "old"}
    write(out, "new")
    assert texts(out) == {"a.txt": "new", "sub/b.txt": "new"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_what_was_added_while_the_new_one_was_written_is_refused_as_well(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "old")

    def add_meanwhile() -> None:
        with owned.replacing_directory(out, "tool") as place:
            (place / "a.txt").write_text("new")
            (out / "notes.txt").write_text("x")

    with pytest.raises(UserError, match=r"notes\.txt"):
        add_meanwhile()
    assert texts(out) == {"a.txt": "old", "sub/b.txt": "old", "notes.txt": "x"}


@pytest.mark.parametrize(
    "marker", ["", "[]", "[" * 100_000, '{"format": 1, "files": {"a.txt": {}}}', '{"format": 1, "workplace": "a tool"}']
)
def test_a_file_with_the_markers_name_is_never_overwritten(tmp_path: Path, marker: str) -> None:
    (tmp_path / owned.MARKER).write_text(marker)
    with pytest.raises(UserError, match="not the list of files that this project writes; move it away"):
        owned.check_replaceable(tmp_path, "tool")
    with pytest.raises(UserError, match="not the list of files that this project writes; move it away"):
        owned.check_addable(tmp_path, ["a.txt"])
    with pytest.raises(UserError, match="move it away"), owned.adding_files(tmp_path, "tool") as place:
        (place / "a.txt").write_text("x")
    assert [path.name for path in tmp_path.iterdir()] == [owned.MARKER]
    assert (tmp_path / owned.MARKER).read_text() == marker


def test_another_tools_output_is_not_replaced(tmp_path: Path) -> None:
    write(tmp_path / "out", "x")
    with pytest.raises(UserError, match="files that other did not write"):
        owned.check_replaceable(tmp_path / "out", "other")


def test_a_link_in_our_directory_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "out", "x")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "a.txt").write_text("x")
    (tmp_path / "out" / "link").symlink_to(tmp_path / "theirs")
    with pytest.raises(UserError, match="link"):
        write(tmp_path / "out", "y")
    assert texts(tmp_path / "theirs") == {"a.txt": "x"}


def test_a_workplace_gives_up_only_our_files(tmp_path: Path) -> None:
    own = re.compile(r"\d+\.npy")
    place = tmp_path / "work"
    place.mkdir()
    owned.take_workplace(place, "tool")
    (place / "inner").mkdir()
    for name in ("1.npy", "inner/2.npy", "inner/.3.npy.00ff.tmp", "inner/notes.txt"):
        (place / name).write_text("x")
    owned.remove_workplace(place, own)
    assert texts(place) == {"inner/notes.txt": "x"}
    (place / "inner" / "notes.txt").unlink()
    owned.remove_workplace(place, own)
    assert not place.exists()
    place.mkdir()
    (place / "1.npy").write_text("theirs")
    owned.remove_workplace(place, own)
    assert texts(place) == {"1.npy": "theirs"}
    with pytest.raises(UserError, match="move it away"):
        owned.take_workplace(place, "tool")


def test_every_file_is_synced_before_the_directory_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, bool]] = []
    fsync, rename = os.fsync, os.rename

    def record_fsync(descriptor: int) -> None:
        calls.append(("fsync", os.path.isdir(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def record_rename(source: Path, target: Path) -> None:
        calls.append(("rename", Path(source).is_dir()))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "rename", record_rename)
    with owned.replacing_directory(tmp_path / "directory", "a test") as new:
        (new / "below").mkdir()
        for name in ("a", "below/b"):
            (new / name).write_text(name)
    assert calls[-2:] == [("rename", True), ("fsync", True)]
    assert calls[:-2].count(("fsync", False)) == 4  # both files, the marker and the lock


def test_the_files_of_a_tool_are_those_that_it_wrote_and_nobody_changed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert owned.files_of(tmp_path, "tool") == []
    write(out, "text")
    (out / "notes.txt").write_text("of a person")
    (out / "link.txt").symlink_to(out / "a.txt")
    assert owned.files_of(out, "tool") == ["a.txt", "sub/b.txt"]
    assert owned.files_of(out, "another tool") == []
    (out / "a.txt").write_text("changed")
    assert owned.files_of(out, "tool") == ["sub/b.txt"]


def test_a_full_disk_at_the_marker_adds_nothing_that_is_refused_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add() -> None:
        with owned.adding_files(tmp_path, "tool") as place:
            (place / "a.txt").write_text("x")

    def fail(directory: Path, entries: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(owned, "_write_marker", fail)
        with pytest.raises(OSError, match="No space left"):
            add()
    assert list(tmp_path.iterdir()) == []
    add()
    assert texts(tmp_path) == {"a.txt": "x"}
