"""Counts the open files of rank 0."""

import os

from pipeline.distributed.control import ControlGroup
from pipeline.distributed.liveness import Liveness
from pipeline.distributed.rendezvous import Rendezvous


def count_open_files() -> int:
    """The descriptors of this rank, connected as in training: rendezvous, liveness, two gloo groups."""
    rendezvous = Rendezvous()
    rendezvous.agree(lambda: 0, lambda _: {})
    with Liveness(rendezvous, seconds=60.0):
        control = ControlGroup()
        control.sum([1.0])
        count = len(os.listdir("/proc/self/fd"))
        control.barrier()
    return count
