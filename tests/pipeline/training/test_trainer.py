"""What a trainer does between steps, with an engine that does not compute."""

import contextlib
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from pipeline.distributed.exits import StopSignals
from pipeline.training.agreement import Agreement, Agreements
from pipeline.training.callback import Callback, Phase, TrainingFailed
from pipeline.training.state import Clock, TrainingRun, TrainState
from pipeline.training.trainer import Trainer
from pipeline.training.training_task import Evaluation

TERM = int(signal.SIGTERM)


class LabelCounts(NamedTuple):
    words: float
    pairs: float


class OtherRanks:
    """The control of a rank, which adds what the other ranks say."""

    def __init__(self, rank: int = 0, others: list[float] | None = None) -> None:
        self.rank, self.world_size, self._others = rank, 2 if others else 1, others

    def sum(self, values: list[float]) -> list[float]:
        return [float(value) for value in values]

    def begin_sum(self, values: list[float]) -> Callable[[], list[float]]:
        others = self._others or [0.0] * len(values)
        total = [mine + other for mine, other in zip(values, others, strict=True)]
        return lambda: total


def stop_signals(received: int | None = None) -> StopSignals:
    signals = StopSignals.__new__(StopSignals)  # without handlers
    signals.received = received
    return signals


class Voter(Callback):
    """Votes with fixed numbers and keeps the sums."""

    def __init__(self, *votes: float) -> None:
        self._votes = votes

    def on_vote(self, step: int) -> list[float]:
        return [step * vote for vote in self._votes]

    def on_agreement(self, sums: list[float]) -> None:
        self.sums = sums


@pytest.mark.parametrize(
    ("received", "others", "stop_signal"),
    [
        # stops (SIGTERM, SIGINT, SIGUSR1), words, pairs, the vote of the first callback, those of the second
        (None, [0, 0, 0, 4, 1, 0.5, 1, 0], None),
        (None, [0, 0, 1, 4, 1, 0.5, 1, 0], signal.SIGUSR1),
        (TERM, [0, 0, 1, 4, 1, 0.5, 1, 0], TERM),
    ],
)
def test_ranks_agree_on_signals_labels_and_votes(
    received: int | None, others: list[float], stop_signal: int | None
) -> None:
    callbacks = Voter(0.1), Voter(0, 1)
    agreements = Agreements(OtherRanks(0, others), stop_signals(received), callbacks)  # type: ignore[arg-type]
    agreements.start(2, LabelCounts(3.0, 1.0))
    assert agreements.finish() == Agreement(stop_signal, LabelCounts(7.0, 2.0))
    assert [callback.sums for callback in callbacks] == [[0.7], [1.0, 2.0]]


