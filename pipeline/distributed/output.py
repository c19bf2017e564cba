"""Output that nobody may be able to read any more: what reads it has ended, or its disk is full."""

import contextlib
import errno
import io
import os
import select
import sys
from typing import Any


def keep_open() -> None:
    """Sends stdout and stderr to nowhere if nobody reads them any more. Otherwise the next line would end the rank."""
    for descriptor in (1, 2):
        poll = select.poll()
        poll.register(descriptor, 0)
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)


class _Lossy(io.FileIO):
    """A descriptor that takes everything. What it has no space for is lost: on a full disk, or in a full pipe."""

    def write(self, data: Any, /) -> int:
        """Writes all of `data`, as far as there is space, and returns its length."""
        rest = memoryview(data).cast("B")
        length = rest.nbytes
        while rest:
            try:
                written = super().write(rest)
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                written = None
            if written is None:  # also for a pipe that does not block
                break
            rest = rest[written:]
        return length


def survive_full_disk() -> None:
    """Lets print lose its lines while the disk of stdout or stderr is full. Otherwise they would end the rank."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and stream.fileno() == descriptor and not stream.isatty():
            with contextlib.suppress(OSError):
                stream.flush()
            file: Any = _Lossy(descriptor, "w", closefd=False)
            lossy = io.TextIOWrapper(
                file if stream.write_through else io.BufferedWriter(file),  # as Python does with and without -u
                encoding=stream.encoding,
                errors=stream.errors,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, lossy)


def write(descriptor: int, text: str) -> None:
    """Writes at once, as far as that is possible. It is no print: the main thread may hold the lock of the stream."""
    with contextlib.suppress(OSError):
        os.write(descriptor, text.encode())
