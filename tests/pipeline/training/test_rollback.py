"""Runs that meet a spike and go back: also killed in the middle, and on other ranks.

All predicted tokens of four batches have the same wrong label. The run that goes back must end as a run does whose
record lists the batches that were passed over from the beginning.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.shared.outcome import differences
from pipeline.checkpoint import retention
from pipeline.training import rollback
from pipeline.training.rollback import MARGIN
from tests.pipeline.training.test_loop import MEANS, Run, records
from tests.pipeline.workers import processes, spiked_runs
from tests.pipeline.workers.runs import Ended

pytestmark = pytest.mark.slow

STEPS, BEFORE = 42, 20
"""The last step, and the newest checkpoint that the spike leaves."""
SPOILT = range(32, 36)
FIRST = SPOILT.start - MARGIN
FLAGS = ("--steps", str(STEPS), "--log-interval", "5", "--save-interval", "10", "--eval-interval", "20")
FLAGS += ("--on-divergence", "rollback", "--max-rollbacks", "1")

BACK = Run("back", 1, 12, flags=FLAGS)
LISTED = Run("listed", 1, 12, flags=FLAGS)
KILLED = Run("killed", 1, 12, flags=FLAGS)
TWO = Run("2 ranks at stage 3", 2, 3, stage=3, flags=FLAGS)


@dataclass(frozen=True)
class Outcome:
    """The directory of all runs, and how each of them ended, by name."""

    folder: Path
    ends: dict[str, Ended]

    def run(self, run: Run) -> Path:
        return self.folder / run.directory


@pytest.fixture(scope="module")
def outcome(corpus: Any, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("spikes")
    killed, listed = KILLED.command(corpus, folder), LISTED.command(corpus, folder)
    with pytest.raises(Exception, match="SIGKILL"):
        processes.run(1, spiked_runs.train, [(killed, None)], SPOILT, True, scratch=folder)
    assert not (folder / KILLED.name / rollback.ROLLBACKS).exists()
    newest = retention.find_latest(folder / KILLED.name / "checkpoints")
    assert newest is not None
    assert retention.step_of(newest) == BEFORE
    shutil.copytree(folder / KILLED.name, folder / TWO.name)
    (two,) = processes.run(2, spiked_runs.train, [(TWO.command(corpus, folder), None)], SPOILT, scratch=folder)
    starts = [(BACK.command(corpus, folder), None), (killed, None), (listed, 10)]
    places = folder / BACK.name, folder / LISTED.name
    ends = processes.run(1, spiked_runs.train_and_list, starts, listed, places, SPOILT, scratch=folder)
    names = (BACK.name, KILLED.name, "listed, stopped", LISTED.name)
    return Outcome(folder, {TWO.name: two} | dict(zip(names, ends, strict=True)))


def test_a_run_goes_back_once_and_says_so(outcome: Outcome) -> None:
    end, run = outcome.ends[BACK.name], outcome.run(BACK)
    assert end.status == 0, end.stderr
    (made,) = rollback.read(run)
    assert (made.first_step, made.passed_over[0]) == (SPOILT.start + 1, FIRST)
    assert made.last_step <= SPOILT.stop
    assert made.passed_over[1] == made.last_step
    (line,) = [line for line in end.stdout.splitlines() if line.startswith("rollback")]
    assert line.startswith("rollback 1 of 1: the loss has risen from ")
    assert line.endswith(f"back to step {BEFORE}, skipping batches {FIRST} to {made.last_step - 1}")
    length = made.last_step - FIRST
    training = records(outcome.folder, BACK, "train")
    assert [record["step"] for record in training] == [*range(5, STEPS, 5), STEPS], "each step is there once"
    for record in training:
        assert record.get("batches_passed_over") == (length if record["step"] > FIRST else None)
    rows = 12 * (STEPS + length)
    assert training[-1]["epochs"] == pytest.approx(training[0]["epochs"] / (5 * 12) * rows)


def test_it_ends_as_if_these_batches_had_been_passed_over_from_the_beginning(outcome: Outcome) -> None:
    assert outcome.ends["listed, stopped"].status == 75
    end = outcome.ends[LISTED.name]
    assert end.status == 0, end.stderr
    assert "rollback" not in end.stdout
    assert differences(outcome.run(LISTED), outcome.run(BACK)) == []


def test_a_kill_in_the_middle_of_a_rollback_changes_nothing(outcome: Outcome) -> None:
    end = outcome.ends[KILLED.name]
    assert end.status == 0, end.stderr
    assert "rollback 1 of 1" in end.stdout
    assert differences(outcome.run(KILLED), outcome.run(BACK)) == []
    record, wanted = ((outcome.run(one) / rollback.ROLLBACKS).read_bytes() for one in (KILLED, BACK))
    assert record == wanted


def test_other_ranks_and_stages_go_back_alike(outcome: Outcome) -> None:
    """Two ranks at ZeRO stage 3 go on from a checkpoint of one rank, and go back to it."""
    two = outcome.ends[TWO.name]
    assert two.status == 0, two.stderr
    assert f"resuming from step {BEFORE}" in two.stdout
    assert "rollback 1 of 1" in two.stdout
    (made,), (wanted,) = rollback.read(outcome.run(TWO)), rollback.read(outcome.run(BACK))
    assert made.passed_over == wanted.passed_over
    for split in ("train", "eval"):
        expected = records(outcome.folder, BACK, split)
        for found, record in zip(records(outcome.folder, TWO, split), expected, strict=True):
            for name in ("step", "epochs"):
                assert found.get(name) == record.get(name), (split, record["step"], name)
            for name in set(MEANS) & set(record):
                assert found[name] == pytest.approx(record[name], rel=1e-5), (split, record["step"], name)
