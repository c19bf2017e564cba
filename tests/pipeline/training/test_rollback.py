"""Runs that meet a spike and go back: killed in the middle, on other ranks, and too often.

All predicted tokens of four batches have the same wrong label. The run that goes back must end as a run does whose
record lists the batches that were passed over from the beginning.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.shared.outcome import differences
from pipeline.analysis.compared_runs import summarise
from pipeline.checkpoint import retention
from pipeline.training import rollback
from pipeline.training.rollback import MARGIN
from tests.pipeline.training.test_loop import MEANS, Run, records
from tests.pipeline.workers import processes, spiked_runs
from tests.pipeline.workers.runs import Ended

pytestmark = pytest.mark.slow

SPOILT = range(66, 70)
FIRST = SPOILT.start - MARGIN
FLAGS = ("--steps", "84", "--log-interval", "5", "--save-interval", "10", "--eval-interval", "40")
FLAGS += ("--on-divergence", "rollback", "--max-rollbacks", "1")
KILLS: tuple[spiked_runs.Kill, ...] = ("before the record", "after the record")

BACK = Run("back", 1, 12, flags=FLAGS)
LISTED = Run("listed", 1, 12, flags=FLAGS)
KILLED = {kill: Run(kill, 1, 12, flags=FLAGS) for kill in KILLS}
TWO = Run("2 ranks at stage 3", 2, 3, stage=3, flags=FLAGS)
THEN_ONE = Run("then 1", 1, 12, flags=FLAGS, goes_on=TWO)
LOST = Run("lost", 1, 12, flags=FLAGS)
HIGH_RATE = Run("high rate", 1, 12, flags=FLAGS)


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
    killed = [
        processes.start(
            1, spiked_runs.train, [(run.command(corpus, folder), None)], SPOILT, kill, result=folder / f"{kill}.pt"
        )
        for kill, run in KILLED.items()
    ]
    for context in killed:
        with pytest.raises(Exception, match="SIGKILL"):
            context.join()
    for kill, run in KILLED.items():
        assert (folder / run.directory / rollback.ROLLBACKS).exists() == (kill == "after the record")
        newest = retention.find_latest(folder / run.directory / "checkpoints")
        assert newest is not None
        assert retention.step_of(newest) == 50
    shutil.copytree(folder / KILLED["before the record"].directory, folder / TWO.directory)
    (two,) = processes.run(2, spiked_runs.train, [(TWO.command(corpus, folder), 80)], SPOILT, scratch=folder)
    begun = [BACK, *KILLED.values(), THEN_ONE]
    starts = [(run.command(corpus, folder), None) for run in begun] + [(LISTED.command(corpus, folder), 10)]
    others = [run.command(corpus, folder) for run in (LISTED, LOST, HIGH_RATE)]
    places = [folder / run.directory for run in (BACK, LISTED, LOST)]
    ends = processes.run(1, spiked_runs.train_and_list, starts, others, places, SPOILT, scratch=folder)
    names = [*(run.name for run in begun), "listed, stopped", LISTED.name, LOST.name, HIGH_RATE.name]
    names += ["replay", "replay of lost"]
    return Outcome(folder, {"2 ranks": two} | dict(zip(names, ends, strict=True)))


def test_a_run_goes_back_once_and_says_so(outcome: Outcome) -> None:
    end, run = outcome.ends[BACK.name], outcome.run(BACK)
    assert end.status == 0, end.stderr
    (made,) = rollback.read(run)
    assert (made.first_step, made.passed_over[0]) == (SPOILT.start + 1, FIRST)
    assert made.last_step <= SPOILT.stop
    assert made.passed_over[1] == made.last_step
    assert made.loss is not None
    assert made.loss > 1.5 * made.usual_loss
    (line,) = [line for line in end.stdout.splitlines() if line.startswith("rollback")]
    assert line.startswith("rollback 1 of 1: the loss has risen from ")
    assert line.endswith(f"back to step 50, skipping batches {FIRST} to {made.last_step - 1}")
    length = made.last_step - FIRST
    training = records(outcome.folder, BACK, "train")
    assert [record["step"] for record in training] == [*range(5, 84, 5), 84], "each step is there once"
    for record in training:
        assert record.get("batches_passed_over") == (length if record["step"] > FIRST else None)
    rows = 12 * (84 + length)
    assert training[-1]["epochs"] == pytest.approx(training[0]["epochs"] / (5 * 12) * rows)
    assert f"1 rollback, {length} batches skipped" in summarise(run, run)


def test_it_ends_as_if_these_batches_had_been_passed_over_from_the_beginning(outcome: Outcome) -> None:
    assert outcome.ends["listed, stopped"].status == 75
    end = outcome.ends[LISTED.name]
    assert end.status == 0, end.stderr
    assert "rollback" not in end.stdout
    assert differences(outcome.run(LISTED), outcome.run(BACK)) == []


@pytest.mark.parametrize("kill", KILLS)
def test_a_kill_in_the_middle_of_a_rollback_changes_nothing(outcome: Outcome, kill: spiked_runs.Kill) -> None:
    run = KILLED[kill]
    end = outcome.ends[run.name]
    assert end.status == 0, end.stderr
    assert ("rollback 1 of 1" in end.stdout) == (kill == "before the record")
    assert differences(outcome.run(run), outcome.run(BACK)) == []
    told = [line for line in end.stdout.splitlines() if line.startswith("trackers have")]
    assert told == ["trackers have []"] * (1 if kill == "after the record" else 2)  # so they get the new steps
    record, wanted = ((outcome.run(one) / rollback.ROLLBACKS).read_bytes() for one in (run, BACK))
    assert record == wanted


def test_other_ranks_and_stages_go_back_alike(outcome: Outcome) -> None:
    """Two ranks at ZeRO stage 3 go on from a checkpoint of one rank, and go back to it; one rank at stage 1 goes on."""
    two, one = outcome.ends["2 ranks"], outcome.ends[THEN_ONE.name]
    assert (two.status, one.status) == (75, 0), two.stderr + one.stderr
    assert "resuming from step 50" in two.stdout
    assert "rollback 1 of 1" in two.stdout
    assert "rollback" not in one.stdout
    (made,), (wanted,) = rollback.read(outcome.run(TWO)), rollback.read(outcome.run(BACK))
    assert made.passed_over == wanted.passed_over
    for split in ("train", "eval"):
        expected = records(outcome.folder, BACK, split)
        for found, record in zip(records(outcome.folder, TWO, split), expected, strict=True):
            for name in ("step", "epochs", "batch_checksum"):
                assert found.get(name) == record.get(name), (split, record["step"], name)
            # From one checkpoint, so that rounding has 34 steps to grow, and not 84.
            for name in set(MEANS) & set(record):
                assert found[name] == pytest.approx(record[name], rel=1e-5), (split, record["step"], name)


def test_a_spike_that_the_data_do_not_explain_ends_the_run(outcome: Outcome) -> None:
    """The learning rate is far too high from step 66 on. The second spike is one too many."""
    end = outcome.ends[HIGH_RATE.name]
    assert end.status == 1
    assert "rollback 1 of 1" in end.stdout
    assert end.stderr.startswith("error: the loss has risen from ")
    assert "the run has made 1 rollback (--max-rollbacks); lower the learning rate" in end.stderr
    assert len(rollback.read(outcome.run(HIGH_RATE))) == 1


def test_a_lost_record_is_noticed(outcome: Outcome) -> None:
    end = outcome.ends[LOST.name]
    assert end.status == 2
    assert "the checkpoint of step 84 was made after 1 rollback" in end.stderr


def test_a_replay_passes_over_the_same_batches_and_notices_a_lost_record(outcome: Outcome) -> None:
    replayed, lost = outcome.ends["replay"], outcome.ends["replay of lost"]
    assert replayed.status == 0, replayed.stderr
    assert "from step-00000060" in replayed.stdout
    assert "step 65 is as recorded" in replayed.stdout
    assert lost.status == 2
    assert "the checkpoint of step 60 was made after 1 rollback" in lost.stderr
