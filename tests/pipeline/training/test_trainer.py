"""What a trainer does between steps, with an engine that does not compute."""

import math
import time
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from pipeline.checkpoint.save_and_load import Saved, SaveFailed
from pipeline.distributed.progress import get_progress
from pipeline.training import trainer as trainer_module
from pipeline.training.trainer import Trainer
from pipeline.training.training_run import Callback, Clock, Evaluation, TrainingFailed, TrainingRun, TrainState
from tests.pipeline.records import pretrain_settings
from tests.pipeline.training.test_run_end import TERM, LabelCounts, OtherRanks, stop_signals


class MadeSaver:
    """A saver that only writes down the steps, and whether each was saved in the background.

    It is told the seconds of the comparison of the weights before it, 0.02.
    """

    is_writing = False

    def __init__(self, *_: Any) -> None:
        self.made, self.is_saving = list[tuple[int, bool]](), False
        self.failing = set[int]()  # steps whose save fails

    def start(self, state: dict[str, Any], score: float | None, in_background: bool, checked: float) -> None:
        assert not self.is_saving
        assert checked > 0.019
        self.made.append((state["step"], not in_background))
        self.is_saving = True

    def finish(self) -> Saved:
        self.is_saving = False
        if self.made[-1][0] in self.failing:
            raise SaveFailed(self.made[-1][0], "rank 0: no space")
        return Saved(self.made[-1][0], 1.0, 1.0)

    def abandon(self) -> None:
        pass


@pytest.fixture
def make(monkeypatch):
    """Makes a trainer of two micro-steps a step, whose data ends with the run.

    Beside it are its callback, which notes its calls, its saver, the phases with the step that a watcher reads, of
    several alike in a row only one, and a list for the losses to come.
    """
    metrics = SimpleNamespace(add=lambda *_: None, record=dict, store=lambda: None)
    monkeypatch.setattr(trainer_module, "to_device", lambda *_: {})
    monkeypatch.setattr(trainer_module, "Saver", MadeSaver)
    monkeypatch.setattr(trainer_module, "check_equal_weights", lambda run: time.sleep(0.02))
    monkeypatch.setattr(trainer_module, "StepMetrics", lambda *_: metrics)
    monkeypatch.setattr(trainer_module.schedule, "of_run", lambda settings: lambda number: number / 10)

    def make_trainer(step=0, steps=7, received=None, evaluates=True, **settings):
        defaults = {"eval_interval": 7, "save_interval": 6, "log_interval": 100, "accumulation_steps": 2}
        given = pretrain_settings(**defaults | settings, steps=steps, kept_checkpoints=1)
        engine = mock.Mock(device="cpu", module=torch.nn.Identity(), return_value=torch.zeros(()))
        engine.optimizer.param_groups = [{}]
        run = TrainingRun(given, OtherRanks(), engine, TrainState(step=step), clock=Clock())
        losses = []  # of the steps to come; then 0
        task = SimpleNamespace(
            name="train",
            evaluates=evaluates,
            steps=lambda numbers: ([["a"], ["b"]] for _ in numbers),
            label_counts=lambda micro_batches: LabelCounts(3.0, 1.0),
            loss=lambda output, counts, number: output + (losses.pop(0) if losses else 0.0),
            try_evaluation=lambda engine: (Evaluation({"loss": 1.0}, 0.5, "loss"), 0.25),
            evaluate=lambda engine, wrap: Evaluation({"loss": 1.0}, 0.5, "loss"),
        )
        callback, phases = mock.Mock(spec=Callback), list[str]()
        enter = run.enter

        def note(phase, micro_step=0):
            enter(phase, micro_step)
            phases.extend({f"{phase} {get_progress().step}"} - set(phases[-1:]))

        monkeypatch.setattr(run, "enter", note)
        made = Trainer(run, task, stop_signals(received), [callback])
        return made, callback, made.saver, phases, losses

    get_progress().start_run()
    yield make_trainer
    get_progress().start_run()


def called(callback):
    """The names of the moments that a callback has seen."""
    return [name for name, *_ in callback.method_calls]


