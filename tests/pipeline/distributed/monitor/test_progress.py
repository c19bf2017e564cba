"""What a rank writes down for its watcher, and how long it may be silent."""

import math
import mmap

import pytest
import torch
import torch.distributed as dist

from pipeline.distributed.monitor import progress
from pipeline.distributed.monitor.progress import LONG_SECONDS, Progress


@pytest.fixture
def own() -> Progress:
    made = Progress()
    made.hang_timeout = 60.0
    made.start_run()
    return made


def seen(own: Progress) -> progress.Record:
    """The record as another process reads it."""
    with mmap.mmap(own.descriptor, 0) as memory:
        record = progress.read(memory)
    assert record is not None
    return record


def test_another_process_reads_phase_step_and_collectives(own: Progress) -> None:
    own.step = 7
    own.enter("forward", 3)
    first = seen(own)
    assert first[1:5] == ("forward", 7, 3, 0)
    own.beat()
    assert seen(own)[1:] == first[1:]
    assert seen(own).number == first.number + 1


def test_the_collectives_of_all_groups_are_counted(own: Progress) -> None:
    own.count_collectives()
    assert seen(own).collectives == 0
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        other = dist.new_group(backend="gloo")
        before = seen(own)
        dist.all_reduce(torch.ones(2))
        dist.barrier(group=other)
        dist.all_reduce(torch.ones(2), group=other)
        own.count_collectives()
        assert seen(own) == before._replace(collectives=3)
    finally:
        dist.destroy_process_group()


def test_a_phase_inside_of_another_one_ends(own: Progress) -> None:
    own.enter("backward", 2)
    with own.during("compilation"):
        assert seen(own)[1:4] == ("compilation", 0, 0)
    assert seen(own)[1:4] == ("backward", 0, 2)


def test_the_limit_follows_the_median_step(own: Progress) -> None:
    assert seen(own).limit == math.inf  # what comes before training is not watched
    own.enter("data")
    assert seen(own).limit == LONG_SECONDS
    own.took_step(500.0)  # the first step compiles
    own.enter("data")
    assert seen(own).limit == LONG_SECONDS
    for seconds in (1.0, 2.0, 400.0):
        own.took_step(seconds)
    own.enter("data")
    assert seen(own).limit == 60.0
    for _ in range(4):
        own.took_step(9.0)
    own.enter("data")
    assert seen(own).limit == 90.0


def test_the_limit_of_a_save_follows_the_longest_one(own: Progress) -> None:
    for _ in range(2):
        own.took_step(1.0)
    own.took_save(27.0)  # the estimate before the first one
    own.enter("save")
    assert seen(own).limit == 270.0
    own.enter("evaluation")
    assert seen(own).limit == 60.0
    for phase in ("scoring", "compilation", "end"):
        own.enter(phase)  # type: ignore[arg-type]
        assert seen(own).limit == LONG_SECONDS


def test_a_new_run_of_the_process_learns_its_own_steps(own: Progress) -> None:
    for _ in range(2):
        own.took_step(50.0)
    own.took_save(100.0)
    own.start_run()
    own.enter("data")
    assert seen(own).limit == LONG_SECONDS
    for _ in range(2):
        own.took_step(1.0)
    own.enter("save")
    assert seen(own).limit == 60.0


def test_a_compilation_is_a_phase() -> None:
    own, phases = progress.get_progress(), []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        phases.append(own.phase)
        return graph.forward

    own.enter("forward", 1)
    with progress.compilations_recorded():
        torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert phases == ["compilation"]
    assert own.phase == "forward"
    own.start_run()
