"""JSON and tensor files: what is written can be read, is synced with its directory, and replaces the old file whole."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from common.files import atomic
from model.checkpoint import read_json, read_tensors, write_json, write_tensors

WRITERS = [
    pytest.param(lambda path: write_json(path, {"size": 1}), id="json"),
    pytest.param(lambda path: write_tensors(path, {"weight": torch.ones(2)}), id="tensors"),
]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    contents = {"name": "ﬁné", "size": 1}
    write_json(tmp_path / "a.json", contents)
    assert read_json(tmp_path / "a.json") == contents
    weight = torch.arange(6, dtype=torch.bfloat16).view(2, 3).T
    write_tensors(tmp_path / "a.safetensors", {"weight": weight})
    assert torch.equal(read_tensors(tmp_path / "a.safetensors")["weight"], weight)


@pytest.mark.parametrize("write", WRITERS)
def test_the_directory_is_synced_after_the_rename(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bool] = []
    monkeypatch.setattr(atomic.os, "fsync", lambda to: synced.append(os.path.isdir(f"/proc/self/fd/{to}")))
    write(tmp_path / "file")
    assert synced == [False, True]


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "does not exist"), ("{", "is no valid JSON"), ("[]", "holds no JSON object")]
)
def test_a_json_file_that_cannot_be_read_is_named(content: str | None, problem: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "a.json").write_text(content)
    with pytest.raises(ValueError, match=f"a.json {problem}"):
        read_json(tmp_path / "a.json")
