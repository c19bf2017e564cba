"""What may be replaced: what the same command made; nothing of a person is removed."""

import threading
import time
from pathlib import Path

import pytest

from common.errors import UserError
from common.files import locks, outputs


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
