"""What a trainer does between steps, without an engine that computes."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from pipeline.checkpoint.saver import Saver
from pipeline.distributed.exits import StopSignals
from pipeline.training.agreement import Agreement
from pipeline.training.divergence.non_finite import TrainingFailed
from pipeline.training.divergence.spike_watch import SpikeWatch
from pipeline.training.divergence.spikes import SpikeState
from pipeline.training.reporting.metrics_log import MetricsLog
from pipeline.training.state import TrainState
from pipeline.training.trainer import Trainer
from pipeline.training.training_task import Evaluation

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class Sums(NamedTuple):
    loss: float
    tokens: float
    rows: float


class LabelCounts(NamedTuple):
    words: float
    pairs: float


class TwoRanks:
    """The control of one of two ranks, which adds what the other one says."""

    world_size = 2

    def __init__(self, rank: int, others: list[float]) -> None:
        self.rank, self._others = rank, others

    def begin_sum(self, values: list[float]) -> Callable[[], list[float]]:
        total = [mine + other for mine, other in zip(values, self._others, strict=True)]
        return lambda: total


class Alone(TwoRanks):
    """The control of a rank whose sums are its own values."""

    def __init__(self) -> None:
        super().__init__(0, [])

    def sum(self, values: list[float]) -> list[float]:
        return [float(value) for value in values]

    def begin_sum(self, values: list[float]) -> Callable[[], list[float]]:
        return lambda: self.sum(values)


def make_trainer(control: Any, received: int | None = None, state: TrainState | None = None) -> Trainer:
    engine_config = SimpleNamespace(world_size=2, accumulation_steps=2)
    settings = SimpleNamespace(
        steps=10,
        max_hours=None,
        schedule=lambda: None,
        on_divergence=None,
        max_rollbacks=0,
        engine=engine_config,
        save_mode="foreground",
        output=Path(),
        kept_checkpoints=1,
    )
    module = SimpleNamespace(parameters=lambda: [torch.zeros(3)])
    engine = SimpleNamespace(device=torch.device("cpu"), skipped_steps=0, module=module)
    task = SimpleNamespace(name="task", sums_kind=Sums, label_counts=lambda micro_batches: LabelCounts(3.0, 1.0))
    signals = StopSignals.__new__(StopSignals)  # without handlers
    signals.received = received
    arguments: list[Any] = [settings, engine, task, control, MetricsLog(Path(), 0, enabled=False)]
    arguments += [state or TrainState(), signals]
    return Trainer(*arguments)


def test_making_a_trainer_installs_no_signal_handlers() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    make_trainer(TwoRanks(0, []))
    assert [signal.getsignal(number) for number in SIGNALS] == before


@pytest.mark.parametrize(
    ("rank", "received", "others", "agreed"),
    [
        # stops (SIGTERM, SIGINT, SIGUSR1), progress, busy with a save, own work of each rank, words, pairs
        (0, None, [0, 0, 0, 0.0, 1, 0, 0.5, 4, 1], Agreement(None, 0.2, LabelCounts(7, 2), 1)),
        (
            1,
            None,
            [0, 0, 0, 0.7, 0, 0.5, 0, 4, 1],
            Agreement(None, 0.7, LabelCounts(7, 2), False),
        ),  # rank 0's clock
        (0, None, [0, 0, 1, 0.0, 0, 0, 0.5, 4, 1], Agreement(signal.SIGUSR1, 0.2, LabelCounts(7, 2), 0)),
        (0, signal.SIGTERM, [0, 0, 1, 0.0, 0, 0, 0.5, 4, 1], Agreement(signal.SIGTERM, 0.2, LabelCounts(7, 2), 0)),
    ],
)
def test_ranks_agree_on_signals_progress_and_labels(
    rank: int, received: int | None, others: list[float], agreed: Agreement
) -> None:
    trainer = make_trainer(TwoRanks(rank, others), received)
    trainer._agreements.start(2, [])
    assert trainer._agreements.finish() == agreed


def test_only_rank_0_continues_from_the_sums_of_a_checkpoint() -> None:
    """They are over all ranks: each rank's would count them again."""
    state = TrainState(step=2, meter=[5.0, 6.0, 7.0])
    assert make_trainer(TwoRanks(0, []), state=state).meter.totals() == Sums(loss=5, tokens=6, rows=7)
    assert make_trainer(TwoRanks(1, []), state=state).meter.totals() == Sums(0, 0, 0)


