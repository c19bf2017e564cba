"""This process as a rank: its number and the place to meet, as the launcher says."""

import os

from common.environment import launched_rank, launched_size
from pipeline.distributed import launcher
from pipeline.distributed.rendezvous import LOOPBACK, reserve_port


def find_rank() -> None:
    """Sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT unless a launcher has set them.

    `deepspeed --launcher openmpi` does not set them. The ranks then find each other through MPI, and meet on port 29500
    of rank 0's host. A process without a launcher is the only rank. Raises UserError: see `launcher.check_agent`.
    """
    if "RANK" not in os.environ and launched_size() > 1:
        launched_rank()
        from deepspeed.comm import mpi_discovery

        mpi_discovery(verbose=False)
    elif "RANK" not in os.environ:
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    launcher.check_agent()
    if os.environ.get("WORLD_SIZE") == "1" and not launcher.agent_serves_store():
        # A rank alone meets nobody, so the launcher's port may be taken by another run.
        os.environ |= {"MASTER_ADDR": LOOPBACK[0], "MASTER_PORT": str(reserve_port())}
