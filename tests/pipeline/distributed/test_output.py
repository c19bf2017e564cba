"""A rank that cannot say why it ends must end all the same."""

import os

import pytest

from pipeline.distributed import output
from pipeline.distributed.liveness import ExitNotice, Liveness
from tests.pipeline.workers.forked import Forked


class Met:
    """Stands in for the rendezvous of ranks that have met."""

    rank, world_size, hosts = 0, 2, ("node1", "node2")


def unread():
    """The end of a pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize("make", [unread, lambda: os.open("/dev/full", os.O_WRONLY)], ids=["no reader", "full disk"])
def test_what_cannot_be_written_raises_nothing(make):
    descriptor = make()
    try:
        output.write(descriptor, "a line\n")
    finally:
        os.close(descriptor)


def end_unread():
    os.dup2(unread(), 2)
    os.environ["LOCAL_RANK"] = "0"
    Liveness(Met(), 3.0)._end(ExitNotice(69, "lost rank 1", 0.0))


def test_a_lost_rank_ends_the_others_also_if_nobody_reads_their_output(tmp_path):
    assert Forked(tmp_path / "process", end_unread).status() == 69
