"""Memory and arithmetic of a step: against what real engines hold, and against sums worked out by hand."""

import gc
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from model import AlbertConfig, AlbertForPreTraining, ExecutionOptions
from model.counts import executed_flops, forward_flops, model_flops, parameter_counts
from pipeline.data.collate import BatchShape
from pipeline.engine import deepspeed_config, estimates, zero_layout
from pipeline.engine.estimates import Memory, Plan
from pipeline.engine.hardware import GPUS, Cluster, Hardware
from pipeline.engine.lamb import Lamb
from pipeline.engine.optimizers import parameter_groups
from tests.pipeline.workers import processes, training

BUCKET = 200_000


@dataclass(frozen=True)
class Case:
    """A model, how it is trained, and rows of S positions with M predictions."""

    preset: str
    stage: int
    precision: str
    rows: int = 2
    length: int = 160
    checkpointing: str = "none"
    dropout: float = 0.0
    accumulation: int = 2
    accumulates: str | None = None

    @property
    def predictions(self) -> int:
        return self.length // 8

    @property
    def config(self) -> AlbertConfig:
        fields = {"max_position_embeddings": self.length, "hidden_dropout_prob": self.dropout}
        return AlbertConfig.preset(self.preset, attention_probs_dropout_prob=0.0, **fields)


def batch(case: Case) -> dict[str, Tensor]:
    """Rows of one pair each, without padding."""
    generator = torch.Generator().manual_seed(0)
    shape, chosen = (case.rows, case.length), (case.rows, case.predictions)
    return {
        "input_ids": torch.randint(5, 30000, shape, generator=generator),
        "token_type_ids": torch.zeros(shape, dtype=torch.int64),
        "position_ids": torch.arange(case.length).repeat(case.rows, 1),
        "sequence_ids": torch.zeros(shape, dtype=torch.int64),
        "masked_positions": torch.arange(case.predictions).repeat(case.rows, 1),
        "masked_labels": torch.randint(5, 30000, chosen, generator=generator),
        "cls_positions": torch.zeros(case.rows, 1, dtype=torch.int64),
        "sentence_labels": torch.ones(case.rows, 1, dtype=torch.int64),
    }


def sums(case: Case) -> dict[str, Any]:
    """The keys of the JSON for the dtype in which gradients are added up."""
    dtype = case.accumulates
    return {} if dtype is None else {"data_types": {"grad_accum_dtype": dtype}, "communication_data_type": dtype}


def settings(case: Case) -> dict[str, Any]:
    json: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": case.rows,
        "gradient_accumulation_steps": case.accumulation,
        "gradient_clipping": 1.0,
        "steps_per_print": None,
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {
            "stage": case.stage,
            "reduce_bucket_size": BUCKET,
            "allgather_bucket_size": BUCKET,
            "stage3_param_persistence_threshold": 0,
        },
    }
    return json | sums(case) | ({} if case.precision == "fp32" else {case.precision: {"enabled": True}})


def total(tensors: Iterable[Tensor | None]) -> int:
    """Bytes of the distinct storages behind `tensors`."""
    storages = {}
    for tensor in tensors:
        if tensor is not None and tensor.numel():
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def flat(nested: Any) -> list[Tensor]:
    """The tensors in lists and dictionaries of lists and dictionaries."""
    if torch.is_tensor(nested):
        return [nested]
    values = nested.values() if isinstance(nested, dict) else nested if isinstance(nested, list | tuple) else []
    return [tensor for value in values for tensor in flat(value)]


def weights(engine: Any) -> int:
    parameters = list(engine.module.parameters())
    return total([parameter.data for parameter in parameters] + [getattr(p, "ds_tensor", None) for p in parameters])


def gradients(engine: Any) -> int:
    held = [parameter.grad for parameter in engine.module.parameters()]
    held += [getattr(parameter, "grad_accum", None) for parameter in engine.module.parameters()]
    names = ("averaged_gradients", "all_grad_tensors", "grads_in_partition")
    for name in (*names, "grad_partitions_flat_buffer", "fp32_groups_gradients_flat"):
        held += flat(getattr(engine.optimizer, name, None))
    return total(held)


def watch_buckets(engine: Any) -> list[int]:
    """A list that gets the bytes of the reduce buckets whenever there are new ones."""
    optimizer, seen = engine.optimizer, [0]
    buckets = getattr(optimizer, "ipg_buckets", {})
    if (make := getattr(optimizer, "setup_buckets", None)) is None:
        return [total(flat([bucket.buffer for bucket in buckets.values()]))]

    def make_and_look() -> None:
        make()
        seen.append(total(flat([bucket.buffer for bucket in buckets.values()])))

    optimizer.setup_buckets = make_and_look
    return seen


