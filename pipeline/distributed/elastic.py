"""torchrun's elastic agent: what its environment says, and how a rank ends it.

The agent of each host starts the host's ranks again when one of them ends with a status other than 0, or when a host
joins. The ranks of all hosts then meet on a new port, as after any other start. A rank that has found a mistake, or
whose training has failed for good, ends its agent first: starting again would only repeat that.
"""

import os
import signal
from collections.abc import Mapping
from typing import Any

from common.environment import whole_number
from common.errors import UserError

OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
"""The variable with which the ranks of each start have a store of their own."""
LOCK_SECONDS = 600.0
"""How long a start waits for the lock of the start before it: a file server may keep the lock of a lost host."""


def max_restarts() -> int:
    """How often the agent may start the ranks again; 0 without an agent."""
    return whole_number("TORCHELASTIC_MAX_RESTARTS", default=0)


def shares_store() -> bool:
    """Whether the agent of the first host serves the store on MASTER_PORT, and not rank 0."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def check() -> None:
    """Raises UserError if the agent may start the ranks again, but with the store of an earlier start.

    torch 2.13 makes the agent's store once and keeps it. There the ranks would find addresses of processes that have
    ended. A host would even look for it on a first host that is lost.
    """
    if max_restarts() and shares_store():
        raise UserError(
            f"torchrun would start the ranks again with the store of an earlier start; export {OWN_STORE}=1 on all "
            "hosts and use --rdzv-backend c10d, or leave out --max-restarts"
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
