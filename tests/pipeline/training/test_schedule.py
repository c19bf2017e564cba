"""The learning rate, against hand-computed tables and DeepSpeed's own schedulers."""

import pytest
import torch
import transformers
from deepspeed.runtime import lr_schedules

from common.errors import UserError
from pipeline.training import schedule

PEAK = 0.00176


@pytest.mark.parametrize("warmup", [0, 7])
def test_a_linear_warmup_and_decay_is_that_of_transformers(warmup):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    theirs = transformers.get_linear_schedule_with_warmup(optimizer, warmup, 30)
    ours = schedule.from_config({"type": "WarmupDecayLR", "params": {"warmup_type": "linear"}}, PEAK, warmup, 30)
    for step in range(30):
        assert ours(step) == pytest.approx(theirs.get_last_lr()[0], rel=1e-12)
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize("shape", ["linear", "1-sqrt"])
@pytest.mark.parametrize(("warmup", "decay"), [(0, 12), (7, 5), (3, 0), (10, 20)])
def test_a_stable_rate_with_a_decay_is_that_of_transformers(shape, warmup, decay):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    theirs = transformers.get_wsd_schedule(optimizer, warmup, decay, 30, decay_type=shape, min_lr_ratio=0.0)
    params = {"decay_num_steps": decay, "decay_type": shape}
    ours = schedule.from_config({"type": "WarmupStableDecay", "params": params}, PEAK, warmup, 30)
    for step in range(30):
        assert ours(step) == pytest.approx(theirs.get_last_lr()[0], rel=1e-12)
        optimizer.step()
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
    ("params", "message"),
    [
        ({"decay_num_steps": 9}, "2 warm-up steps and 9 steps of decay do not fit into 10 steps"),
        ({"decay_steps": 4}, "decay_steps is not a parameter"),
    ],
)
def test_a_stable_rate_refuses(params, message):
    with pytest.raises(UserError, match=message):
        schedule.from_config({"type": "WarmupStableDecay", "params": params}, 1.0, 2, 10)


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
def test_the_paper_s_schedule_has_these_values(step, rate):
    assert schedule.albert(step, PEAK, 3125, 125_000) == pytest.approx(rate, rel=1e-12, abs=1e-18)


def test_default_is_the_paper_s_schedule_with_its_share_of_warmup():
    rates = schedule.from_config(None, PEAK, warmup_steps=None, total_steps=125_000)
    assert [rates(step) for step in (3124, 3125)] == [
        schedule.albert(step, PEAK, 3125, 125_000) for step in (3124, 3125)
    ]


def deepspeed_rates(kind, steps, **params):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.01)
    scheduler = getattr(lr_schedules, kind)(optimizer, **params)
    rates = []
    for step in range(steps):
        scheduler.step(step)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


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
    total = 50
    rates = schedule.from_config({"type": kind, "params": params | shape}, 0.01, None, total)
    length = {} if kind == "WarmupLR" else {"total_num_steps": total}
    theirs = deepspeed_rates(kind, total, **params, **shape, **length)
    assert [rates(step) for step in range(total)] == pytest.approx(theirs, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"type": "OneCycle", "params": {}}, "OneCycle"),
        ({"type": "WarmupLR", "params": {"warmup_steps": 3}}, "warmup_steps"),
        ({"type": "WarmupLR", "params": {"warmup_num_steps": 200}}, "200"),
    ],
)
def test_what_a_block_cannot_mean_is_refused(block, words):
    with pytest.raises(UserError, match=words):
        schedule.from_config(block, 0.01, None, 100)


def test_a_rate_that_fp32_cannot_hold_is_refused():
    for block, peak in ((None, 1e308), ({"type": "WarmupLR", "params": {"warmup_max_lr": 1e39}}, 0.1)):
        with pytest.raises(UserError, match="is larger than any number in fp32; lower it"):
            schedule.from_config(block, peak, 1, 10)