def optimizer(engine: Any) -> int:
    """Of the fp32 weights, those that are not the model's own."""
    own = {parameter.data.untyped_storage().data_ptr() for parameter in engine.module.parameters()}
    flats = {id(here.flat): here.flat for here in zero_layout.slices(engine)}
    held = [flat for flat in flats.values() if flat.untyped_storage().data_ptr() not in own]
    return total(held + flat(list(engine.basic_optimizer.state.values())))


def measure(case: Case) -> dict[str, float]:
    """Bytes by kind, each when most of it is held; stage 3 gathers as it will from its second step on."""
    import deepspeed

    training.claim_fp16()
    torch.manual_seed(0)
    model = AlbertForPreTraining(case.config, ExecutionOptions(case.checkpointing, chunked_loss=True))
    engine, *_ = deepspeed.initialize(model=model, optimizer=Lamb(parameter_groups(model)), config=settings(case))
    zero_layout.attach(engine)
    inputs = batch(case)
    buckets = watch_buckets(engine)
    found = dict.fromkeys(("weights", "gradients", "optimizer", "activations", "buckets"), 0.0)
    for _ in range(2 if case.stage == 3 else 1):
        for _ in range(case.accumulation):
            kept: list[Tensor] = []

            def keep(tensor: Tensor, kept: list[Tensor] = kept) -> Tensor:
                own = {parameter.data.untyped_storage().data_ptr() for parameter in engine.module.parameters()}
                if tensor.untyped_storage().data_ptr() not in own:
                    kept.append(tensor)
                return tensor

            hooks = []
            # What goes into a checkpointed block is held by the checkpoint, past these hooks.
            for block in engine.module.albert.encoder.attention:
                hooks.append(
                    block.query_key_value.register_forward_hook(lambda _, __, made, kept=kept: kept.append(made.weight))
                )
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                output = engine(**inputs)
            for hook in hooks:
                hook.remove()
            found["activations"] = total(kept)
            found["weights"] = max(found["weights"], weights(engine))
            kept.clear()
            engine.backward((output.mlm_loss_sum + output.sentence_loss_sum) / 100)
            found["gradients"] = max(found["gradients"], gradients(engine))
            engine.step()
    found["buckets"] = max(buckets)
    found["optimizer"] = optimizer(engine)
    engine.destroy()
    gc.collect()
    return found


def measure_all(cases: list[Case]) -> dict[Case, dict[str, float]]:
    """Every case, one after the other in the same processes: the most of all ranks."""
    measured = {case: measure(case) for case in cases}
    for found in measured.values():
        most = torch.tensor(list(found.values()), dtype=torch.float64)
        torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
        found.update(zip(found, most.tolist()))
    return measured


KINDS = ("weights", "gradients", "optimizer", "activations")
TINY = [Case("albert-tiny", stage, "bf16") for stage in range(4)]
CASES = {
    1: [
        *TINY[::2],
        Case("albert-tiny", 3, "fp32"),
        Case("albert-tiny", 1, "bf16", checkpointing="layer"),
        Case("albert-base", 1, "fp32", rows=1, length=64, dropout=0.1),
    ],
    2: [
        *TINY,
        Case("albert-tiny", 1, "bf16", accumulation=1),
        *(Case("albert-tiny", stage, "bf16", accumulates="fp32") for stage in (1, 2, 3)),
        Case("albert-tiny", 1, "fp16", accumulates="fp32"),
    ],
}


H100, SHAPE = GPUS["h100"], BatchShape(10, pairs=2, predictions=3)


def make_plan(
    config: AlbertConfig,
    precision: str = "bf16",
    stage: int = 1,
    world: int = 1,
    rows: int = 2,
    accumulation: int = 1,
    checkpointing: str = "none",
    shape: BatchShape = SHAPE,
    cluster: Cluster | None = None,
    zero: dict[str, Any] | None = None,
    **more: Any,
) -> Plan:
    """A plan for `world` GPUs, or for those of `cluster`. `zero` and `more` are of the DeepSpeed JSON."""
    cluster = cluster or Cluster(H100, 1, world)
    json = {
        "train_batch_size": rows * accumulation * cluster.world_size,
        "train_micro_batch_size_per_gpu": rows,
        "optimizer": {"type": "Lamb", "params": {"lr": 0.001}},
        "zero_optimization": {"stage": stage, "reduce_bucket_size": BUCKET} | (zero or {}),
    } | more
    hardware = Hardware("GPU", fp16=True, bf16=True)
    engine = deepspeed_config.fit(json, cluster.world_size, hardware, precision)
    return Plan(config, engine, cluster, shape, checkpointing, tflops=500.0, steps=1000)


