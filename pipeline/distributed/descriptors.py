"""Open files of rank 0, which holds several connections to each other rank."""

import resource

from common.errors import UserError
from common.progress import quantity

PER_RANK = 8
"""Descriptors that rank 0 holds for each other rank: the rendezvous, the liveness, and gloo's groups."""
OWN = 256
"""Descriptors of a rank for itself: shards, libraries, logs, devices."""


def needed(world_size: int) -> int:
    """The descriptors that rank 0 of a job needs."""
    return OWN + PER_RANK * world_size


def is_enough(limit: int, world_size: int) -> bool:
    """Whether a limit of open files, -1 for none, is enough for rank 0."""
    return limit == resource.RLIM_INFINITY or limit >= needed(world_size)


def raise_limit(world_size: int) -> None:
    """Raises this process's soft limit of open files to what rank 0 needs, as far as the hard limit allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if is_enough(soft, world_size):
        return
    wanted = needed(world_size) if is_enough(hard, world_size) else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def check_limit(world_size: int) -> None:
    """Raises UserError if this process may not open as many files as rank 0 needs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if not is_enough(hard, world_size):
        raise UserError(f"{shortage(hard, world_size)}; raise the hard limit of open files (`ulimit -Hn`)")


def shortage(hard: int, world_size: int) -> str:
    """Says how many files rank 0 needs to open and how many it may."""
    ranks = quantity(world_size, "rank")
    return f"rank 0 needs {needed(world_size):,} open files for {ranks}, and its host allows {hard:,}"
