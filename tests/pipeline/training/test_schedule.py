"""The learning rate, against hand-computed tables and the schedulers of DeepSpeed and `transformers`."""

import pytest
import torch
import transformers
from deepspeed.runtime import lr_schedules

from common.errors import UserError
from pipeline.training import schedule

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
