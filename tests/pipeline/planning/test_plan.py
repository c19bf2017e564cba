"""The plan of a run: its time, its warnings, its proposals and the command."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import UserError
from model import AlbertConfig
from model.counts import forward_flops, model_flops, parameter_counts
from pipeline import plan
from pipeline.engine.hardware import GPUS, Cluster
from pipeline.plan import parse, resolve
from pipeline.planning import time as plan_time
from pipeline.planning.memory import MemorySettings
from pipeline.planning.plan import Plan, alternatives, fastest, report, warnings_of
from tests.pipeline.conftest import REPOSITORY
from tests.pipeline.pretraining import trained_models

XXLARGE = AlbertConfig.preset("albert-xxlarge")


@pytest.mark.parametrize(("width", "percent"), [(768, 30), (1024, 40), (2048, 50), (4096, 50)])
def test_the_assumed_speed_grows_with_the_width(width: int, percent: int) -> None:
    config = AlbertConfig(hidden_size=width, num_attention_heads=8)
    speed = plan_time.assumed_speed(config, 1000.0)
    assert speed.tflops == pytest.approx(10 * percent)
    assert speed.source == f"assumed: {percent} % of 1000 TFLOP/s at width {width}"


@pytest.mark.parametrize(
    ("kind", "nodes", "gpus", "stage", "accumulation", "seconds"),
    [
        # 1e9 parameters in bf16 are 2e9 bytes; links 450e9 B/s, network 3200 Gbit/s = 400e9 B/s, 80 % of both reached.
        ("h100", 1, 1, 1, 4, 0.0),
        ("h100", 1, 8, 1, 4, 3 * 7 / 8 * 2e9 / 360e9),
        ("h100", 1, 8, 2, 4, 9 * 7 / 8 * 2e9 / 360e9),
        ("h100", 1, 8, 3, 4, 8 * 7 / 8 * 2e9 / 360e9),
        ("h100", 8, 1, 0, 1, 2 * 7 / 8 * 2e9 / 320e9),
        ("h100", 2, 8, 1, 1, 3 * 15 / 16 * 2e9 / 320e9),  # a ring over 16 GPUs; the network is slower than the links
        # L40S: links 32e9 B/s, network 400 Gbit/s = 50e9 B/s; a GPU alone on its node waits for the network only.
        ("l40s", 2, 1, 0, 1, 2 * 1 / 2 * 2e9 / (0.8 * 50e9)),
    ],
)
def test_seconds_in_collectives(
    kind: str, nodes: int, gpus: int, stage: int, accumulation: int, seconds: float
) -> None:
    cluster = Cluster(GPUS[kind], nodes, gpus)
    assert plan_time.collective_seconds(10**9, "bf16", stage, accumulation, cluster) == pytest.approx(seconds)


@pytest.mark.parametrize(("collectives", "warns"), [(0.19, False), (0.21, True)])
def test_more_than_a_fifth_of_a_step_is_network_bound(collectives: float, warns: bool) -> None:
    found = request()
    found.__dict__["step"] = plan_time.StepTime(1 - collectives, collectives)
    assert any("network-bound" in warning for warning in warnings_of(found)) is warns


COMMAND = ["--model", "albert-xxlarge", "--deepspeed_config", str(REPOSITORY / "ds_configs" / "xxlarge.json")]


def request(*more: str, gpu: str = "h100", model: str = "albert-xxlarge", config: str = "xxlarge") -> Plan:
    command = ["--model", model, "--deepspeed_config", str(REPOSITORY / "ds_configs" / f"{config}.json"), "--gpu", gpu]
    return resolve(parse([*command, *more]))


def test_time_and_cost_follow_from_the_speed() -> None:
    found = replace(request("--nodes", "2"), speed=plan_time.Speed(500.0, "given"))
    # 256 rows a GPU, 7.58 TFLOP each
    computing = 256 * model_flops(XXLARGE, 512, 77) / 500e12
    assert found.step.computing == pytest.approx(computing)
    assert found.step.total == computing + found.step.collectives
    assert found.tokens_per_second == pytest.approx(4096 * 512 / found.step.total)
    assert found.mfu == pytest.approx(500 / 989 * computing / found.step.total)
    assert found.days == pytest.approx(125_000 * found.step.total / 86400)
    assert found.gpu_hours == pytest.approx(found.days * 24 * 16)
    assert found.checkpoint_bytes == 12 * 223_158_450
    assert found.usable_memory == 0.92 * 80 * 2**30


def test_the_json_decides_about_memory(tmp_path: Path) -> None:
    config = json.loads((REPOSITORY / "ds_configs" / "xxlarge.json").read_text())
    zero = {"stage": 3, "reduce_bucket_size": 7, "overlap_comm": True, "stage3_max_live_parameters": 9}
    more = {"zero_optimization": zero, "data_types": {"grad_accum_dtype": "fp32"}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | more))
    wanted = request("--deepspeed_config", str(path), "--activation-checkpointing", "layer")
    assert wanted.memory_settings == MemorySettings(
        "fp16", 3, 8, "layer", 32, "fp32", bucket=7, overlap=True, max_live=9
    )
    path.write_text(json.dumps(config | {"zero_optimization": {"stage": 2}}))
    assert request("--deepspeed_config", str(path)).memory_settings == MemorySettings("fp16", 2, 8, accumulation=32)
    assert request("--objective", "mlm").model.sentence_head is None


def test_more_predictions_cost_more_time_and_memory() -> None:
    usual, more = request(), request("--mask-probability", "0.3")
    assert (usual.shape.predictions, more.shape.predictions) == (77, 154)
    plans = usual, more
    flops = [model_flops(XXLARGE, 512, predictions) for predictions in (77, 154)]
    assert plans[1].step.computing / plans[0].step.computing == pytest.approx(flops[1] / flops[0])
    assert plans[1].memory.activations > plans[0].memory.activations


def test_recomputing_costs_time_and_no_mfu_of_its_own() -> None:
    plain, again = (request("--activation-checkpointing", what) for what in ("none", "layer"))
    assert again.step.computing / plain.step.computing == pytest.approx(4 / 3, rel=1e-3)
    assert again.mfu < plain.mfu
    assert again.memory.activations < 0.2 * plain.memory.activations
    assert again.largest_micro_batch > 2 * plain.largest_micro_batch


def test_what_does_not_fit_or_waits_for_the_network_is_said() -> None:
    assert warnings_of(request()) == []
    assert "disk: 7.11 GB of shards for 16.00 GB of text" in report(request()), "2 bytes of 4.5 for a token"
    (warning,) = warnings_of(request(gpu="t4"))
    assert "do not fit into the usable" in warning
    assert "at most" in warning
    (warning,) = warnings_of(request("--nodes", "32", "--network-gbit", "10"))
    assert "network-bound" in warning


def test_a_gpu_of_given_figures() -> None:
    found = request("--gpu-memory", "96", "--gpu-tflops", "500", gpu="rtx-pro-6000")
    assert found.usable_memory == pytest.approx(0.92 * 96e9)
    assert found.cluster.gpu.network_gbit == 100
    assert found.speed.tflops == pytest.approx(250), "half of the peak at this width"
    assert "on 1 x 8 rtx-pro-6000: " in report(found)
    known = request("--gpu-memory", "94", gpu="h100")
    assert (known.cluster.gpu.memory_bytes, known.cluster.gpu.tflops) == (94e9, GPUS["h100"].tflops)
    with pytest.raises(UserError, match=r"not known; choose one of v100, .* or give --gpu-memory and --gpu-tflops"):
        request("--gpu-memory", "96", gpu="rtx-pro-6000")


def test_the_proposal_is_the_fastest_of_those_that_fit() -> None:
    wanted = request("--nodes", "16", gpu="v100")
    best = fastest(wanted)
    assert best is not None
    assert best.fits
    engine = best.engine
    assert engine.micro_batch_size * engine.accumulation_steps == 32
    everything = list(alternatives(wanted))
    assert {found.checkpointing for found in everything} == {"none", "layer"}
    assert {found.engine.zero_stage for found in everything} == {1, 2, 3}  # stage 0 is wrong in fp16
    assert best.step.total <= 1.01 * min(one.step.total for one in everything if one.fits and one.engine.zero_stage < 3)
    assert "fastest that fits" in report(wanted)
    # Stage 3 sends less than stage 1, but too little less to count: 8 passes in 4 micro-steps, 2 in one, 3 at stage 1.
    near = fastest(request("--nodes", "8"))
    assert near is not None
    assert (near.engine.zero_stage, near.engine.micro_batch_size) == (1, 64)
    slow = fastest(request("--nodes", "8", "--network-gbit", "25"))
    assert slow is not None
    assert slow.engine.zero_stage < 3, "it sends least, but a lower stage fits"


def test_stage_0_is_the_last_of_equal_plans(tmp_path: Path) -> None:
    """On one GPU no stage sends anything, and the micro-batch of the whole batch fits at each."""
    json_file = tmp_path / "config.json"
    optimizer = {"type": "Lamb", "params": {"lr": 0.001}}
    json_file.write_text(json.dumps({"train_batch_size": 8, "bf16": {"enabled": True}, "optimizer": optimizer}))
    wanted = request(*("--gpus-per-node", "1", "--deepspeed_config", str(json_file)), model="albert-base")
    plans = [plan for plan in alternatives(wanted) if plan.engine.micro_batch_size == 8]
    fast = [plan for plan in plans if plan.fits and plan.checkpointing == "none"]
    seconds = {plan.engine.zero_stage: plan.step.total for plan in fast}
    assert seconds == dict.fromkeys(range(4), seconds[0])
    best = fastest(wanted)
    assert best is not None
    assert best.engine.zero_stage == 1


def test_empty_rows_cost_time_and_are_not_counted_as_work() -> None:
    # 56 GPUs: at most 74 rows on a GPU, in 5 micro-steps of 15. 4096 of 4200 rows are real.
    whole, uneven = request("--nodes", "8"), request("--nodes", "7")
    engine = uneven.engine
    assert (engine.micro_batch_size, engine.accumulation_steps, engine.empty_rows) == (15, 5, 104)
    assert uneven.step.computing / whole.step.computing == pytest.approx(75 / 64)
    assert uneven.tokens_per_second == pytest.approx(4096 * 512 / uneven.step.total)
    assert uneven.mfu / whole.mfu == pytest.approx(4096 / 4200, rel=1e-2)
    printed = report(uneven)
    assert "batch: 4096 rows of 512 = 15 x 5 accumulated x 56 GPUs - 104 empty (2.5 % of the computation)" in printed
    assert "largest micro-batch that fits: 85, which divides the batch into 74 x 1 accumulated" in printed
    assert "fastest that fits: micro-batch 74" in printed
    assert "empty" not in report(whole)


def test_nothing_is_proposed_that_pretrain_refuses(tmp_path: Path) -> None:
    config = json.loads((REPOSITORY / "ds_configs" / "xxlarge.json").read_text())
    path = tmp_path / "config.json"

    def stages(**changes: object) -> set[int]:
        path.write_text(json.dumps(config | {"fp16": {"enabled": False}, "bf16": {"enabled": True}} | changes))
        wanted = request("--deepspeed_config", str(path))
        return {found.engine.zero_stage for found in alternatives(wanted)}

    assert stages() == {0, 1, 2, 3}
    assert stages(data_types={"grad_accum_dtype": "fp32"}) == {1, 2, 3}  # DeepSpeed cannot, at stage 0
    assert stages(optimizer={"type": "Adam", "params": {"lr": 1e-3}}) == {0, 1, 2, 3}
    path.write_text(json.dumps(config | {"zero_optimization": {"stage": 0}}))
    with pytest.raises(UserError, match="fp16 at ZeRO stage 0"):
        request("--deepspeed_config", str(path))
    for block, words in (
        ({"type": "OneCycle", "params": {}}, "OneCycle"),
        ({"type": "WarmupLR", "params": {"warmup_num_steps": 10**6}}, "warm-up steps do not fit"),
    ):
        path.write_text(json.dumps(config | {"scheduler": block}))
        with pytest.raises(UserError, match=words):
            request("--deepspeed_config", str(path))
    path.write_text(json.dumps(config | {"zero_optimization": {"stage": "auto", "reduce_bucket_size": "auto"}}))
    assert request("--deepspeed_config", str(path)).engine.zero_stage == 1


def test_a_measured_speed_replaces_the_assumption() -> None:
    found = request("--reached-tflops", "600")
    assert (found.speed.tflops, found.speed.source) == (600.0, "--reached-tflops")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--gpu", "h1000"], "h1000"),
        (["--model", "albert-xxxlarge"], "albert-xxlarge"),
        (["--nodes", "0"], "not at least 1"),
        (["--network-gbit", "0"], "not above 0"),
        (["--price-per-gpu-hour", "-1"], "price of at least 0"),
        (["--mask-probability", "1.5"], "mask_probability is 1.5"),
        (["--deepspeed_config", "missing.json"], "missing.json"),
        (["--precision", "bf16", "--gpu", "v100"], "does not have it"),
        (["--reached-tflops", "0"], "not above 0"),
        (["--gpuss-per-node", "3"], "did you mean --gpus-per-node"),
        (["--model-args", "num_hidden_layers=1000000000"], "num_hidden_layers is 1000000000"),
        (["--steps", "9" * 400], "is not at least 1 and at most 1000000000"),
        (["--text-gb", "inf"], "--text-gb: inf is not above 0"),
    ],
    ids=lambda more: " ".join(more)[:30],
)
def test_mistakes_are_one_line(more: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan.main([*COMMAND, "--gpu", "h100", *more]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("price", "line"), [(["2.5"], "cost: 5,473 at 2.5 for a GPU-hour"), (["0"], "cost: 0 at 0 for"), ([], "")]
)
def test_the_command_prints_every_part(price: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--nodes", "8", "--gpus-per-node", "8", "--gpu", "h100"]
    assert plan.main([*COMMAND, *words, *(["--price-per-gpu-hour", *price] if price else [])]) == 0
    printed = capsys.readouterr().out
    for part in (
        "albert-xxlarge, 223,158,450 parameters",
        *(f"\n  {kind}  " for kind in ("weights", "gradients", "optimizer", "activations", "buffers")),
        "memory of a host: 0.54 GB for the copy of a checkpoint",
        "largest micro-batch that fits: 85, which divides the batch into 64 x 1 accumulated",
        "assumed",
        "in collectives",
        "MFU",
        "2,189 GPU-hours",
        "18.75 GB for 7 checkpoints",
        "fastest that fits",
        line,
    ):
        assert part in printed, part
    assert ("cost" in printed) == bool(line)


def test_a_teacher_takes_the_memory_of_its_weights_and_a_forward_pass(corpus, tmp_path: Path) -> None:
    teacher = trained_models.export(tmp_path / "teacher", corpus.vocabulary)
    config = str(REPOSITORY / "ds_configs" / "student.json")
    words = ["--teacher", str(teacher), "--deepspeed_config", config, "--gpu", "t4", "--gpus-per-node", "1"]
    made = resolve(parse([*words, "--model-args", "max_position_embeddings=128"]))
    alone = replace(made, teacher=None)
    trained = parameter_counts(AlbertConfig.from_dict({**made.model.to_dict(), "max_position_embeddings": 64})).backbone
    assert made.memory.total - alone.memory.total == 2 * trained  # fp16; the teacher has the student's sizes here
    seconds = made.step.total - alone.step.total
    flops = sum(forward_flops(made.model, 128, 0)) * 16
    assert seconds == pytest.approx(flops / (1e12 * made.speed.tflops))
    assert "distilled from a teacher" in report(made)
    with pytest.raises(UserError, match=r"--model NAME, or --teacher DIR"):
        resolve(parse(words[2:]))
