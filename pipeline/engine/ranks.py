"""This process as a rank: its number, as the launcher says, and room for it in memory and in /dev/shm.

On a processor, each rank writes a buffer for sums among the ranks of its host (ops/csrc/cpu/comm/shm.cpp). DeepSpeed
does not notice that the memory is too small: a rank then ends by a signal.
"""

import os
from pathlib import Path

from common.environment import available_addresses, whole_number
from common.errors import UserError
from common.text import quantity
from data_prep.mpi.executor import launched_rank, launched_size
from pipeline.distributed import launcher
from pipeline.distributed.rendezvous import reserve_port

BUFFER_BYTES = (2 << 20) + 2 * (32 << 20) + 8
"""`struct allreduce_workspace`: two small and two large buffers, and two states."""
ALONE_BYTES = 1 << 20
"""A single rank uses only the first page of its buffer."""
MIN_ADDRESS_BYTES = 1_700_000_000
"""Each rank maps more. The smallest model on a processor takes 1.8 GB, and 3.0 GB on two ranks at ZeRO stage 1."""
SHARED_MEMORY = Path("/dev/shm")
_LOCAL_SIZES = ("LOCAL_WORLD_SIZE", "LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
"""Where torchrun, deepspeed, Open MPI and Intel MPI say how many ranks a host has."""


def find_rank() -> None:
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT unless a launcher has set them.

    `deepspeed --launcher openmpi` does not set them. The ranks then find each other through MPI, and meet on port
    29500 of rank 0's host.

    Raises:
        UserError: a variable of the launcher is missing, no number or out of range; or see `launcher.check_agent`.
    """
    if "RANK" not in os.environ and launched_size() > 1:
        launched_rank()
        from deepspeed.comm import mpi_discovery

        mpi_discovery(verbose=False)
    else:
        become_single_rank()
    check_variables()
    launcher.check_agent()


def check_variables() -> None:
    """Raises UserError unless the variables of the rendezvous are set and can be true."""
    world_size = whole_number("WORLD_SIZE", low=1)
    for name in ("RANK", "LOCAL_RANK"):
        whole_number(name, high=world_size - 1)
    whole_number("MASTER_PORT", low=1, high=65535)
    if not os.environ.get("MASTER_ADDR"):
        raise UserError("the environment variable MASTER_ADDR is not set; start the ranks by a launcher, or one alone")


def check_addresses() -> None:
    """Raises UserError if this process may not map what every rank does (`ulimit -v`).

    Looked at before the libraries are loaded: most of them end the process when there is no memory for them.
    """
    free = available_addresses()
    if free is not None and free < MIN_ADDRESS_BYTES:
        raise UserError(
            f"this process may map {free / 1e9:.1f} GB more of memory, and a rank needs at least "
            f"{MIN_ADDRESS_BYTES / 1e9:.1f} GB; raise the limit: ulimit -v unlimited"
        )


def become_single_rank() -> None:
    """Makes this process the only rank if no launcher started it, as with `python -m pipeline.pretrain`."""
    if "RANK" in os.environ:
        return
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserve_port())}


def buffer_prefix() -> str:
    """The names of this job's buffers without the rank."""
    return f"deepspeed_allreduce_buffer_{os.getuid()}_{os.environ['MASTER_ADDR']}_{os.environ['MASTER_PORT']}_"


def ranks_on_host() -> int:
    """The ranks of this job on this host, as the launcher says; without a launcher, as MASTER_ADDR lets one expect."""
    for name in _LOCAL_SIZES:
        if name in os.environ:
            return whole_number(name, low=1)
    is_local = os.environ["MASTER_ADDR"] in ("127.0.0.1", "localhost", "::1")
    return whole_number("WORLD_SIZE", low=1) if is_local else 1


def check_shared_memory() -> None:
    """Raises UserError if this host's ranks cannot write their buffers. Called by one rank of each host."""
    from deepspeed.accelerator import get_accelerator

    if get_accelerator().device_name() == "cpu":
        check_directory(SHARED_MEMORY)


def check_directory(directory: Path) -> None:
    """Raises UserError unless the ranks of this host can write their buffers in `directory`."""
    ranks = ranks_on_host()
    needed = ranks * BUFFER_BYTES if ranks > 1 else ALONE_BYTES
    free = 0
    if not os.access(directory, os.W_OK | os.X_OK):
        state, remedy = "cannot be written", f"mount a tmpfs there, or mount -o remount,rw {directory}"
    else:
        found = os.statvfs(directory)
        # A killed job with the same address and port has left its buffers, and this one writes into them.
        earlier = [path for path in directory.iterdir() if path.name.startswith(buffer_prefix())]
        free = found.f_bavail * found.f_frsize + sum(path.stat().st_blocks * 512 for path in earlier)
        size = -(-(found.f_blocks * found.f_frsize - free + needed) // 2**20)
        state = f"has {free // 10**6} MB free"
        remedy = f"start the container with --shm-size={size}m, or mount -o remount,size={size}m {directory}"
    if free < needed:
        raise UserError(
            f"{directory} {state}, and DeepSpeed needs {-(-needed // 10**6)} MB there for {quantity(ranks, 'rank')} on "
            f"this host; {remedy}"
        )