def predicted(case: Case, world: int) -> Memory:
    return make_plan(
        case.config, case.precision, case.stage, world, case.rows, case.accumulation, case.checkpointing,
        shape=BatchShape(case.length, 1, case.predictions), **sums(case),
    ).memory  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("world", CASES)
def test_memory_is_within_a_tenth_of_what_engines_hold(world, tmp_path):
    """But the gradients at stages 1 and 2, of which a rank may keep a part only after the backward pass."""
    for case, held in processes.run(world, measure_all, CASES[world], scratch=tmp_path).items():
        expected = predicted(case, world)._asdict()
        for kind in KINDS:
            assert held[kind] <= 1.1 * expected[kind], (case, kind)
            if kind != "gradients" or case.stage in (0, 3) or world == 1:
                assert expected[kind] == pytest.approx(held[kind], rel=0.1), (case, kind)
        if (case.stage, case.precision, case.accumulates) == (1, "bf16", "fp32"):
            continue  # runtime/bf16_optimizer.py has no buckets
        is_fp32 = case.precision == "fp32" or (case.accumulates == "fp32" and case.stage in (1, 3))
        assert held["buckets"] == (BUCKET * (4 if is_fp32 else 2) if case.stage else 0), case


def small(**fields: object) -> AlbertConfig:
    """Six layers of two groups: H 8, FFN 16, E 4, V 50."""
    usual = {"vocab_size": 50, "embedding_size": 4, "hidden_size": 8, "num_hidden_layers": 6, "num_hidden_groups": 2}
    usual |= {"num_attention_heads": 2, "intermediate_size": 16, "hidden_dropout_prob": 0.0}
    return AlbertConfig(**{**usual, **fields})


PARAMETERS = parameter_counts(small()).total
XXLARGE = AlbertConfig.preset("albert-xxlarge")
ROW = BatchShape(512, pairs=1, predictions=77)


def test_arithmetic_by_hand():
    # 12 * 512 * 2 * (4 * 4096^2 + 2 * 4096 * 16384) + 4 * 12 * 512^2 * 4096 + 2 * 512 * 128 * 4096
    #   + 77 * (2 * 4096 * 128 + 2 * 128 * 30000) + 2 * 4096^2
    forward = 2_473_901_162_496 + 51_539_607_552 + 536_870_912 + 672_100_352 + 33_554_432
    assert sum(forward_flops(XXLARGE, 512, 77)) == forward
    assert model_flops(XXLARGE, 512, 77) == 3 * forward == pytest.approx(7.58e12, rel=1e-3)
    # With whole blocks recomputed only projection, heads and pooler run three times instead of four.
    assert executed_flops(XXLARGE, 512, 77, "layer") == 4 * forward - 536_870_912 - 672_100_352 - 33_554_432
    # 6 blocks of 10 tokens; projection, head and pooler, which E = H and a missing sentence head leave out
    blocks, head = 6 * 10 * 2 * (4 * 64 + 2 * 128) + 4 * 6 * 100 * 8, 3 * (2 * 8 * 4 + 2 * 4 * 50)
    assert sum(forward_flops(small(), 10, 3)) == blocks + 2 * 10 * 4 * 8 + head + 2 * 64
    head = 3 * (2 * 8 * 8 + 2 * 8 * 50)
    assert sum(forward_flops(small(embedding_size=8, sentence_head=None), 10, 3)) == blocks + head
    assert model_flops(AlbertConfig.preset("bert-large"), 512, 77) == pytest.approx(1.02e12, rel=0.01)


@pytest.mark.parametrize(
    ("precision", "stage", "world", "zero", "buffers", "update"),
    [
        # 3,688 parameters. Of 6 predictions the logits take 6 * 50 * 12 bytes. A full bucket is copied; at stage 0
        # without a bucket of its own.
        ("fp32", 0, 1, {}, 3600, 0),
        ("fp32", 0, 4, {"reduce_bucket_size": 1000}, 4 * 1000, 0),
        ("bf16", 0, 4, {"reduce_bucket_size": 300}, 3600, 4 * PARAMETERS),
        ("bf16", 1, 4, {"reduce_bucket_size": 300, "overlap_comm": True}, 3600 + 1200, (2 + 4) * PARAMETERS / 4),
        ("bf16", 2, 4, {"reduce_bucket_size": 9000}, 2 * PARAMETERS + 18_000, (2 + 4) * PARAMETERS / 4),
        ("bf16", 3, 4, {"reduce_bucket_size": 300, "overlap_comm": True}, 3600 + 600, 6 * PARAMETERS / 4 + 600),
        ("fp32", 1, 1, {"reduce_bucket_size": 300}, 3600 + 1200, 4 * PARAMETERS),
    ],
)
def test_buffers_and_update_by_hand(precision, stage, world, zero, buffers, update):
    found = make_plan(small(), precision, stage, world, zero=zero).memory
    assert (found.buffers, found.update) == (buffers, update)


