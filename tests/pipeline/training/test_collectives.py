"""How many collectives a start, a step and a save take: those of docs/plan.md, and the same on any number of ranks."""

import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch.distributed as dist
from deepspeed import comm
from torch.distributed import distributed_c10d

from pipeline.distributed.progress import Phase, count_collectives
from pipeline.training.training_run import Callback, TrainingRun
from tests.pipeline.training.loop_runs import Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.runs import run_watched

pytestmark = pytest.mark.slow

NAMES = (
    *("all_reduce", "reduce", "broadcast", "all_gather", "gather", "scatter", "barrier", "all_reduce_coalesced"),
    *("all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single"),
)
CAPTURED = ("all_gather_function", "reduce_scatter_function")  # DeepSpeed keeps these functions of torch
Counts = dict[tuple[int, Phase], Counter[str]]


class _Counting(Callback):
    """Counts the collectives in each phase of each step: "host" for those of ControlGroup, "device" for others.

    At the end it compares the counts with the sequence numbers that torch keeps of each group.
    """

    def __init__(self) -> None:
        self.counts: Counts = {}
        self.state, self.before = (0, "start"), count_collectives()

    def wrap(self, function: Any) -> Any:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.counts.setdefault(self.state, Counter())["host" if _by_control_group() else "device"] += 1
            return function(*arguments, **named)

        return counted

    def enter(self, run: TrainingRun, phase: Phase, micro_step: int = 0) -> None:
        self.state = (run.state.step, phase)

    def on_end(self) -> None:
        self.counted = sum(sum(counts.values()) for counts in self.counts.values())
        self.numbered = count_collectives() - self.before


def _by_control_group() -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        if Path(frame.f_code.co_filename).match("pipeline/distributed/control.py"):
            return True
        frame = frame.f_back
    return False


def count(commands: list[list[str]]) -> list[tuple[Counts, int, int]]:
    """The collectives of this rank in each run of pipeline.pretrain, their number, and that by torch."""
    return [_count(command) for command in commands]


def _count(command: list[str]) -> tuple[Counts, int, int]:
    counting = _Counting()
    with ExitStack() as stack:
        for name in NAMES:
            wrapped = counting.wrap(getattr(dist, name))
            for module in (dist, distributed_c10d):
                stack.enter_context(mock.patch.object(module, name, wrapped))
        for name in CAPTURED:
            wrapped = counting.wrap(getattr(comm.comm.cdb, name))
            stack.enter_context(mock.patch.object(comm.comm.cdb, name, wrapped))
        run_watched(command, counting)
    return counting.counts, counting.counted, counting.numbered


STEPS, SAVED = 8, 4  # steps of a run, and the step after which it saves
FLAGS = tuple(map(str, ("--steps", STEPS, "--save-interval", SAVED, "--eval-interval", STEPS, "--log-interval", STEPS)))
MICRO_BATCHES = {2: 3, 3: 2}
"""Rows of a micro-batch by the number of ranks. A step of 12 rows has two micro-steps on each."""
STAGES = {2: (1, 3), 3: (1,)}  # zeRO stages by the number of ranks
Found = dict[tuple[int, int], tuple[Counts, int, int]]


@pytest.fixture(scope="module")
def found(corpus, tmp_path_factory):
    """What `count` gives, by (number of ranks, ZeRO stage)."""
    folder = tmp_path_factory.mktemp("collectives")
    result = {}
    for world, rows in MICRO_BATCHES.items():
        runs = [Run(f"{stage} on {world}", world, rows, stage, flags=FLAGS) for stage in STAGES[world]]
        commands = [run.command(corpus, folder) for run in runs]
        counted = processes.run(world, count, commands, scratch=folder)
        result |= {(world, stage): one for stage, one in zip(STAGES[world], counted)}
    return result


def total(counts: Counts, kind: str, phase: Phase, steps: range = range(STEPS + 1)) -> int:
    """The collectives of a kind in a phase, after so many steps."""
    return sum(one[kind] for (step, at), one in counts.items() if at == phase and step in steps)


def test_the_counter_agrees_with_torch_and_gradients_take_as_many_sums_on_any_number_of_ranks(found):
    for _, counted, numbered in found.values():
        assert counted == numbered > 0
    first, second = (total(found[world, 1][0], "device", "backward") for world in MICRO_BATCHES)
    assert first == second > 0


def test_there_are_no_more_collectives_than_these(found):
    """On the host their number depends neither on the stage nor on the ranks."""
    told = {"start": 16, "step": 1, "update": 5, "save": 12}
    for (_, stage), (counts, *_) in found.items():
        assert total(counts, "host", "start") == told["start"]
        assert total(counts, "host", "agreement") == STEPS * told["step"]
        assert total(counts, "host", "save", range(SAVED, STEPS)) == told["save"]
        if stage == 1:
            # The first update has one more: it is compared with a plain one (pipeline/engine/zero_layout.py).
            assert total(counts, "device", "optimizer") == STEPS * told["update"] + 1
