"""How many collectives a start, a step and a save take: those of docs/plan.md, and the same on any number of ranks."""

import re
from collections import Counter
from pathlib import Path

import pytest

from pipeline.distributed.progress import Phase, count_collectives
from pipeline.training.training_run import Callback, TrainingRun
from tests.pipeline.training.loop_runs import Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.added_callbacks import run_watched

pytestmark = pytest.mark.slow

Counts = dict[tuple[int, Phase], Counter[str]]


class _Counting(Callback):
    """Counts the collectives in each phase of each step by torch's sequence numbers.

    "host" for those of ControlGroup, "device" for others.
    """

    def __init__(self) -> None:
        self.counts: Counts = {}
        self.state, self.before = (0, "start"), Counter(host=0, device=count_collectives())

    def enter(self, run: TrainingRun, phase: Phase, micro_step: int = 0) -> None:
        group = run.control._group
        assert group is not None
        host = group._get_sequence_number_for_group()
        now = Counter(host=host, device=count_collectives() - host)
        self.counts.setdefault(self.state, Counter()).update(now - self.before)
        self.state, self.before = (run.state.step, phase), now


def count(commands: list[list[str]]) -> list[Counts]:
    """The collectives of this rank in each run of pipeline.pretrain."""
    found = []
    for command in commands:
        run_watched(command, counting := _Counting())
        found.append(counting.counts)
    return found


STEPS, SAVED = 8, 4  # steps of a run, and the step after which it saves
FLAGS = tuple(map(str, ("--steps", STEPS, "--save-interval", SAVED, "--eval-interval", STEPS, "--log-interval", STEPS)))
MICRO_BATCHES = {2: 3, 3: 2}
"""Rows of a micro-batch by the number of ranks. A step of 12 rows has two micro-steps on each."""
STAGES = {2: (1, 3), 3: (1,)}  # zeRO stages by the number of ranks


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


def test_the_table_of_the_plan_has_the_counted_collectives(found):
    """On the host their number depends neither on the stage nor on the ranks."""
    page = (Path(__file__).parents[3] / "docs" / "plan.md").read_text(encoding="utf-8")
    told = {row[0]: int(row[1]) for row in re.findall(r"^\| (start|step|update|save) *\| (\d+) ", page, re.M)}
    for (_, stage), counts in found.items():
        assert total(counts, "host", "start") == told["start"]
        assert total(counts, "host", "agreement") == STEPS * told["step"]
        assert total(counts, "host", "save", range(SAVED, STEPS)) == told["save"]
        if stage == 1:
            # The first update has one more: it is compared with a plain one (pipeline/engine/layout_check.py).
            assert total(counts, "device", "optimizer") == STEPS * told["update"] + 1


def test_gradients_of_a_micro_step_take_as_many_sums_on_any_number_of_ranks(found):
    first, second = (total(found[world, 1], "device", "backward") for world in MICRO_BATCHES)
    assert first == second > 0
