"""What ends a run, on a simulated clock; the learning rate, as by hand, by DeepSpeed and by `transformers`."""

import math
import random
import shutil
import signal
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
import transformers
from deepspeed.runtime import lr_schedules
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from pipeline import pretrain
from pipeline.checkpoint.retention import tags
from pipeline.distributed.exits import EXIT_LOST, StopSignals
from pipeline.engine.engine_state import differing_ranks
from pipeline.training import run_end, schedule
from pipeline.training.run_end import NON_FINITE_STEPS, Agreement, Deadline, Divergence, NextStep
from pipeline.training.training_run import Callback, TrainingFailed, TrainingRun, TrainState
from tests.pipeline.checkpoint.test_files import flip
from tests.pipeline.training.loop_runs import Run
from tests.pipeline.workers import processes
from tests.pipeline.workers.runs import Ended, added_callback, run_command


def run_flipped(commands: list[list[str]], step: int) -> list[Ended]:
    """Runs each command line. In each run a bit of the bf16 weights of rank 1 flips after the update of `step`."""
    with added_callback(lambda run: _Flipping(run, step)):
        return [run_command(pretrain.main, command) for command in commands]


class _Flipping(Callback):
    def __init__(self, run: TrainingRun, step: int) -> None:
        self._run, self._step = run, step

    def on_step(self, step: int) -> None:
        if self._run.control.rank == 1 and step == self._step:
            weights = next(iter(self._run.engine.module.parameters()))
            weights.detach().view(-1)[:1].view(torch.int16).__ixor__(1 << 5)


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


@pytest.mark.parametrize(
    ("rank", "received", "others", "stop_signal", "writers", "progress"),
    [
        # stops (SIGTERM, SIGINT, SIGUSR1), words, pairs, whether they write, progress of rank 0
        (0, None, [0, 0, 0, 4, 1, 0, 0], None, 1, 0.5),
        (1, None, [0, 0, 1, 4, 1, 1, 0.25], signal.SIGUSR1, 2, 0.25),
        (0, TERM, [0, 0, 1, 4, 1, 0, 0], TERM, 1, 0.5),
    ],
)
def test_ranks_agree_on_signals_labels_writers_and_the_clock_of_rank_0(
    rank, received, others, stop_signal, writers, progress
):
    control = OtherRanks(rank, others)
    clock = SimpleNamespace(seconds=lambda: 0.0)
    run = SimpleNamespace(control=control, is_rank_0=control.rank == 0, enter=lambda phase: None, clock=clock)
    task = SimpleNamespace(label_counts=lambda micro_batches: LabelCounts(3.0, 1.0))
    deadline = SimpleNamespace(progress=lambda step, seconds: 0.5)
    step = NextStep(run, task, stop_signals(received), deadline, iter([["batch"]]))
    step.begin(0, is_writing=True)
    micro_batches, agreed = step.take()
    assert micro_batches == ["batch"]
    assert agreed == Agreement(stop_signal, LabelCounts(7.0, 2.0), writers, progress)


def test_what_the_end_takes_is_set_aside(monkeypatch):
    monkeypatch.setattr(run_end, "parameter_count", lambda engine: 25_000_000)
    assert run_end.expected_save_seconds(None) == 25e6 * 12 / 100e6  # at first: weights and two moments in fp32
    limit = Deadline(1.0, 1000, save_seconds=10.0)
    assert limit.progress(0, 1787.5) == pytest.approx(1787.5 / 3562.5)  # 3600 - 1.25 * 3 * 10
    for work, seconds in (("save", 40.0), ("evaluation", 100.0), ("step", 12.0), ("step", 3.0)):
        limit.learn(work, seconds)
    assert limit.reserve == 445.0  # 1.25 * (3 * 40 + 2 * 100 + 3 * 12)
    assert limit.progress(1, 2366.25) == pytest.approx(0.75)  # of 3155
    assert limit.progress(2, 1577.5) == pytest.approx(0.75)  # never less than before
    assert limit.progress(990, 2366.25) == pytest.approx(0.99)
    assert limit.progress(3, 3155.0) == 1.0
    assert Deadline(0.001, 1000, save_seconds=10**4).progress(0, 0.0) == 1.0, "too short for anything makes one step"
    assert Deadline(None, 1000, save_seconds=10.0).progress(500, 10**9) == 0.0, "and no limit makes all"
    # A branch begins at step 9,000 of 10,000, and its hour passes evenly.
    branch = Deadline(1.0, 10_000, save_seconds=0.0, first=9000)
    for part in (0.0, 0.25, 0.5, 0.9):
        assert branch.progress(9000, 3600 * part) == pytest.approx(0.9 + 0.1 * part)
    assert branch.progress(9001, 3600.0) == 1.0