class Recorder(Callback):
    """Writes down each moment."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.moments: list[str] = []
        self.reasons: list[str] = []

    def on_start(self) -> None:
        self.moments.append("start")

    def on_phase(self, phase: Phase, micro_step: int = 0) -> None:
        self.phases.append(phase)

    def on_step(self, seconds: float) -> None:
        self.moments.append("step")

    def on_log(self, record: dict[str, Any]) -> None:
        self.moments.append(f"log {record['learning_rate']}")

    def on_trial(self, evaluation: Evaluation | None, fraction: float) -> None:
        self.moments.append(f"tried {fraction}")

    def on_evaluation(self, evaluation: Evaluation, seconds: float) -> None:
        self.moments.append(f"evaluated {evaluation.score}")

    def on_save(self) -> str:
        return self.reasons.pop(0) if self.reasons else ""

    def on_end(self) -> None:
        self.moments.append("end")


class MadeSaves(contextlib.nullcontext[None]):
    """Saves that only write down the steps."""

    def __init__(self, run: TrainingRun) -> None:
        super().__init__()
        self._run, self.made, self.saved_step = run, list[tuple[int, bool]](), run.state.step or None

    def save(self, required: bool) -> None:
        self.made.append((self._run.state.step, required))
        self.saved_step = self._run.state.step

    def finish(self) -> None:
        pass


class Engine(SimpleNamespace):
    """Computes nothing. `step` may raise."""

    def __call__(self, **inputs: Any) -> Any:
        return torch.zeros(())


def make_trainer(
    step: int = 0, steps: int = 7, received: int | None = None, evaluates: bool = True, **settings: Any
) -> tuple[Trainer, Recorder, MadeSaves]:
    """A trainer of two micro-steps a step, whose data ends with the run."""
    engine_settings = SimpleNamespace(world_size=1, accumulation_steps=2, train_batch_size=8)
    defaults = {"eval_interval": 7, "save_interval": 6, "log_interval": 100, "skipped_batches": ()}
    given: Any = SimpleNamespace(
        **(defaults | settings),
        steps=steps,
        schedule=lambda: lambda number: number / 10,
        engine=engine_settings,
        flags=SimpleNamespace(output=Path(), seed=0),
    )
    engine: Any = Engine(
        device="cpu",
        backward=lambda loss: None,
        step=lambda: None,
        train=lambda: None,
        optimizer=SimpleNamespace(param_groups=[{}]),
    )
    run = TrainingRun(given, OtherRanks(), engine, TrainState(step=step), clock=Clock())  # type: ignore[arg-type]
    task: Any = SimpleNamespace(
        evaluates=evaluates,
        steps=lambda numbers: ([["a"], ["b"]] for _ in numbers),
        label_counts=lambda micro_batches: LabelCounts(3.0, 1.0),
        loss=lambda output, counts, number: output,
        try_evaluation=lambda engine: (None, 0.25),
        evaluate=lambda engine, pace: Evaluation({"loss": 1.0}, 0.5, "loss"),
    )
    recorder, saves = Recorder(), MadeSaves(run)
    callbacks: list[Callback] = [recorder]
    agreements = Agreements(run.control, stop_signals(received), callbacks)
    return Trainer(run, task, agreements, callbacks, saves), recorder, saves  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def no_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.training.trainer.to_device", lambda *_: {})


def test_the_moments_and_phases_of_a_run() -> None:
    """Steps 5 to 7: a save follows step 6, an evaluation and the last save step 7.

    The agreement on step 6 is begun within step 5, and the one on step 7 after the save.
    """
    trainer, recorder, saves = make_trainer(step=4)
    assert trainer.train() is None
    begins, computes = ["data", "agreement"], ["forward", "backward", "optimizer"]
    assert recorder.phases == [
        "evaluation",
        *begins, "agreement", *computes, "forward", "backward", *begins, "optimizer",
        "agreement", *computes, *computes, "save",
        *begins, "agreement", *computes, *computes, "logging", "evaluation", "save",
    ]  # fmt: skip
    assert recorder.moments == ["start", "tried 0.25", "step", "step", "step", "log 0.6", "evaluated 0.5", "end"]
    assert saves.made == [(6, False), (7, True)]
    assert trainer.run.state.finished


def test_a_callback_can_end_the_run_and_move_the_schedule() -> None:
    """As a deadline does, at the beginning of step 3."""
    trainer, recorder, saves = make_trainer(evaluates=False)

    class Limit(Callback):
        def on_agreement(self, sums: list[float]) -> None:
            if trainer.run.state.step == 2:
                trainer.run.ends, trainer.run.schedule_progress = True, 0.8

    trainer.callbacks.append(Limit())
    assert trainer.train() is None
    assert (trainer.run.state.step, trainer.run.state.finished, saves.made) == (3, True, [(3, True)])
    assert "log 0.5" in recorder.moments  # 0.8 of 7 steps is step 5


def test_a_callback_can_end_the_run_after_an_evaluation() -> None:
    """As a lack of patience does."""
    trainer, recorder, saves = make_trainer(eval_interval=2)

    def lose_patience(evaluation: Evaluation, seconds: float) -> None:
        trainer.run.ends = trainer.run.state.step == 4

    recorder.on_evaluation = lose_patience  # type: ignore[method-assign]
    assert trainer.train() is None
    assert (trainer.run.state.step, saves.made) == (4, [(4, True)])


def test_an_evaluation_that_was_left_is_not_due_without_held_out_data() -> None:
    """The run was resumed without --eval-data."""
    trainer, _, saves = make_trainer(step=10, steps=10, evaluates=False)
    trainer.run.state.evaluation_due = "last"
    assert trainer.train() is None
    assert (trainer.run.state.finished, trainer.run.state.evaluation_due, saves.made) == (True, None, [(10, True)])


def test_a_stop_signal_waits_for_a_loss_that_can_be_saved() -> None:
    """The loss of step 4 was not finite, and that of step 5 is."""
    trainer, recorder, saves = make_trainer(step=4, received=TERM, evaluates=False)
    saves.saved_step = 2
    recorder.reasons = ["the loss is infinite or no number"]
    assert trainer.train() == TERM
    assert saves.made == [(5, True)]


def test_a_stop_does_not_save_the_same_step_again() -> None:
    trainer, _, saves = make_trainer(step=4, received=TERM, evaluates=False)
    assert trainer.train() == TERM
    assert saves.made == []


def test_weights_with_a_reason_against_them_are_not_saved() -> None:
    said: list[str] = []
    trainer, recorder, saves = make_trainer(save_interval=2, evaluates=False)
    trainer.run.say = said.append
    recorder.reasons = ["", "the loss is infinite or no number", "", "the loss is infinite or no number"]
    with pytest.raises(TrainingFailed, match="the loss is infinite or no number at step 7, the last;"):
        trainer.train()
    assert said == ["no checkpoint of step 4: the loss is infinite or no number"]
    assert saves.made == [(2, False), (6, False)]
    assert recorder.moments[-1] == "end"


def test_a_run_that_has_finished_begins_and_ends_its_callbacks_only() -> None:
    """As one that was killed before its export: its trackers are open, and must learn that it has finished."""
    trainer, recorder, saves = make_trainer(step=5)  # out of patience
    trainer.run.state.finished = True
    assert trainer.train() is None
    assert (recorder.moments, recorder.phases, saves.made) == (["start", "end"], [], [])


def test_the_first_lap_begins_with_training() -> None:
    """Before it, trackers open."""
    trainer, recorder, _ = make_trainer(steps=1, evaluates=False)
    trainer.run.clock._lap_start -= 3600
    trainer.run.clock._waiting = 1800
    laps = []
    recorder.on_log = lambda record: laps.append(trainer.run.clock.lap())  # type: ignore[method-assign]
    assert trainer.train() is None
    assert (laps[0].seconds < 1800, laps[0].waiting < 1800) == (True, True)


def test_a_loss_scale_at_its_floor_names_the_step_in_progress() -> None:
    trainer, _, _ = make_trainer(step=4, evaluates=False)

    def step() -> None:
        raise Exception("Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.")

    trainer.run.engine.step = step  # type: ignore[method-assign]
    trainer.run.engine.fp16_enabled = lambda: True  # type: ignore[method-assign]
    trainer.run.engine.optimizer.cur_scale = 4.0
    with pytest.raises(TrainingFailed, match="at step 5 with the fp16 loss scale at its floor, 4;"):
        trainer.train()