def test_each_part_of_a_step_is_a_phase_that_a_watcher_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps 5 to 7 of a trainer whose engine only writes down the phase. A save follows step 6.

    The agreement on step 6 is made within step 5, and the one on step 7 after the save.
    """
    phases: list[tuple[str, int]] = []
    trainer = make_trainer(Alone(), state=TrainState(step=4))

    def note(*arguments: Any, **options: Any) -> Any:
        phases.append((trainer.progress.phase, trainer.progress.step))
        return Evaluation({"loss": 1.0}, 1.0, "loss")

    class NotingEngine(SimpleNamespace):
        def __call__(self, **inputs: Any) -> Any:
            return note()

    def made() -> Iterator[list[Any]]:
        for _ in range(5, 8):
            note()
            yield [[], []]

    trainer.engine = NotingEngine(device="cpu", backward=note, step=note, get_global_grad_norm=lambda: None)  # type: ignore[assignment]
    task: Any = trainer.task
    task.evaluates, task.evaluate = True, note
    task.label_counts = lambda micro_batches: LabelCounts(float(note().score), 1.0)
    task.loss, task.sums = lambda *arguments: torch.zeros(()), lambda *arguments: Sums(*torch.zeros(3))
    settings: Any = trainer.settings
    settings.steps, settings.eval_interval, settings.save_interval, settings.log_interval = 7, 7, 6, 100
    settings.seed, settings.patience, settings.engine.train_batch_size = 0, None, 8
    trainer.metrics_log = SimpleNamespace(log=lambda *arguments: None)  # type: ignore[assignment]
    trainer._silent_errors = SimpleNamespace(add_batch=id, compare=id, batches=0)  # type: ignore[assignment]
    monkeypatch.setattr(trainer, "_set_learning_rate", lambda progress: 0.1)
    monkeypatch.setattr(trainer, "_report", lambda rate, last: None)
    settings.execution = SimpleNamespace(attention="flash")
    offsets: list[bool] = []
    monkeypatch.setattr("pipeline.training.trainer.to_device", lambda _, __, asked: offsets.append(asked) or {})
    monkeypatch.setattr(Saver, "begin", note)
    assert trainer._make_steps(made()) is None
    begins, computes = ["data", "agreement"], ["forward", "backward", "optimizer"]
    assert phases == [
        *((name, 5) for name in [*begins, *computes, "forward", "backward", *begins, "optimizer"]),
        *((name, 6) for name in [*computes, *computes, "save"]),
        *((name, 7) for name in [*begins, *computes, *computes, "evaluation", "save"]),
    ]
    assert offsets == [True] * 6  # for the attention kernel "flash"
    trainer.progress.begin()


def test_a_spike_that_is_only_warned_of_is_said_and_recorded() -> None:
    trainer = make_trainer(Alone())
    trainer.settings.on_divergence = "warn"  # type: ignore[misc]
    trainer.spikes = SpikeWatch(trainer.settings, "cpu", SpikeState(), 0)
    said: list[str] = []
    logged: list[Any] = []
    trainer.bar.say = said.append  # type: ignore[method-assign]
    trainer.metrics_log = SimpleNamespace(log=lambda *arguments: logged.append(arguments))  # type: ignore[assignment]
    for step in range(100):
        trainer.spikes.add(torch.tensor(8.0 if step < 90 else 24.0))  # the sum over 4 micro-batches
        trainer.spikes.end_step(torch.tensor(1.0 if step < 90 else 9.0))
    trainer.state.step = 100
    assert trainer._check_losses()
    assert said == ["warning: the loss has risen from 2 to 6 in steps 91 to 93, and the gradient norm from 1 to 9"]
    ((step, metrics, split),) = logged
    assert (step, split, metrics["loss"], metrics["usual_loss"]) == (93, "spike", 6.0, 2.0)


def test_an_evaluation_that_was_left_is_not_due_without_held_out_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run was resumed without --eval-data."""
    trainer = make_trainer(Alone(), state=TrainState(step=10, evaluation_due="last"))
    settings: Any = trainer.settings
    task: Any = trainer.task
    settings.save_interval, task.evaluates = 20, False
    saved: list[bool] = []
    monkeypatch.setattr(trainer, "_save", lambda must_succeed: saved.append(must_succeed))
    assert trainer.train() is None
    assert (trainer.state.finished, trainer.state.evaluation_due, saved) == (True, None, [True])


