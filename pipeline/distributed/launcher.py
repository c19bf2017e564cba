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
from collections.abc import Sequence
from pathlib import Path

import psutil
from psutil import Process

from common.environment import whole_number
from common.errors import UserError

LOCK_SECONDS = 600.0
"""How long a start waits for the lock of the start before it: a file server may keep the lock of a lost host."""
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "env")
_TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_DEEPSPEED = ("deepspeed", "ds", "deepspeed.launcher.runner")


def launchers(ancestors: Sequence[Process]) -> list[Process]:
    """Those processes whose end must end a rank, by the `ancestors` of the rank, its parent first."""
    found = list(ancestors[:1])
    if found and any("deepspeed.launcher.launch" in word for word in found[0].cmdline()):
        # sshd starts the agent through a shell.
        for above in [ancestor for ancestor in ancestors[1:] if ancestor.name() not in _SHELLS][:1]:
            is_deepspeed = any(Path(word).name in _DEEPSPEED for word in above.cmdline()[:3])
            found += [above] if is_deepspeed or above.name().startswith("sshd") else []
    return found


def watch() -> None:
    """Starts a thread that stops this process when its launcher ends. Called in a rank that a launcher started."""
    names: dict[int, str] = {}  # by descriptor
    with contextlib.suppress(OSError, psutil.Error):  # one has ended, or the kernel is older than 5.3
        for process in launchers(psutil.Process().parents()):
            names[os.pidfd_open(process.pid)] = f"{process.name()}, process {process.pid}"

    def wait() -> None:
        ended, _, _ = select.select(list(names), [], [])
        keep_output_open()
        if os.environ.get("LOCAL_RANK") == "0":
            write_now(1, f"the launcher ({names[ended[0]]}) has ended, so this run stops\n")
        os.kill(os.getpid(), signal.SIGTERM)

    if names:
        threading.Thread(target=wait, name="launcher", daemon=True).start()


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

    torch 2.13 makes the agent's store once and keeps it. There the ranks would find the words of an earlier start. A
    host would even look for it on a first host that is lost.
    """
    if max_restarts() and agent_serves_store():
        raise UserError(
            "torchrun would start the ranks again with the store of an earlier start; export "
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 on all hosts and use --rdzv-backend c10d, or leave out --max-restarts"
        )


def lock_seconds() -> float:
    """How long to wait for a run's lock: under an agent, its holder may be a rank of an earlier start."""
    return LOCK_SECONDS if max_restarts() else 0.0


def end_agent() -> None:
    """Ends the agent of this host, if it would start the ranks again. One rank of a host does it.

    The agent's variables may be set in a shell that has no agent: nothing but torchrun is ended.
    """
    restarts = whole_number("TORCHELASTIC_RESTART_COUNT", default=0)
    if restarts < max_restarts() and os.environ.get("LOCAL_RANK") == "0" and _is_agent(os.getppid()):
        os.kill(os.getppid(), signal.SIGTERM)


def _is_agent(process: int) -> bool:
    """Whether a process is torchrun, however it was started."""
    with contextlib.suppress(psutil.Error):
        return any(Path(word).name in _TORCHRUN for word in Process(process).cmdline()[:4])
    return False
