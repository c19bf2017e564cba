"""Stops this rank when its launcher ends.

A rank is a child of a launcher's agent: `deepspeed.launcher.launch` or torchrun. If only the agent's parent is killed,
as by `kill` of the `deepspeed` command, the agent and its ranks would train on. So each rank watches its agent and,
above it, the `deepspeed` command, or the sshd session through which the agent was started. When one of them ends, the
rank gets SIGTERM: it finishes its step, saves and ends.
"""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from pipeline.distributed.exits import keep_output_open, write_now
from pipeline.distributed.monitor.stacks import Process, read_process

_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "env")


def launchers(ancestors: Sequence[Process]) -> list[Process]:
    """Those processes whose end must end a rank.

    Args:
        ancestors: of the rank, its parent first.
    """
    if not ancestors:
        return []
    found = [ancestors[0]]
    if not any("deepspeed.launcher.launch" in word for word in ancestors[0].words):
        return found
    above = list(ancestors[1:])
    while above and above[0].name in _SHELLS:  # sshd starts the agent through a shell
        del above[0]
    if (above and is_deepspeed(above[0])) or (above and above[0].name.startswith("sshd")):
        found.append(above[0])
    return found


def is_deepspeed(candidate: Process) -> bool:
    """Whether it is the `deepspeed` command."""
    return any(Path(word).name in ("deepspeed", "ds", "deepspeed.launcher.runner") for word in candidate.words[:3])


def ancestors() -> list[Process]:
    """The ancestors of this process, its parent first."""
    found: list[Process] = []
    pid = os.getppid()
    while pid > 1 and (ancestor := read_process(pid)) is not None:
        found.append(ancestor)
        pid = ancestor.parent
    return found


def watch() -> None:
    """Starts a thread that stops this process when its launcher ends. Called in a rank that a launcher started."""
    descriptors: dict[int, Process] = {}
    for found in launchers(ancestors()):
        with contextlib.suppress(OSError):  # it has ended, or the kernel is older than 5.3
            descriptors[os.pidfd_open(found.pid)] = found
    if descriptors:
        threading.Thread(target=_wait, args=(descriptors,), name="launcher", daemon=True).start()


def _wait(descriptors: dict[int, Process]) -> None:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    (descriptor, _), *_ = poll.poll()
    keep_output_open()
    if os.environ.get("LOCAL_RANK") == "0":
        ended = descriptors[descriptor]
        write_now(1, f"the launcher ({ended.name}, process {ended.pid}) has ended, so this run stops\n")
    os.kill(os.getpid(), signal.SIGTERM)