def test_the_moments_and_phases_of_a_run(make):
    """Steps 5 to 7: a save follows step 6, an evaluation and the last save step 7.

    The agreement on step 6 is begun within step 5, and the one on step 7 after the save. What comes before any step
    belongs to none.
    """
    trainer, callback, saves, phases, _ = make(step=4)
    assert trainer.train() is None
    computes = "forward backward optimizer"
    assert phases == [
        "evaluation 0",
        *(f"{phase} 5" for phase in f"data agreement {computes} forward backward data agreement optimizer".split()),
        *(f"{phase} 6" for phase in f"agreement {computes} {computes} save".split()),
        "data 7", "agreement 7", "save 6",
        *(f"{phase} 7" for phase in f"{computes} {computes} logging evaluation save".split()),
    ]  # fmt: skip
    assert called(callback) == [
        *("on_trial", "on_step", "on_step", "on_save", "on_checkpoint", "on_step", "on_log", "on_evaluation"),
        *("on_save", "on_checkpoint", "on_end"),
    ]
    assert callback.on_trial.call_args.args[1] == 0.25
    assert callback.on_log.call_args.args[0]["learning_rate"] == 0.6
    assert callback.on_evaluation.call_args.args[0].score == 0.5
    assert saves.made == [(6, False), (7, True)]
    assert trainer.run.state.finished


def test_a_stop_signal_waits_for_a_loss_that_can_be_saved(make):
    """All ranks know of the signal after step 2. The loss of that step is not finite, and that of step 3 is."""
    trainer, callback, saves, _, losses = make(evaluates=False)
    losses[:] = [0.0, 0.0, math.nan]  # two of a step
    callback.on_step.side_effect = lambda step: setattr(trainer.signals, "received", TERM)
    assert trainer.train() == TERM
    assert saves.made == [(3, True)]


def test_a_resumed_run_whose_every_save_fails_ends_and_one_that_has_saved_once_goes_on(make):
    trainer, _, saves, _, _ = make(step=10, steps=19, save_interval=1, evaluates=False)
    saves.failing = set(range(11, 20))
    with pytest.raises(TrainingFailed, match=r"all 3 saves.* rank 0: no space.* goes on from step 10$"):
        trainer.train()
    assert [step for step, _ in saves.made] == [11, 12, 13]
    trainer, _, saves, _, _ = make(steps=9, save_interval=1, evaluates=False)
    saves.failing = {1, 2, *range(4, 9)}
    assert trainer.train() is None
    assert saves.made[-1] == (9, True)


def test_a_stop_does_not_save_the_same_step_again(make):
    trainer, _, saves, _, _ = make(step=4, received=TERM, evaluates=False)
    assert trainer.train() == TERM
    assert saves.made == []


def test_a_run_that_has_finished_begins_and_ends_its_callbacks_only(make):
    """As one that was killed before its export."""
    trainer, callback, saves, phases, _ = make(step=5)
    trainer.run.state.finished = True
    assert trainer.train() is None
    assert (called(callback), phases, saves.made) == (["on_end"], [], [])


def test_a_trial_without_a_finite_number_ends_the_run(make):
    trainer, _, saves, _, _ = make()
    trainer.task.try_evaluation = lambda engine: (Evaluation({"loss": math.nan}, 0.5, "loss"), 0.1)
    with pytest.raises(TrainingFailed, match="the held-out loss is nan after 0 steps"):
        trainer.train()
    assert saves.made == []


def test_time_that_a_step_takes_to_compile_is_not_reserved_for_the_last(make):
    trainer, *_ = make(execution=SimpleNamespace(compile=True))
    before = trainer.deadline.reserve
    trainer._end_step(60.0)
    assert trainer.deadline.reserve == before
    trainer._end_step(2.0)
    with get_progress().during("compilation"):  # a batch of another shape, in mid-run
        pass
    trainer._end_step(60.0)
    trainer._end_step(1.0)
    assert trainer.deadline.reserve == before + 1.25 * 3 * 2.0
    evaluate = trainer.task.evaluate

    def compiles(*given):
        with get_progress().during("compilation"):
            return evaluate(*given)

    trainer.task.evaluate = compiles
    trainer._evaluate()
    assert trainer.deadline.reserve == before + 1.25 * 3 * 2.0
    trainer.task.evaluate = evaluate
    trainer._evaluate()
    assert trainer.deadline.reserve > before + 1.25 * 3 * 2.0
