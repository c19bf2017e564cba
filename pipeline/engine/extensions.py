"""Watches the compilation of DeepSpeed's extensions: says when one starts, and removes locks of killed builds.

torch builds an extension in a directory of its own and holds an empty file there, `lock`. A build that is killed
leaves the file behind, and every later start waits for it without end (torch/utils/file_baton.py).

While an extension is built or loaded, each process of this project holds a shared flock on `in_use` beside the lock.
The kernel releases it when the process ends, however it ends. The host that builds writes its name into `builder`. So
a lock is removed at once if no process holds the flock and the builder was on this host. A lock of unknown origin is
removed once it is `UNKNOWN_SECONDS` old.
"""

import fcntl
import math
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common.errors import UserError, one_line

LOCK = "lock"
UNKNOWN_SECONDS = 1800.0
"""No extension takes half an hour to build."""
SILENT_SECONDS = 5.0
"""Ranks that start together wait this long for each other at most, while they look whether a build is up to date."""


def watch_builds() -> None:
    """Announces every later build of a DeepSpeed extension in this process, and keeps it from waiting forever.

    A build that fails is a UserError, such as on a machine without nvcc.
    """
    from deepspeed.ops.op_builder.builder import OpBuilder

    jit_load = OpBuilder.jit_load
    if getattr(jit_load, "is_watched", False):
        return

    def watched(builder: Any, verbose: bool = True) -> Any:
        with building(builder.name):
            try:
                return jit_load(builder, verbose)
            except Exception as error:  # of many kinds: no compiler, no nvcc, no GPU, another CUDA than torch's
                raise UserError(
                    f"DeepSpeed cannot build its extension {builder.name}: {one_line(error)}; install the compiler and "
                    'the CUDA toolkit that torch was built with, or remove what needs it, such as "torch_adam": false'
                ) from error

    watched.is_watched = True  # type: ignore[attr-defined]
    OpBuilder.jit_load = watched


@contextmanager
def building(name: str) -> Iterator[None]:
    """Surrounds the build of an extension. Removes a stale lock first. The first rank of a host announces it."""
    from torch.utils.cpp_extension import _get_build_directory

    directory = Path(_get_build_directory(name, verbose=False))
    if not (directory / f"{name}.so").exists() and os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"compiling {name} (once, into {directory}); this can take minutes", flush=True)
    with in_use(directory):
        yield


@contextmanager
def in_use(directory: Path) -> Iterator[None]:
    """Holds the shared flock of a build directory, once no other process builds there and no stale lock is left."""
    lock, builder = directory / LOCK, directory / "builder"
    told_at = time.monotonic() + SILENT_SECONDS
    with (directory / "in_use").open("a") as file:
        while True:
            if _take(file.fileno(), fcntl.LOCK_EX):  # no process of the project is inside
                if not lock.exists() or _is_stale(directory):
                    lock.unlink(missing_ok=True)
                    builder.write_text(socket.gethostname())
                    fcntl.flock(file, fcntl.LOCK_SH)
                    break
                fcntl.flock(file, fcntl.LOCK_UN)
            elif not lock.exists() and _take(file.fileno(), fcntl.LOCK_SH):
                break
            if time.monotonic() >= told_at and lock.exists():
                told_at = math.inf
                print(f"waiting for the build of another process; if there is none, delete {lock}", flush=True)
            time.sleep(0.1)
        try:
            yield
        finally:
            builder.unlink(missing_ok=True)


def _take(descriptor: int, kind: int) -> bool:
    """Takes an flock if it is free."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_stale(directory: Path) -> bool:
    """Whether the lock in `directory` belongs to a build that has ended. No process of the project is inside."""
    try:
        if (directory / "builder").read_text() == socket.gethostname():
            return True
    except FileNotFoundError:
        pass
    try:
        return time.time() - (directory / LOCK).stat().st_mtime >= UNKNOWN_SECONDS
    except FileNotFoundError:
        return True
