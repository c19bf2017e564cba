"""Compilations are announced, and a lock that a killed build left behind does not stop later starts."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from common.errors import UserError
from pipeline.engine import extensions
from tests.pipeline.conftest import REPOSITORY

NAME = "fused_adam"
BUILD = f"""
import sys, time
from torch.utils.file_baton import FileBaton
from common.errors import UserError
from pipeline.engine import extensions
with extensions.building({NAME!r}):
    assert FileBaton(sys.argv[1]).try_acquire()
    print("holds it", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv("LOCAL_RANK", "0")
    (tmp_path / NAME).mkdir()
    return tmp_path / NAME


def start_a_build(directory: Path) -> subprocess.Popen[str]:
    """A process that holds torch's lock in `directory`, as a build does."""
    command = [sys.executable, "-c", BUILD, str(directory / "lock")]
    build = subprocess.Popen(command, cwd=REPOSITORY, env={**os.environ}, stdout=subprocess.PIPE, text=True)
    assert build.stdout is not None
    while (line := build.stdout.readline()) != "holds it\n":
        assert line, "the build ended"
    return build


@pytest.mark.slow
def test_the_lock_of_a_killed_build_is_removed_and_that_of_a_living_one_is_not(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extensions, "SILENT_SECONDS", 0.5)
    build = start_a_build(directory)
    entered = threading.Event()

    def start() -> None:
        with extensions.building(NAME):
            entered.set()

    said = f"waiting for the build of another process; if there is none, delete {directory / 'lock'}\n"
    printed = ""
    later = threading.Thread(target=start, daemon=True)
    try:
        later.start()
        while said not in printed and not entered.wait(0.1):
            printed += capsys.readouterr().out
        assert not entered.is_set()
        assert (directory / "lock").exists()
    finally:
        build.send_signal(signal.SIGKILL)
        build.wait()
    assert entered.wait(200.0)
    later.join()
    assert not (directory / "lock").exists()
    assert (printed + capsys.readouterr().out).count(said) == 1


def test_a_short_wait_for_another_rank_is_not_told(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(extensions, "SILENT_SECONDS", 600.0)
    lock = directory / "lock"
    lock.touch()
    with (directory / "in_use").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_SH)  # the other rank is inside
        later = threading.Timer(0.3, lock.unlink)
        later.start()
        with extensions.in_use(directory):
            assert not lock.exists()
    later.join()
    assert capsys.readouterr().out == ""


def test_a_lock_of_another_program_is_kept_while_it_may_live(directory: Path) -> None:
    lock = directory / "lock"
    lock.touch()
    assert not extensions._is_stale(directory)
    (directory / "builder").write_text("another-host")
    assert not extensions._is_stale(directory)
    os.utime(lock, (0, 0))
    assert extensions._is_stale(directory)


@pytest.mark.slow
def test_a_build_of_deepspeed_is_announced_once(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from deepspeed.ops.op_builder.builder import OpBuilder
    from deepspeed.ops.op_builder.cpu import FusedAdamBuilder

    def build(name: str, **_: Any) -> str:
        assert not (directory / "lock").exists()
        (directory / f"{name}.so").touch()
        return "the module"

    monkeypatch.setattr("torch.utils.cpp_extension.load", build)
    monkeypatch.setattr(OpBuilder, "jit_load", OpBuilder.jit_load)  # restored after the test
    monkeypatch.setattr(OpBuilder, "_loaded_ops", {})
    (directory / "lock").touch()
    os.utime(directory / "lock", (0, 0))
    for _ in range(2):
        extensions.watch_builds()
    assert FusedAdamBuilder().load() == "the module"
    assert capsys.readouterr().out == f"compiling {NAME} (once, into {directory}); this can take minutes\n"
    OpBuilder._loaded_ops.clear()
    assert FusedAdamBuilder().load() == "the module"
    assert capsys.readouterr().out == ""

    def fail(name: str, **_: Any) -> str:
        raise RuntimeError("no compiler\nfound")

    monkeypatch.setattr("torch.utils.cpp_extension.load", fail)
    OpBuilder._loaded_ops.clear()
    with pytest.raises(UserError, match=f"cannot build its extension {NAME}: no compiler found; install"):
        FusedAdamBuilder().load()
