"""The plan against what real engines hold, and against sums worked out by hand."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from data_prep.errors import UserError
from model import AlbertConfig
from model.parameter_counts import parameter_counts
from pipeline import plan, plan_memory, plan_time
from pipeline.flops import executed_flops, forward_flops, model_flops
from pipeline.plan_hardware import GPUS, Cluster
from pipeline.plan_memory import Engine, RowShape
from tests.pipeline.conftest import REPOSITORY
from tests.pipeline.workers import processes
from tests.pipeline.workers.plan_cases import BUCKET, Case, measure_all

KINDS = ("weights", "gradients", "optimizer", "activations")
BASE = [Case("albert-base", stage, "bf16", rows=1) for stage in range(4)]
TINY = [Case("albert-tiny", stage, "bf16") for stage in range(4)]
CASES = {
    1: [
        *TINY,
        *BASE,
        *(Case("albert-tiny", stage, "fp32") for stage in range(4)),
        Case("albert-tiny", 1, "bf16", checkpointing="layer"),
        Case("albert-base", 1, "bf16", rows=1, checkpointing="layer"),
        Case("albert-base", 1, "bf16", rows=1, checkpointing="ffn"),
        Case("albert-base", 1, "fp32", rows=1, dropout=0.1),
    ],
    2: [
        *TINY,
        *BASE,
        *(Case("albert-base", stage, "bf16", rows=1, accumulation=1) for stage in (1, 2)),
        *(Case("albert-tiny", stage, "bf16", accumulates="fp32") for stage in (1, 2, 3)),
    ],
    4: [*TINY, *BASE],
}


def engine(case: Case, world: int) -> Engine:
    return Engine(
        case.precision, case.stage, world, case.checkpointing, case.accumulation, case.accumulates, bucket=BUCKET
    )


def predicted(case: Case, world: int) -> plan_memory.Memory:
    shape = RowShape(case.length, case.predictions, 1)
    return plan_memory.memory(case.config, case.rows, shape, engine(case, world))


@pytest.mark.parametrize("world", CASES)
def test_memory_is_within_a_tenth_of_what_engines_hold(world: int, tmp_path: Path) -> None:
    for case, held in processes.run(world, measure_all, CASES[world], scratch=tmp_path).items():
        expected = asdict(predicted(case, world))
        for kind in KINDS:
            assert expected[kind] == pytest.approx(held[kind], rel=0.1), (case, kind)
        assert held["buckets"] == plan_memory.bucket_bytes(engine(case, world)), case
        if world > 1:
            passes = plan_time.passes(case.stage, case.accumulation)
            assert held["passes"] == pytest.approx(passes, rel=0.1), case


def test_a_rank_holds_whole_the_tensors_that_its_slices_cut() -> None:
    # 10 elements in two slices of 5: tensors of 4, 3 and 3. Slice 0 has the first and part of the second: 7.
    # Slice 1 has the second and the third: 6, and of the other group, in slices of 1, an element more.
    assert plan_memory.elements_in_slice([[4, 3, 3]], 2) == 7
    assert plan_memory.elements_in_slice([[4, 3, 3], [1, 1]], 2) == 8
    assert plan_memory.elements_in_slice([[4, 3, 3]], 1) == 10
    assert plan_memory.elements_in_slice([[1]], 4) == 1


XXLARGE = AlbertConfig.preset("albert-xxlarge")
ROW = RowShape(512, 77, 1)


def test_arithmetic_by_hand() -> None:
    # 12 * 512 * 2 * (4 * 4096^2 + 2 * 4096 * 16384) + 4 * 12 * 512^2 * 4096 + 2 * 512 * 128 * 4096
    #   + 77 * (2 * 4096 * 128 + 2 * 128 * 30000) + 2 * 4096^2
    forward = 2_473_901_162_496 + 51_539_607_552 + 536_870_912 + 672_100_352 + 33_554_432
    assert forward_flops(XXLARGE, 512, 77).total == forward
    assert model_flops(XXLARGE, 512, 77) == 3 * forward == pytest.approx(7.58e12, rel=1e-3)
    # With whole blocks recomputed only projection, heads and pooler run three times instead of four.
    assert executed_flops(XXLARGE, 512, 77, "layer") == 4 * forward - 536_870_912 - 672_100_352 - 33_554_432
    ffn = 12 * 512 * 4 * 4096 * 16384
    assert executed_flops(XXLARGE, 512, 77, "ffn") == 3 * forward + ffn
    # 6 blocks of 10 tokens; projection, head and pooler, which E = H and a missing sentence head leave out
    blocks, head = 6 * 10 * 2 * (4 * 64 + 2 * 128) + 4 * 6 * 100 * 8, 3 * (2 * 8 * 4 + 2 * 4 * 50)
    assert forward_flops(small(), 10, 3).total == blocks + 2 * 10 * 4 * 8 + head + 2 * 64
    head = 3 * (2 * 8 * 8 + 2 * 8 * 50)
    assert forward_flops(small(embedding_size=8, sentence_head=None), 10, 3).total == blocks + head
    assert model_flops(AlbertConfig.preset("bert-large"), 512, 77) == pytest.approx(1.02e12, rel=0.01)


@pytest.mark.parametrize(("checkpointing", "most", "least"), [("none", 0.85e9, 0.8e9), ("layer", 0.13e9, 0.11e9)])
def test_xxlarge_keeps_little_for_a_row(checkpointing: str, most: float, least: float) -> None:
    engine = Engine("bf16", 1, 64, checkpointing)
    per_row = [
        plan_memory.activation_bytes(XXLARGE, rows, ROW, engine)
        + plan_memory.block_bytes(XXLARGE, rows * 512, 2)
        - plan_memory.block_bytes(XXLARGE, rows * 512, 2, checkpointing)
        for rows in (1, 2)
    ]
    assert least < per_row[1] - per_row[0] < most


def test_states_of_xxlarge_by_hand() -> None:
    # 223,158,450 parameters: 2 bytes of weights, 2 of gradients, 12 of fp32 weights and moments: 3.57 GB.
    assert parameter_counts(XXLARGE).total == 223_158_450
    weights, gradients, optimizer = plan_memory.parameter_bytes(XXLARGE, Engine("bf16", 0, 8))
    assert (weights, gradients, optimizer) == (446_316_900, 446_316_900, 2_677_901_400)
    weights, gradients, optimizer = plan_memory.parameter_bytes(XXLARGE, Engine("fp16", 3, 8, max_live=0))
    assert (weights, gradients, optimizer) == (446_316_900 / 8, 446_316_900 / 8, 2_677_901_400 / 8)


def test_states_depend_on_stage_accumulation_and_ranks() -> None:
    whole = 446_316_900
    for stage, accumulation, world, weights in ((1, 1, 8, whole), (3, 1, 8, whole / 8 + whole), (3, 1, 1, whole)):
        found = plan_memory.parameter_bytes(XXLARGE, Engine("bf16", stage, world, accumulation=accumulation))
        assert (found[0], found[2]) == (weights, 12 * 223_158_450 / world)
    once, twice, sliced = (
        plan_memory.parameter_bytes(XXLARGE, Engine("bf16", stage, 8, accumulation=accumulation))[1]
        for stage, accumulation in ((1, 1), (1, 2), (2, 2))
    )
    assert whole / 8 <= once == sliced < twice == whole
    weights, gradients, optimizer = plan_memory.parameter_bytes(XXLARGE, Engine("fp32", 0, 8))
    assert (weights, gradients, optimizer) == (2 * whole, 2 * whole, 4 * whole)
    offloaded = plan_memory.memory(XXLARGE, 1, ROW, Engine("bf16", 1, 8, offload=True))
    assert offloaded.optimizer == 0


def small(**fields: object) -> AlbertConfig:
    """Three layers of two blocks: H 8, FFN 16, E 4, V 50."""
    usual = {"vocab_size": 50, "embedding_size": 4, "hidden_size": 8, "num_hidden_layers": 3, "inner_group_num": 2}
    usual |= {"num_attention_heads": 2, "intermediate_size": 16, "hidden_dropout_prob": 0.0}
    return AlbertConfig(**{**usual, **fields})


@pytest.mark.parametrize(
    ("config", "precision", "checkpointing", "expected"),
    [
        # 2 rows of 10 tokens, 3 predictions and 2 pairs: 6 blocks, 2 fused projections, embeddings, head, pooler.
        # A block's attention keeps 7 * 8 numbers and 8 bytes of statistics a token, its feed-forward 8 + 2 * 16 and 8.
        (small(), "bf16", "none", 6 * 20 * (120 + 88) + 2 * 3 * 8 * 9 * 2 + 20 * 40 + 6 * 240 + 4 * 32),
        (small(), "fp32", "none", 6 * 20 * (232 + 168) + 2 * 3 * 8 * 9 * 4 + 20 * 56 + 6 * 280 + 4 * 64),
        (small(), "bf16", "ffn", 6 * 20 * 120 + 864 + 800 + 1440 + 128),
        (small(), "bf16", "layer", 6 * 20 * 16 + 864 + 800 + 1440 + 128),
        # A byte for each number that dropout may take: 8 twice a block, 4 of the embeddings.
        (small(hidden_dropout_prob=0.1), "bf16", "none", 6 * 20 * (128 + 96) + 864 + 20 * 44 + 1440 + 128),
        # E = H: no projection keeps its input; no sentence head: no pooler.
        (small(embedding_size=8, sentence_head=None), "bf16", "none", 24960 + 864 + 20 * 40 + 6 * (32 * 2 + 200)),
    ],
)
def test_activations_by_hand(config: AlbertConfig, precision: str, checkpointing: str, expected: int) -> None:
    engine = Engine(precision, 1, 1, checkpointing)
    assert plan_memory.activation_bytes(config, 2, RowShape(10, 3, 2), engine) == expected


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        # Of 1000 parameters. Logits and their gradient: 6 * 50 * (2 + 4) bytes in 16 bits, 6 * 50 * 8 in fp32.
        (Engine("fp32", 0, 1), 2400),
        (Engine("fp32", 0, 4), 4000),  # the copy of the gradients that is reduced is more than the logits
        (Engine("bf16", 0, 4), 4000),  # and so are the fp32 gradients of the update
        (Engine("bf16", 1, 4, bucket=300), 1800 + 600),
        (Engine("bf16", 1, 4, bucket=300, overlap=True), 1800 + 1200),
        (Engine("bf16", 2, 4, bucket=3000), 2000 + 6000),  # the bucket is whole, the copy only what is in it
        (Engine("bf16", 3, 4, bucket=300, overlap=True), 1800 + 600),  # stage 3 has one bucket
        (Engine("bf16", 3, 1, bucket=300), 4000 + 600),  # and keeps it during the update,
        (Engine("bf16", 2, 1, bucket=300), 4000),  # where stage 2 has none
        (Engine("bf16", 1, 4, "layer", bucket=300), 20 * (208 - 16) + 1800 + 600),
        (Engine("bf16", 1, 4, "ffn", bucket=300), 20 * 88 + 1800 + 600),
    ],
)
def test_buffers_by_hand(engine: Engine, expected: int) -> None:
    assert plan_memory.buffer_bytes(small(), 1000, 2, RowShape(10, 3, 2), engine) == expected


@pytest.mark.parametrize(("width", "percent"), [(768, 30), (1024, 40), (2048, 50), (4096, 50)])
def test_the_assumed_speed_grows_with_the_width(width: int, percent: int) -> None:
    config = AlbertConfig(hidden_size=width, num_attention_heads=8)
    speed = plan_time.assumed_speed(config, 1000.0)
    assert speed.tflops == pytest.approx(10 * percent)
    assert speed.source == f"assumed: {percent} % of 1000 TFLOP/s at width {width}"


@pytest.mark.parametrize("checkpointing", ["none", "ffn", "layer"])
@pytest.mark.parametrize("gigabytes", [1, 5, 40, 80])
def test_the_largest_micro_batch_fits_and_the_next_does_not(checkpointing: str, gigabytes: int) -> None:
    engine = Engine("fp16", 1, 8, checkpointing, bucket=224_000_000)
    rows = plan_memory.largest_micro_batch(XXLARGE, ROW, engine, gigabytes * 1e9)
    assert plan_memory.memory(XXLARGE, rows + 1, ROW, engine).total > gigabytes * 1e9
    assert rows == 0 or plan_memory.memory(XXLARGE, rows, ROW, engine).total <= gigabytes * 1e9
    assert (rows == 0) == (gigabytes == 1)


@pytest.mark.parametrize(
    ("nodes", "gpus", "stage", "accumulation", "seconds"),
    [
        # 1e9 parameters in bf16 are 2e9 bytes; links 450e9 B/s, network 3200 Gbit/s = 400e9 B/s, 80 % of both reached.
        (1, 1, 1, 4, 0.0),
        (1, 8, 1, 4, 3 * 7 / 8 * 2e9 / 360e9),
        (1, 8, 2, 4, 9 * 7 / 8 * 2e9 / 360e9),
        (1, 8, 3, 4, 8 * 7 / 8 * 2e9 / 360e9),
        (8, 1, 0, 1, 2 * 7 / 8 * 2e9 / 320e9),
        (2, 8, 1, 1, 3 * 15 / 16 * 2e9 / 320e9),  # a ring over 16 GPUs; the network is slower than the links
    ],
)
def test_seconds_in_collectives(nodes: int, gpus: int, stage: int, accumulation: int, seconds: float) -> None:
    cluster = Cluster(GPUS["h100"], nodes, gpus)
    assert plan_time.collective_seconds(10**9, "bf16", stage, accumulation, cluster) == pytest.approx(seconds)


def test_a_gpu_alone_on_its_node_waits_for_the_network_only() -> None:
    # L40S: links 32e9 B/s, network 400 Gbit/s = 50e9 B/s
    found = plan_time.collective_seconds(10**9, "bf16", 0, 1, Cluster(GPUS["l40s"], 2, 1))
    assert found == pytest.approx(2 * 1 / 2 * 2e9 / (0.8 * 50e9))


@pytest.mark.parametrize(("collectives", "warns"), [(0.19, False), (0.21, True)])
def test_more_than_a_fifth_of_a_step_is_network_bound(collectives: float, warns: bool) -> None:
    found = replace(plan.make_plan(request()), step=plan_time.StepTime(1 - collectives, collectives))
    assert any("network-bound" in warning for warning in plan.warnings_of(found)) is warns


def request(*more: str, gpu: str = "h100", model: str = "albert-xxlarge", config: str = "xxlarge") -> plan.Request:
    command = ["--model", model, "--deepspeed_config", str(REPOSITORY / "ds_configs" / f"{config}.json"), "--gpu", gpu]
    return plan.resolve(plan.parser().parse_all([*command, *more]))


def test_time_and_cost_follow_from_the_speed() -> None:
    wanted = replace(request("--nodes", "2"), speed=plan_time.Speed(500.0, "given"))
    found = plan.make_plan(wanted)
    # 256 rows a GPU, 7.58 TFLOP each
    computing = 256 * model_flops(XXLARGE, 512, 77) / 500e12
    assert found.step.computing == pytest.approx(computing)
    assert found.step.total == computing + found.step.collectives
    assert found.tokens_per_second == pytest.approx(4096 * 512 / found.step.total)
    assert found.mfu == pytest.approx(500 / 989 * computing / found.step.total)
    assert found.days == pytest.approx(125_000 * found.step.total / 86400)
    assert found.gpu_hours == pytest.approx(found.days * 24 * 16)
    assert found.checkpoint_bytes == 7 * 12 * 223_158_450
    assert found.data_bytes == pytest.approx(2 * 16e9 / 4.5)
    assert found.available == 0.92 * 80 * 2**30


def test_the_json_decides_about_memory(tmp_path: Path) -> None:
    config = json.loads((REPOSITORY / "ds_configs" / "xxlarge.json").read_text())
    zero = {"stage": 3, "reduce_bucket_size": 7, "overlap_comm": True, "stage3_max_live_parameters": 9}
    zero["offload_optimizer"] = {"device": "cpu"}
    more = {"zero_optimization": zero, "data_types": {"grad_accum_dtype": "fp32"}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | more | {"zero_force_ds_cpu_optimizer": False}))
    wanted = request("--deepspeed_config", str(path), "--activation-checkpointing", "ffn")
    assert wanted.memory_engine == Engine(
        "fp16", 3, 8, "ffn", 32, "fp32", bucket=7, overlap=True, max_live=9, offload=True
    )
    path.write_text(json.dumps(config | {"zero_optimization": {"stage": 2}}))
    assert request("--deepspeed_config", str(path)).memory_engine == Engine("fp16", 2, 8, accumulation=32)
    assert request("--objective", "mlm").model.sentence_head is None


def test_a_smaller_batch_takes_as_many_more_steps() -> None:
    assert request("--nodes", "2").steps == 125_000
    assert request("--gpus-per-node", "2", model="albert-tiny", config="tiny").steps == 125_000 * 64


def test_recomputing_costs_time_and_no_mfu_of_its_own() -> None:
    plain, again = (plan.make_plan(request("--activation-checkpointing", what)) for what in ("none", "layer"))
    assert again.step.computing / plain.step.computing == pytest.approx(4 / 3, rel=1e-3)
    assert again.mfu < plain.mfu
    assert again.memory.activations < 0.2 * plain.memory.activations
    assert again.largest_micro_batch > 2 * plain.largest_micro_batch


def test_what_does_not_fit_or_waits_for_the_network_is_said() -> None:
    assert plan.warnings_of(plan.make_plan(request())) == []
    (warning,) = plan.warnings_of(plan.make_plan(request(gpu="t4")))
    assert "do not fit" in warning
    assert "at most" in warning
    (warning,) = plan.warnings_of(plan.make_plan(request("--nodes", "32", "--network-gbit", "10")))
    assert "network-bound" in warning


def test_the_proposal_is_the_fastest_of_those_that_fit() -> None:
    wanted = request("--nodes", "16", gpu="v100")
    best = plan.fastest(wanted)
    assert best is not None
    assert best.fits
    engine = best.request.engine
    assert engine.micro_batch_size * engine.accumulation_steps == 32
    everything = [plan.make_plan(other) for other in plan.alternatives(wanted)]
    assert {found.request.checkpointing for found in everything} == {"none", "ffn", "layer"}
    assert {found.request.engine.zero_stage for found in everything} == {1, 2, 3}  # stage 0 is wrong in fp16
    assert best.step.total <= 1.01 * min(found.step.total for found in everything if found.fits)
    assert "fastest that fits" in plan.report(plan.make_plan(wanted))
    # Stage 3 sends less than stage 1, but too little less to count: 8 passes in 4 micro-steps, 2 in one, 3 at stage 1.
    near = plan.fastest(request("--nodes", "8"))
    assert near is not None
    assert (near.request.engine.zero_stage, near.request.engine.micro_batch_size) == (1, 64)
    slow = plan.fastest(request("--nodes", "8", "--network-gbit", "25"))
    assert slow is not None
    assert slow.request.engine.zero_stage == 3


def test_nothing_is_proposed_that_pretrain_refuses(tmp_path: Path) -> None:
    config = json.loads((REPOSITORY / "ds_configs" / "xxlarge.json").read_text())
    path = tmp_path / "config.json"

    def stages(**changes: object) -> set[int]:
        path.write_text(json.dumps(config | {"fp16": {"enabled": False}, "bf16": {"enabled": True}} | changes))
        wanted = request("--deepspeed_config", str(path))
        return {found.engine.zero_stage for found in plan.alternatives(wanted)}

    assert stages() == {0, 1, 2, 3}
    assert stages(data_types={"grad_accum_dtype": "fp32"}) == {1, 2, 3}  # DeepSpeed cannot, at stage 0
    assert stages(optimizer={"type": "Adam", "params": {"lr": 1e-3}}) == {1, 2, 3}
    path.write_text(json.dumps(config | {"zero_optimization": {"stage": 0}}))
    with pytest.raises(UserError, match="fp16 at ZeRO stage 0"):
        request("--deepspeed_config", str(path))


def test_a_benchmark_replaces_the_assumption(tmp_path: Path) -> None:
    row = {"model": "albert-xxlarge", "precision": "fp16", "system": "this", "text": "full rows", "micro_batch": 32}
    rows = [row | {"tflops": 500.0}, row | {"tflops": 600.0, "micro_batch": 64}]
    rows += [row | {"tflops": 900.0, "text": "natural length"}, row | {"tflops": 950.0, "model": "albert-base"}]
    rows += [row | {"system": "transformers"}]
    result = {"format": "train_step 1", "device": "cuda", "date": "2026-01-01", "measurements": rows}
    result |= {"hardware": {"name": "NVIDIA H100 80GB HBM3"}}
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result))
    assert request("--benchmark", str(path)).speed.tflops == 600.0
    assert plan.warnings_of(plan.make_plan(request("--benchmark", str(path)))) == []
    (warning,) = plan.warnings_of(plan.make_plan(request("--benchmark", str(path), gpu="h200")))
    assert warning == "the speed was measured on NVIDIA H100 80GB HBM3, not on H200 141 GB"
    assert "micro-batch 64" in request("--benchmark", str(path)).speed.source
    with pytest.raises(UserError, match="no measurement of albert-xxlarge in bf16"):
        request("--benchmark", str(path), "--precision", "bf16")
    path.write_text(json.dumps(result | {"device": "cpu"}))
    with pytest.raises(UserError, match="is no GPU"):
        request("--benchmark", str(path))
    path.write_text("{}")
    with pytest.raises(UserError, match="no result of benchmarks"):
        request("--benchmark", str(path))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--gpu", "h1000"], "h1000.*choose one of"),
        (["--model", "albert-xxxlarge"], "albert-xxlarge"),
        (["--nodes", "3"], "not a multiple"),
        (["--nodes", "0"], "not at least 1"),
        (["--network-gbit", "0"], "not above 0"),
        (["--deepspeed_config", "missing.json"], "missing.json"),
        (["--precision", "bf16", "--gpu", "v100"], "does not have it"),
        (["--benchmark", "missing.json"], "cannot be read"),
        (["--gpuss-per-node", "3"], "did you mean --gpus-per-node"),
    ],
)
def test_mistakes_are_one_line(more: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--model", "albert-xxlarge", "--deepspeed_config", str(REPOSITORY / "ds_configs" / "xxlarge.json")]
    assert plan.main([*command, "--gpu", "h100", *more]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    with pytest.raises(UserError, match=message):
        raise UserError(error)


def test_the_command_prints_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--model", "albert-xxlarge", "--deepspeed_config", str(REPOSITORY / "ds_configs" / "xxlarge.json")]
    assert plan.main([*command, "--nodes", "8", "--gpus-per-node", "8", "--gpu", "h100"]) == 0
    printed = capsys.readouterr().out
    for part in (
        "albert-xxlarge, 223,158,450 parameters",
        "weights",
        "gradients",
        "optimizer",
        "activations",
        "buffers",
        "largest micro-batch that fits: 93; of those that divide the batch 64",
        "assumed",
        "in collectives",
        "MFU",
        "GPU-hours",
        "checkpoints",
        "fastest that fits",
    ):
        assert part in printed, part
