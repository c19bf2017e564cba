"""How an evaluation is left early, and what a run that left one does later."""

import json
import os
import signal
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from benchmarks.shared.outcome import differences
from pipeline.data import collate
from pipeline.distributed.exits import StopSignals
from pipeline.run import start
from pipeline.training.agreement import EvaluationPace
from pipeline.training.callback import EvaluationLeft
from pipeline.training.training_run import TrainState
from tests.pipeline.training.test_loop import Run
from tests.pipeline.workers import processes, runs


def signals(received: int | None = None) -> StopSignals:
    made = StopSignals.__new__(StopSignals)  # without handlers
    made.received = received
    return made


class OtherRank:
    """The control of rank 0 of two; the other rank receives a signal before the agreement of number `stopped`."""

    rank, world_size = 0, 2

    def __init__(self, stopped: int | None = None) -> None:
        self.agreements, self._stopped = 0, stopped

    def sum(self, values: list[float]) -> list[float]:
        self.agreements += 1
        stops = self._stopped is not None and self.agreements >= self._stopped
        return [values[0], values[1], values[2] + stops]


def test_the_ranks_agree_before_every_eighth_batch() -> None:
    control = OtherRank()
    assert list(EvaluationPace(control, signals())(range(17), 17)) == list(range(17))  # type: ignore[arg-type]
    assert control.agreements == 3


def test_a_signal_on_any_rank_ends_it_on_all() -> None:
    batches = iter(range(100))
    with pytest.raises(EvaluationLeft) as left:
        list(EvaluationPace(OtherRank(stopped=2), signals())(batches, 100))  # type: ignore[arg-type]
    assert left.value.stop_signal == signal.SIGUSR1
    assert 1 < next(batches) < 100
    with pytest.raises(EvaluationLeft):
        list(EvaluationPace(OtherRank(), signals(signal.SIGINT))(range(100), 100))  # type: ignore[arg-type]


@pytest.mark.parametrize(("steps", "hours", "due"), [(10, None, "last"), (20, None, "earlier"), (20, 1.0, "last")])
def test_the_last_evaluation_that_was_left_is_not_the_last_one_of_a_longer_run(
    steps: int, hours: float | None, due: str
) -> None:
    left = asdict(TrainState(step=10, evaluation_due="last"))
    settings: Any = SimpleNamespace(
        flags=SimpleNamespace(output=Path("run"), max_hours=hours), steps=steps, patience=None
    )
    assert start._state_of(left, settings).evaluation_due == due
    assert start._state_of(asdict(TrainState(step=10)), settings).evaluation_due is None


def train(commands: list[list[str]]) -> list[runs.Ended]:
    """Runs the command lines. Rank 1 gets a signal in the first evaluation of the first one."""
    evaluation, passes = collate.evaluation, []

    def stopping(collator: Any, rank: int, *arguments: Any) -> Any:
        passes.append(rank)
        for batch in evaluation(collator, rank, *arguments):
            yield batch
            if len(passes) == 3 and rank == 1:  # two passes before the first step
                os.kill(os.getpid(), signal.SIGUSR1)

    with mock.patch.object(collate, "evaluation", stopping):
        return [runs.run_one(command) for command in commands]


@pytest.mark.slow
def test_an_evaluation_that_was_left_is_made_on_resuming(corpus: Any, tmp_path: Any) -> None:
    flags = ("--eval-interval", "4", "--save-interval", "5")
    undisturbed, left = (Run(name, 2, 6, flags=flags) for name in ("undisturbed", "left"))
    commands = [run.command(corpus, tmp_path) for run in (left, left, undisturbed)]
    stopped, resumed, whole = processes.run(2, train, commands, scratch=tmp_path)
    assert (whole.status, stopped.status, resumed.status) == (0, 75, 0)
    step = 4
    assert f"stopped by SIGUSR1 and saved at step {step}" in stopped.stdout
    assert f"step {step}: held out" not in stopped.stdout
    assert f"step {step}: held out" in resumed.stdout
    assert differences(tmp_path / "left", tmp_path / "undisturbed") == []
    records = map(json.loads, (tmp_path / "left" / "metrics.jsonl").read_text().splitlines())
    steps = [record["step"] for record in records if record["split"] == "eval"]
    assert steps == [4, 8, 10]