def ended_at(hours: float, steps: int, seed: int) -> tuple[float, float, list[float]]:
    """Simulates a run whose steps, saves and evaluations take random times.

    Returns when its last step ends, when its last save ends, and its learning rates.
    """
    chance = random.Random(seed)
    limit = Deadline(hours, steps, save_seconds=20.0)
    now, read_at, step, rates, trained = 0.0, 0.0, 0, [], 0.0
    while step < steps:
        progress = limit.progress(step, read_at)
        rates.append(schedule.albert(schedule.step_of_progress(progress, step, steps), 1.0, steps // 10, steps))
        step += 1
        for what, lasts, due in (("step", 2.0, True), ("evaluation", 30.0, step % 50 == 0 or progress >= 1)):
            if due:
                took = lasts * chance.uniform(0.8, 1.0)
                limit.learn(what, took)
                # The clock is read within a step, if neither an evaluation nor a save follows the step.
                read_at = now if what == "step" else now + took
                now += took
        trained = now
        if progress >= 1.0 or step % 100 == 0:
            took = 20.0 * chance.uniform(0.8, 1.0)
            limit.learn("save", took)
            now += took
            read_at = now
        if progress >= 1.0:
            break
    return trained, now, rates


@given(hours=st.floats(0.5, 3.0), seed=st.integers(0, 1000))
def test_schedule_and_last_save_end_in_time(hours, seed):
    steps = 10_000
    trained, saved, rates = ended_at(hours, steps, seed)
    assert saved <= 3600 * hours
    assert trained >= 3600 * hours - 1.25 * (3 * 20 + 2 * 30 + 3 * 2)  # no more was given away than set aside
    assert max(rates) > 0.85  # the whole warm-up
    assert rates[-1] < 0.05  # and the whole decay
    assert rates[-1] > 0.0
    _, _, rates = ended_at(hours=10.0, steps=100, seed=seed)
    assert rates == [schedule.albert(step, 1.0, 10, 100) for step in range(100)], "its steps end it first"


def test_a_loss_that_stays_non_finite_ends_the_run():
    """On one of two ranks; the other one says nothing."""
    control = SimpleNamespace(rank=0, world_size=2, sum=lambda values: list(map(float, values)))
    run = TrainingRun(SimpleNamespace(), control, SimpleNamespace(device="cpu"), TrainState())
    divergence = Divergence(run)

    def train(*losses):
        for loss in losses:  # steps of one micro-step
            divergence.add(torch.tensor(loss))
            run.state.step += 1
            divergence.end_step()

    train(*[math.nan] * (NON_FINITE_STEPS - 1), 1.0, *[-math.inf] * (NON_FINITE_STEPS - 1))
    divergence.judge()
    train(math.inf)
    with pytest.raises(TrainingFailed, match="for 10 steps or more at step 20, on 1 of 2 ranks"):
        divergence.judge()


@pytest.mark.parametrize(
    ("checksums", "ranks"),
    [(["a"], []), (["a", "a"], []), (["a", "b"], [0, 1]), (["a", "b", "a"], [1]), (["a", "b", "c", "b", "b"], [0, 2])],
)
def test_the_majority_is_right(checksums, ranks):
    assert differing_ranks(checksums) == ranks


@pytest.mark.slow
def test_a_flipped_bit_on_one_rank_of_two_ends_the_run_at_the_save_and_one_of_the_shards_at_the_start(corpus, tmp_path):
    """Each host checks every byte of the shards before training."""
    damaged, shard = tmp_path / "damaged", "shard-00000.arrow"
    shutil.copytree(corpus.train, damaged)
    flip(damaged / shard, (damaged / shard).stat().st_size // 2)
    flags = ("--steps", "6", "--log-interval", "1", "--eval-interval", "100")
    runs = [Run(f"at stage {stage}", 2, 3, stage, flags=flags, precision="bf16") for stage in (0, 2)]
    commands = [run.command(corpus, tmp_path) for run in runs]
    commands.append([str(damaged) if word == str(corpus.train) else word for word in commands[0]])
    *ends, refused = processes.run(2, run_flipped, commands, 4, scratch=tmp_path)
    assert (refused.status, refused.stderr.count("\n")) == (2, 1)
    where = f"{damaged} on host {socket.gethostname()}"
    assert f"{where} is damaged: the content of {shard} has changed" in refused.stderr
    host = socket.gethostname()
    for run, end in zip(runs, ends, strict=True):
        assert end.status == EXIT_LOST
        assert end.stderr.startswith(f"error: rank 0 on host {host} or rank 1 on host {host} holds wrong weights after")
        assert [tag.name for tag in tags(tmp_path / run.name / "checkpoints")] == ["step-00000002"]


PEAK = 0.00176


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)


@pytest.mark.parametrize("warmup", [0, 7])
@pytest.mark.parametrize("shape", ["linear", "1-sqrt"])
@pytest.mark.parametrize("decay", [None, 0, 5, 12, 20])
def test_a_decay_over_the_whole_run_or_its_end_is_that_of_transformers(warmup, shape, decay):
    made = optimizer()
    if decay is None:
        theirs = transformers.get_linear_schedule_with_warmup(made, warmup, 30)
        block = {"type": "WarmupDecayLR", "params": {"warmup_type": "linear"}}
    else:
        theirs = transformers.get_wsd_schedule(made, warmup, decay, 30, decay_type=shape, min_lr_ratio=0.0)
        block = {"type": "WarmupStableDecay", "params": {"decay_num_steps": decay, "decay_type": shape}}
    ours = schedule.from_config(block, PEAK, warmup, 30)
    for step in range(30):
        assert ours(step) == pytest.approx(theirs.get_last_lr()[0], rel=1e-12)
        made.step()
        theirs.step()


@pytest.mark.parametrize(
    ("shape", "rates"),
    [
        ("linear", [0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]),
        ("1-sqrt", [0.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.2928932188134524, 0.1339745962155614]),
    ],
)
def test_a_stable_rate_with_a_decay_by_hand(shape, rates):
    block = {"type": "WarmupStableDecay", "params": {"decay_num_steps": 4, "decay_type": shape}}
    rate = schedule.from_config(block, 1.0, 2, 10)
    assert [rate(step) for step in range(10)] == pytest.approx(rates, rel=1e-12)


@pytest.mark.parametrize(
    ("step", "rate"),
    [
        (0, 0.0),  # 0 / 3125
        (1, 5.632e-07),  # 0.00176 * 1/3125
        (1250, 0.000704),  # 0.00176 * 0.4
        (3124, 0.0017594368),  # 0.00176 * 3124/3125
        (3125, 0.001716),  # 0.00176 * (1 - 3125/125000) = 0.00176 * 0.975: the drop
        (62500, 0.00088),  # 0.00176 * 0.5
        (124999, 1.408e-08),  # 0.00176 * 1/125000
        (125000, 0.0),
        (130000, 0.0),
    ],
)
def test_the_default_is_the_paper_s_schedule_with_its_share_of_warmup(step, rate):
    rate_of = schedule.from_config(None, PEAK, warmup_steps=None, total_steps=125_000)
    assert rate_of(step) == pytest.approx(rate, rel=1e-12, abs=1e-18)


@pytest.mark.parametrize("shape", [{}, {"warmup_type": "linear"}, {"warmup_type": "log"}])
@pytest.mark.parametrize(
    ("kind", "params"),
    [
        ("WarmupLR", {"warmup_min_lr": 0.001, "warmup_max_lr": 0.01, "warmup_num_steps": 7}),
        ("WarmupDecayLR", {"warmup_min_lr": 0.001, "warmup_max_lr": 0.01, "warmup_num_steps": 7}),
        ("WarmupCosineLR", {"warmup_min_ratio": 0.1, "cos_min_ratio": 0.05, "warmup_num_steps": 7}),
    ],
)
def test_scheduler_blocks_mean_what_they_mean_to_deepspeed(kind, params, shape):
    total, made = 50, optimizer()
    rates = schedule.from_config({"type": kind, "params": params | shape}, PEAK, None, total)
    length = {} if kind == "WarmupLR" else {"total_num_steps": total}
    theirs = getattr(lr_schedules, kind)(made, **params, **shape, **length)
    for step in range(total):
        theirs.step(step)
        assert rates(step) == pytest.approx(made.param_groups[0]["lr"], rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(
    ("kind", "params", "peak", "words"),
    [
        ("WarmupStableDecay", {"decay_num_steps": 9}, 1.0, "2 warm-up steps and 9 steps of decay do not fit into 10"),
        ("WarmupStableDecay", {"decay_steps": 4}, 1.0, "decay_steps is not a parameter"),
        ("OneCycle", {}, 1.0, "OneCycle"),
        ("WarmupLR", {"warmup_steps": 3}, 1.0, "warmup_steps is not a parameter"),
        ("WarmupLR", {"warmup_max_lr": 1e39}, 0.1, "larger than any number in fp32"),
        (None, {}, 1e308, "larger than any number in fp32"),
    ],
)
def test_what_a_block_cannot_mean_is_refused(kind, params, peak, words):
    with pytest.raises(UserError, match=words):
        schedule.from_config(kind and {"type": kind, "params": params}, peak, 2, 10)


def test_a_warmup_that_is_longer_than_the_run_is_refused():
    with pytest.raises(UserError, match="200"):
        schedule.from_config({"type": "WarmupLR", "params": {"warmup_num_steps": 200}}, 0.01, None, 100)
