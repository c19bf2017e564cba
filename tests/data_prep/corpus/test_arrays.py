"""Arrays in files: one that was damaged or exchanged is a line with the file, and never an allocation."""

import io
import os
from pathlib import Path

import numpy as np
import pytest

from common.errors import UserError
from data_prep.corpus.arrays import read_array, write_array


def test_what_was_written_is_read(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.uint16).reshape(6, 2)
    entry = write_array(tmp_path / "a.npy", array)
    assert (entry["name"], entry["bytes"]) == ("a.npy", (tmp_path / "a.npy").stat().st_size)
    assert (read_array(tmp_path / "a.npy", np.uint16, 6, 2) == array).all()
    assert (read_array(tmp_path / "a.npy", np.uint16, None, 2) == array).all()


def npy(array: object, **options: bool) -> bytes:
    content = io.BytesIO()
    np.save(content, array, **options)  # type: ignore[arg-type]
    return content.getvalue()


RIGHT = npy(np.zeros((6, 2), np.int64))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        RIGHT[:40],
        RIGHT[:-1],
        RIGHT.replace(b"(6, 2)", b"(6, 2"),
        RIGHT.replace(b"(6, 2), }", b"(9**9,)}"),
        RIGHT.replace(b"'<i8'", b"'|O' "),
        npy(np.zeros((9, 2), np.int64)),
        npy(np.zeros((6, 2), np.float64)),
        npy(np.zeros(12, np.int64)),
        npy(np.array([{}], object), allow_pickle=True),
        b"PK\x03\x04" + bytes(100),
    ],
)
def test_damage_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "scratch" / "pairs" / "a.npy"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"^{path} is damaged \(.*\); delete {tmp_path}/scratch and give the same"):
        read_array(path, np.int64, 6, 2)


def test_a_header_that_promises_terabytes_allocates_nothing(tmp_path: Path) -> None:
    huge = RIGHT.replace(b"(6, 2), }                ", b"(1000000000000, 2), }    ")
    assert len(huge) == len(RIGHT)
    (tmp_path / "a.npy").write_bytes(huge)
    with pytest.raises(UserError, match="is damaged"):
        read_array(tmp_path / "a.npy", np.int64, None, 2)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.npy")
    (tmp_path / "link.npy").symlink_to("/dev/zero")
    for name in ("fifo", "link", "none"):
        with pytest.raises(UserError, match=r"is damaged \(it is no regular file\)"):
            read_array(tmp_path / f"{name}.npy", np.int64, 1)