def test_what_only_a_start_does_is_not_expected_of_each_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluation before the first step compiles for 60 s. Later ones of that size, a hundredth, take 2 s."""
    now, seconds = 0.0, iter([60.0, 2.0])
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    trainer = make_trainer(Alone())
    settings: Any = trainer.settings
    task: Any = trainer.task
    settings.max_hours = 1.0

    def evaluate(engine: Any) -> tuple[None, float]:
        nonlocal now
        now += next(seconds)
        return None, 0.01

    task.try_evaluation = evaluate
    trainer._try_evaluation()
    assert trainer.deadline.reserve == pytest.approx(1.25 * 2 * 200.0)
    assert trainer.clock.lap().seconds < 1e-6  # no part of the speed of the first steps


def test_a_loss_scale_at_its_floor_names_the_step_in_progress() -> None:
    trainer = make_trainer(Alone(), state=TrainState(step=4))

    def step() -> None:
        raise Exception("Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.")

    scaler = SimpleNamespace(cur_scale=4.0)
    trainer.engine = SimpleNamespace(step=step, fp16_enabled=lambda: True, optimizer=scaler)  # type: ignore[assignment]
    with pytest.raises(TrainingFailed, match="at step 5 with the fp16 loss scale at its floor, 4;"):
        trainer._update()


def test_a_stop_signal_waits_for_a_loss_that_can_be_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of step 4 was not finite, and that of step 5 is."""
    trainer = make_trainer(Alone(), received=signal.SIGTERM, state=TrainState(step=4))
    trainer._saves.saved_step = 2
    settings: Any = trainer.settings
    task: Any = trainer.task
    settings.eval_interval = settings.save_interval = settings.log_interval = 100
    task.evaluates = False
    finite, saved = iter([False, True]), []
    monkeypatch.setattr(trainer, "_check_losses", lambda: next(finite))
    monkeypatch.setattr(trainer, "_set_learning_rate", lambda progress: 0.1)
    monkeypatch.setattr(trainer, "_step", lambda *arguments: None)
    monkeypatch.setattr(trainer, "_save", lambda must_succeed: saved.append(trainer.state.step))
    assert trainer._make_steps(iter([[[]], [[]], [[]]])) == signal.SIGTERM
    assert saved == [5]


def test_the_speed_of_a_record_is_that_of_this_start_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 of the 60 tokens and 5 of the 6 rows were read by the start before; its time is not in the lap."""
    trainer = make_trainer(Alone(), state=TrainState(step=4, meter=[1.0, 50.0, 5.0]))
    trainer.meter.add(Sums(*(torch.tensor(value) for value in (1.0, 10.0, 1.0))))  # type: ignore[arg-type]
    task: Any = trainer.task
    task.summarise = lambda totals: {"summed": list(totals)}
    task.data_progress = lambda samples: {}
    engine_config: Any = trainer.settings.engine
    engine_config.train_batch_size = 2
    counted: list[Any] = []

    def stop(*counts: Any) -> None:
        counted.extend(counts[:2])
        raise InterruptedError("what follows is not of interest here")

    monkeypatch.setattr(trainer, "_check_losses", lambda: True)
    monkeypatch.setattr("pipeline.training.trainer.engine_step.gradient_norm", lambda engine: 0.0)
    monkeypatch.setattr("pipeline.training.trainer.zero_layout.loss_scale", lambda engine: 1.0)
    monkeypatch.setattr(trainer, "_throughput", SimpleNamespace(metrics=stop))
    with pytest.raises(InterruptedError):
        trainer._report(0.1, last=False)
    assert counted == [10.0, 1.0]
