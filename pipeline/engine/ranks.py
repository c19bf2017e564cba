"""This process as a rank: its number and the place to meet, as the launcher says."""

import os

from common.environment import launched_rank, launched_size, whole_number
from common.errors import UserError
from pipeline.distributed import launcher
from pipeline.distributed.rendezvous import reserve_port


def find_rank() -> None:
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT unless a launcher has set them.

    `deepspeed --launcher openmpi` does not set them. The ranks then find each other through MPI, and meet on port 29500
    of rank 0's host. Raises UserError: a variable of the launcher is missing, no number or out of range; or see
    `launcher.check_agent`.
    """
    if "RANK" not in os.environ and launched_size() > 1:
        launched_rank()
        from deepspeed.comm import mpi_discovery

        mpi_discovery(verbose=False)
    else:
        become_single_rank()
    check_variables()
    launcher.check_agent()
    if os.environ["WORLD_SIZE"] == "1" and not launcher.agent_serves_store():
        use_free_port()  # a rank alone meets nobody, so the launcher's port may be taken by another run


def check_variables() -> None:
    """Raises UserError unless the variables of the rendezvous are set and can be true."""
    world_size = whole_number("WORLD_SIZE", low=1)
    for name in ("RANK", "LOCAL_RANK"):
        whole_number(name, high=world_size - 1)
    whole_number("MASTER_PORT", low=1, high=65535)
    if not os.environ.get("MASTER_ADDR"):
        raise UserError("the environment variable MASTER_ADDR is not set; start the ranks by a launcher, or one alone")


def become_single_rank() -> None:
    """Makes this process the only rank if no launcher started it, as with `python -m pipeline.pretrain`."""
    if "RANK" in os.environ:
        return
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    use_free_port()


def use_free_port() -> None:
    """Sets MASTER_ADDR and MASTER_PORT to a free port of this host, for a rank that is alone."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(reserve_port())}
