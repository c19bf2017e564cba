"""Stops this rank when its launcher ends.

A rank is a child of a launcher's agent: `deepspeed.launcher.launch` or torchrun. If only the agent's parent is killed,
as by `kill` of the `deepspeed` command, the agent and its ranks would train on. So each rank watches its agent and,
above it, the `deepspeed` command, or the sshd session through which the agent was started. When one of them ends, the
rank gets SIGTERM: it finishes its step, saves and ends. If `deepspeed` ended before the rank was started, the rank ends
at once.
"""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_OF_DEEPSPEED = "--enable_each_rank_log="
"""A flag of each agent that the `deepspeed` command starts on its own host."""
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "env")


class Process(NamedTuple):
    """A process: its number, that of its parent, its name, its command line, and the number of its process group."""

    pid: int
    parent: int
    name: str
    words: Sequence[str]
    group: int


def process(pid: int) -> Process | None:
    """What /proc says of a process; None if it has ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return None
    name = status.partition("(")[2].rpartition(")")[0]
    _, parent, group, *_ = status.rpartition(")")[2].split()
    return Process(pid, int(parent), name, line.split("\0"), int(group))


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


def is_orphan(agent: Process, parent: Process | None) -> bool:
    """Whether the `deepspeed` command that started an agent on its own host has ended.

    The agent is then the child of a process that adopts orphans. That one is in another process group, or a shell that
    is a container's first process. An agent that a person started himself may have any parent.

    Args:
        parent: of the agent; None if it has ended.
    """
    if not any(word.startswith(_OF_DEEPSPEED) for word in agent.words):
        return False
    return parent is None or parent.group != agent.group or parent.name in _SHELLS


def ancestors() -> list[Process]:
    """The ancestors of this process, its parent first."""
    found: list[Process] = []
    pid = os.getppid()
    while pid > 1 and (ancestor := process(pid)) is not None:
        found.append(ancestor)
        pid = ancestor.parent
    return found


def watch() -> None:
    """Starts a thread that stops this process when its launcher ends. Called in a rank that a launcher started."""
    agent = process(os.getppid())
    if agent is not None and is_orphan(agent, process(agent.parent)):
        _stop("the launcher (deepspeed) has ended, so this run stops")
        return
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
    ended = descriptors[descriptor]
    _stop(f"the launcher ({ended.name}, process {ended.pid}) has ended, so this run stops")


def _stop(line: str) -> None:
    """Stops this rank; the first one of its host prints `line`."""
    keep_output_open()
    if os.environ.get("LOCAL_RANK") == "0":
        os.write(1, f"{line}\n".encode())
    os.kill(os.getpid(), signal.SIGTERM)


def keep_output_open() -> None:
    """Sends stdout and stderr to nowhere if nobody reads them any more. Otherwise the next line would end the rank."""
    for descriptor in (1, 2):
        poll = select.poll()
        poll.register(descriptor, 0)
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