def test_what_is_computed_again_casts_of_gradients_and_no_more_than_a_chunk_of_logits_take_memory():
    zero = {"reduce_bucket_size": 300}
    plain, again = (make_plan(small(), checkpointing=what, zero=zero).memory.buffers for what in ("none", "layer"))
    assert again - plain == 20 * (208 - 16)
    cast = make_plan(small(), world=4, communication_data_type="fp32").memory.buffers
    assert cast == (2 + 4) * PARAMETERS + 2 * BUCKET
    assert make_plan(XXLARGE, rows=64, shape=ROW, precision="fp32").memory.buffers == 2048 * 30_000 * 12 + 4 * BUCKET


@pytest.mark.parametrize(
    ("rows", "pairs", "expected"),
    [
        # (512 rows + 128 sequences) tokens of 64 heads of 64 numbers of 4 bytes. The offsets have one of four lengths
        # from each power of two to the next: 64 x 2 = 128, 64 x 33 = 2112 becomes 2560.
        (64, 1, (32768 + 16384) * 16384),  # 0.81 GB
        (64, 32, (32768 + 327_680) * 16384),  # 5.91 GB
    ],
)
def test_what_flash_attention_takes_by_hand(rows, pairs, expected):
    shape = BatchShape(512, pairs=pairs, predictions=77)
    assert estimates.attention_bytes(make_plan(XXLARGE, "fp16", rows=rows, shape=shape)) == expected
    assert estimates.attention_bytes(make_plan(XXLARGE, "fp32", rows=rows, shape=shape)) == 0
    assert estimates.attention_bytes(make_plan(small())) == 0  # heads of 4


@pytest.mark.parametrize("checkpointing", ["none", "layer"])
@pytest.mark.parametrize("gigabytes", [1, 5, 40, 80])
def test_the_largest_micro_batch_fits_and_the_next_does_not(checkpointing, gigabytes):
    gpu = replace(H100, memory_bytes=gigabytes * 1e9)
    zero = {"reduce_bucket_size": 224_000_000}
    plan = make_plan(XXLARGE, "fp16", cluster=Cluster(gpu, 1, 8), checkpointing=checkpointing, shape=ROW, zero=zero)
    largest, next_one = (
        replace(plan, engine=replace(plan.engine, micro_batch_size=plan.largest_micro_batch + more)) for more in (0, 1)
    )
    assert not next_one.fits
    assert largest.fits == (plan.largest_micro_batch > 0) == (gigabytes > 1)


@pytest.mark.parametrize(
    ("kind", "nodes", "gpus", "stage", "accumulation", "seconds"),
    [
        # Psi parameters in bf16 are 2 Psi bytes; links 450e9 B/s, network 3200 Gbit/s = 400e9 B/s, 80 % of both
        # reached.
        ("h100", 1, 1, 1, 4, 0.0),
        ("h100", 1, 8, 1, 4, 3 * 7 / 8 * 2 / 360e9),
        ("h100", 1, 8, 3, 4, 8 * 7 / 8 * 2 / 360e9),
        ("h100", 8, 1, 0, 1, 2 * 7 / 8 * 2 / 320e9),
        ("h100", 2, 8, 1, 1, 3 * 15 / 16 * 2 / 320e9),  # a ring over 16 GPUs; the network is slower than the links
        # L40S: links 32e9 B/s, network 400 Gbit/s = 50e9 B/s; a GPU alone on its node waits for the network only.
        ("l40s", 2, 1, 0, 1, 2 * 1 / 2 * 2 / (0.8 * 50e9)),
    ],
)
def test_seconds_in_collectives(kind, nodes, gpus, stage, accumulation, seconds):
    cluster = Cluster(GPUS[kind], nodes, gpus)
    plan = make_plan(small(), stage=stage, accumulation=accumulation, cluster=cluster)
    assert estimates.collective_seconds(plan) == pytest.approx(seconds * PARAMETERS)
    if cluster.world_size > 1 and stage == 1:  # two passes of gradients, now of 4 bytes, and one of weights
        wider = make_plan(
            small(), stage=stage, accumulation=accumulation, cluster=cluster, communication_data_type="fp32"
        )
        assert estimates.collective_seconds(wider) == pytest.approx(5 / 3 * seconds * PARAMETERS)
