"""What started this rank: stops the rank when its launcher ends, and speaks to torchrun's elastic agent.

A rank is a child of a launcher's agent: `deepspeed.launcher.launch` or torchrun. If only the agent's parent is killed,
as by `kill` of the `deepspeed` command, the agent and its ranks would train on. So each rank watches its agent and,
above it, the `deepspeed` command, or the sshd session through which the agent was started. When one of them ends, the
rank gets SIGTERM: it finishes its step, saves and ends.

torchrun's agent on each host starts the host's ranks again when one of them ends with a status other than 0, or when a
host joins. A rank that has found a mistake, or whose training has failed for good, ends its agent first: starting again
would only repeat that.
"""

import contextlib
import os
import select
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common.environment import whole_number
from common.errors import UserError

LOCK_SECONDS = 600.0
"""How long a start waits for the lock of the start before it: a file server may keep the lock of a lost host."""
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "env")


class Process(NamedTuple):
    """A process: its number, that of its parent, its name, and its command line."""

    pid: int
    parent: int
    name: str
    words: Sequence[str]


def read_process(pid: int) -> Process | None:
    """What /proc says of a process; None if it has ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return None
    name, _, rest = status.partition("(")[2].rpartition(")")
    return Process(pid, int(rest.split()[1]), name, line.split("\0"))


def launchers(ancestors: Sequence[Process]) -> list[Process]:
    """Those processes whose end must end a rank, by the `ancestors` of the rank, its parent first."""
    if not ancestors:
        return []
    found = [ancestors[0]]
    if not any("deepspeed.launcher.launch" in word for word in ancestors[0].words):
        return found
    above = list(ancestors[1:])
    while above and above[0].name in _SHELLS:  # sshd starts the agent through a shell
        del above[0]
    if above and (is_deepspeed(above[0]) or above[0].name.startswith("sshd")):
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


def keep_output_open() -> None:
    """Sends stdout and stderr to nowhere if nobody reads them any more. Otherwise the next line would end the rank."""
    for descriptor in (1, 2):
        poll = select.poll()
        poll.register(descriptor, 0)
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0)):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)


def write_now(descriptor: int, text: str) -> None:
    """Writes as far as that is possible. It is no print: the main thread may hold the lock of the stream."""
    with contextlib.suppress(OSError):
        os.write(descriptor, text.encode(errors="backslashreplace"))  # names of files need not be UTF-8


def max_restarts() -> int:
    """How often torchrun's agent may start the ranks again; 0 without an agent."""
    return whole_number("TORCHELASTIC_MAX_RESTARTS", default=0)


def agent_serves_store() -> bool:
    """Whether the agent of the first host serves the store on MASTER_PORT, and not rank 0."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def check_agent() -> None:
    """Raises UserError if torchrun's agent may start the ranks again, but with the store of an earlier start.

    torch 2.13 makes the agent's store once and keeps it. There the ranks would find addresses of processes that have
    ended. A host would even look for it on a first host that is lost.
    """
    if max_restarts() and agent_serves_store():
        raise UserError(
            "torchrun would start the ranks again with the store of an earlier start; export "
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on all hosts and use --rdzv-backend c10d, or leave out --max-restarts"
        )


def check_batch(config: Mapping[str, Any]) -> None:
    """Raises UserError if the batch of a DeepSpeed JSON follows from a number of ranks that may change."""
    if max_restarts() and config.get("train_batch_size") is None:
        raise UserError(
            "the DeepSpeed JSON has no train_batch_size: the batch would change with the number of ranks when torchrun "
            "starts them again; add it"
        )


def lock_seconds() -> float:
    """How long to wait for a run's lock: under an agent, its holder may be a rank of an earlier start."""
    return LOCK_SECONDS if max_restarts() else 0.0


def end_agent() -> None:
    """Ends the agent of this host, if it would start the ranks again. One rank of a host does it."""
    restarts = whole_number("TORCHELASTIC_RESTART_COUNT", default=0)
    if restarts < max_restarts() and os.environ["LOCAL_RANK"] == "0":
        os.kill(os.getppid(), signal.SIGTERM)
