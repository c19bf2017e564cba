"""A run's directory that cannot be written is refused before anything starts."""

import errno
import json
import os
import tempfile
from pathlib import Path
from typing import IO

import pytest

from common.errors import UserError
from pipeline.checkpoint import run_directory


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that was stopped."""
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "tensorboard").mkdir()
    for name, text in {"settings.json": json.dumps({}), "metrics.jsonl": "", ".lock": "node1 5\n"}.items():
        (tmp_path / "run" / name).write_text(text)
    return tmp_path / "run"


@pytest.mark.parametrize("name", ["settings.json", "metrics.jsonl", ".lock", "checkpoints", "tensorboard", "."])
def test_what_cannot_be_written_on_resume_is_named(run: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    run_directory.check_output(run)
    access, make_file = os.access, tempfile.TemporaryFile

    def make_file_elsewhere(dir: Path) -> IO[bytes]:
        if dir == run / name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return make_file(dir=dir)

    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != run / name and access(path, mode))
    monkeypatch.setattr(tempfile, "TemporaryFile", make_file_elsewhere)
    reason = "(it is write-protected|Permission denied)"
    with pytest.raises(UserError, match=rf"cannot write.* {run / name}: {reason}.*choose another --output"):
        run_directory.check_output(run)


@pytest.mark.parametrize("name", ["metrics.jsonl", "spiece.model"])
def test_a_directory_in_the_place_of_a_file(run: Path, name: str) -> None:
    (run / name).unlink(missing_ok=True)
    (run / name).mkdir()
    with pytest.raises(UserError, match=f"{name} is not a regular file, and it would be written; move it away"):
        run_directory.check_output(run)


def test_a_file_in_the_place_of_a_directory(run: Path) -> None:
    (run / "tensorboard").rmdir()
    (run / "tensorboard").touch()
    with pytest.raises(UserError, match="tensorboard is a file; choose another --output"):
        run_directory.check_output(run)


def test_a_lock_that_is_a_persons_file(run: Path) -> None:
    (run / ".lock").write_text("notes")
    with pytest.raises(UserError, match=r"\.lock is not the lock of a run; move it away"):
        run_directory.check_output(run)
