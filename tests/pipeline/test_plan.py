"""The plan of a run: its time, its warnings, its proposals and the command."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from common.errors import UserError
from model import AlbertConfig
from model.counts import model_flops
from pipeline import plan
from pipeline.engine import estimates
from pipeline.engine.estimates import Plan
from pipeline.engine.hardware import GPUS
from pipeline.plan import parse, resolve
from tests.pipeline.conftest import REPOSITORY

XXLARGE = AlbertConfig.preset("albert-xxlarge")


CONFIG = REPOSITORY / "ds_configs" / "xxlarge.json"
COMMAND = ["--model", "albert-xxlarge", "--deepspeed_config", str(CONFIG), "--gpu", "h100"]


def request(*more: str) -> Plan:
    return resolve(parse([*COMMAND, *more]))


def report(*more: str) -> str:
    return plan.report(parse([*COMMAND, *more]), request(*more))


def test_time_and_cost_follow_from_the_speed() -> None:
    found = request("--nodes", "2", "--reached-tflops", "500")
    # 256 rows a GPU, 7.58 TFLOP each
    computing = 256 * model_flops(XXLARGE, 512, 77) / 500e12
    assert found.step_seconds == pytest.approx(computing + estimates.collective_seconds(found))
    assert found.mfu == pytest.approx(500 / 989 * computing / found.step_seconds)
    assert found.days == pytest.approx(125_000 * found.step_seconds / 86400)
    assert found.usable_memory == 0.92 * 80 * 2**30


def test_more_predictions_cost_more_time_and_memory() -> None:
    plans = request(), request("--mask-probability", "0.3")
    assert [found.shape.predictions for found in plans] == [77, 154]
    flops = [model_flops(XXLARGE, 512, predictions) for predictions in (77, 154)]
    assert plans[1].step_seconds / plans[0].step_seconds == pytest.approx(flops[1] / flops[0], rel=0.01)
    assert plans[1].memory.activations > plans[0].memory.activations


def test_recomputing_costs_time_and_no_mfu_of_its_own() -> None:
    plain, again = (request("--activation-checkpointing", what) for what in ("none", "layer"))
    assert again.step_seconds / plain.step_seconds == pytest.approx(4 / 3, rel=0.01)
    assert again.mfu < plain.mfu
    assert again.memory.activations < 0.2 * plain.memory.activations
    assert again.largest_micro_batch > 2 * plain.largest_micro_batch


def test_what_does_not_fit_or_waits_for_the_network_is_said() -> None:
    assert "warning" not in report()
    assert "do not fit into the usable 14.82 GB; use a micro-batch of at most" in report("--gpu", "t4")
    assert "; use --activation-checkpointing layer, or another GPU" in report("--gpu", "t4", "--gpu-memory", "1")
    assert "network-bound" in report("--nodes", "32", "--network-gbit", "10")


def test_a_gpu_of_given_figures() -> None:
    found = request("--gpu", "rtx-pro-6000", "--gpu-memory", "96", "--gpu-tflops", "500")
    assert found.usable_memory == pytest.approx(0.92 * 96e9)
    assert found.cluster.gpu.network_gbit == 100
    assert found.tflops == pytest.approx(250), "half of the peak at this width"
    assert set(request("--gpu", "v100", "--gpu-tflops", "100").cluster.gpu.tflops) == set(GPUS["v100"].tflops)
    known = request("--gpu-memory", "94")
    assert (known.cluster.gpu.memory_bytes, known.cluster.gpu.tflops) == (94e9, GPUS["h100"].tflops)
    with pytest.raises(UserError, match=r"not known; use v100, .* or give --gpu-memory and --gpu-tflops"):
        request("--gpu-memory", "96", "--gpu", "rtx-pro-6000")


def test_empty_rows_cost_time_and_are_not_counted_as_work() -> None:
    # 56 GPUs: at most 74 rows on a GPU, in 5 micro-steps of 15. 4096 of 4200 rows are real.
    whole, uneven = request("--nodes", "8"), request("--nodes", "7")
    engine = uneven.engine
    assert (engine.micro_batch_size, engine.accumulation_steps, engine.empty_rows) == (15, 5, 104)
    assert uneven.step_seconds / whole.step_seconds == pytest.approx(75 / 64, rel=0.01)
    assert uneven.mfu / whole.mfu == pytest.approx(4096 / 4200, rel=0.01)
    printed = report("--nodes", "7")
    assert "batch: 4096 rows of 512 = 15 x 5 accumulated x 56 GPUs - 104 empty (2.5 % of the computation)" in printed
    assert "empty" not in report("--nodes", "8")


def test_what_pretrain_refuses_is_refused(tmp_path: Path) -> None:
    config, path = json.loads(CONFIG.read_text()), tmp_path / "config.json"
    for block, words in (
        ({"zero_optimization": {"stage": 0}}, "fp16 at ZeRO stage 0"),
        ({"scheduler": {"type": "OneCycle", "params": {}}}, "OneCycle"),
        ({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10**6}}}, "warm-up steps do not fit"),
    ):
        path.write_text(json.dumps(config | block))
        with pytest.raises(UserError, match=words):
            request("--deepspeed_config", str(path))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--gpu", "h1000"], "h1000"),
        (["--model", "albert-xxxlarge"], "albert-xxlarge"),
        (["--price-per-gpu-hour", "-1"], "price of at least 0"),
        (["--mask-probability", "1.5"], "mask_probability is 1.5"),
        (["--deepspeed_config", "missing.json"], "missing.json"),
        (["--precision", "bf16", "--gpu", "v100"], "does not have it"),
        (["--gpuss-per-node", "3"], "did you mean --gpus-per-node"),
    ],
    ids=lambda more: " ".join(more)[:30],
)
def test_mistakes_are_one_line(more: list[str], message: str, refusal: Callable[..., str]) -> None:
    assert message in refusal(plan.main, *COMMAND, *more)
