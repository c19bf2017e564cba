"""DeepSpeed JSONs: batch arithmetic by hand, precision by hardware, invalid ones; DeepSpeed takes the project's own."""

import dataclasses
import json
from types import SimpleNamespace

import pytest
import torch
from deepspeed.runtime.config import DeepSpeedConfig
from hypothesis import given
from hypothesis import strategies as st

from common.errors import UserError
from model import AlbertConfig, AlbertForPreTraining
from model.counts import parameter_counts
from pipeline.engine import deepspeed_config
from pipeline.engine.hardware import Hardware
from tests.pipeline.conftest import REPOSITORY

CPU = Hardware("CPU", fp16=False, bf16=True)
OLD_CPU = Hardware("CPU", fp16=False, bf16=False)
GPU = Hardware("GPU", fp16=True, bf16=True)

SIZES = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
LAMB = {"type": "Lamb", "params": {"lr": 0.01}}


@pytest.mark.parametrize(
    ("batch", "micro", "accumulation", "world", "expected"),
    [
        (4096, 32, None, 64, (4096, 32, 2)),  # 4096 / (32 * 64)
        (4096, None, 2, 8, (4096, 256, 2)),  # 4096 / (2 * 8)
        # Batches that do not divide. Seven nodes of eight: at most 74 rows on a rank, in two micro-steps of 37.
        (4096, 64, None, 56, (4096, 37, 2)),
        (8, 16, None, 2, (8, 4, 1)),  # a rank has fewer rows than the micro-batch
        (12, 2, None, 5, (12, 2, 2)),  # 3 rows on a rank: in two micro-steps of at most 2
        (3, 2, None, 5, (3, 1, 1)),  # two ranks have nothing
        (7, None, 8, 2, (7, 1, 4)),  # in the other four micro-steps no rank would have a row
    ],
)
def test_the_open_size_is_derived_and_the_batch_spread_evenly(batch, micro, accumulation, world, expected):
    config = {name: size for name, size in zip(SIZES, (batch, micro, accumulation)) if size is not None}
    assert deepspeed_config.batch_sizes(config, world) == expected


@given(batch=st.integers(1, 5000), micro=st.integers(1, 300), world=st.integers(1, 600))
def test_the_division_holds_the_batch_and_wastes_little(batch, micro, world):
    _, size, steps = deepspeed_config.batch_sizes(
        {"train_batch_size": batch, "train_micro_batch_size_per_gpu": micro}, world
    )
    assert size <= micro
    assert (steps - 1) * size * world < batch <= steps * size * world, "no micro-step is empty on all ranks"
    assert steps == -(-batch // (micro * world)), "no smaller micro-batch costs a micro-step"
    rows = -(-batch // world)
    assert rows <= steps * size < rows + steps, "of a rank's rows less than one in each micro-step is too many"


def test_what_deepspeed_gets_is_a_product_and_the_batch_stays_the_user_s():
    config = {"train_batch_size": 12, "train_micro_batch_size_per_gpu": 2, "optimizer": LAMB}
    fitted = deepspeed_config.fit(config, 5, CPU)
    assert [fitted.json[name] for name in SIZES] == [20, 2, 2]
    assert (fitted.train_batch_size, fitted.empty_rows) == (12, 8)
    wanted = "12 rows = 2 x 2 accumulated x 5 ranks - 8 empty (40.0 % of the computation)"
    assert fitted.describe_batch("rows") == wanted
    assert deepspeed_config.fit(config, 3, CPU).describe_batch("rows", "GPU") == "12 rows = 2 x 2 accumulated x 3 GPUs"
    config["gradient_accumulation_steps"] = 2
    assert deepspeed_config.fit(config, 3, CPU).notes == ()
    (note,) = deepspeed_config.fit(config, 2, CPU).notes
    assert note == "gradient_accumulation_steps is 3, not 2 as the JSON says, to train 12 rows on 2 ranks"


@pytest.mark.parametrize(("sizes", "words"), [((64, 16, 3), "contradicts"), ((None, 16, 3), "has no train_batch_size")])
def test_sizes_that_cannot_be_meant_are_refused(sizes, words):
    with pytest.raises(UserError, match=words):
        deepspeed_config.batch_sizes({name: size for name, size in zip(SIZES, sizes) if size is not None}, 2)


@pytest.mark.parametrize(
    ("fp16", "bf16", "hardware", "choice", "expected", "noted"),
    [
        (True, None, GPU, "auto", "fp16", False),
        (True, None, CPU, "auto", "bf16", True),
        (True, None, OLD_CPU, "auto", "fp32", True),
        (None, True, OLD_CPU, "auto", "fp32", True),
        (True, None, GPU, "fp32", "fp32", True),
        (True, None, CPU, "config", None, False),
        (None, None, CPU, "fp16", None, False),
        (True, True, GPU, "auto", None, False),
        # "auto" in the JSON is the best that the hardware has.
        ("auto", None, GPU, "auto", "bf16", False),
        (None, "auto", OLD_CPU, "auto", "fp32", False),
        ("auto", None, Hardware("V100", fp16=True, bf16=False), "auto", "fp16", False),
        ("auto", False, GPU, "auto", "fp16", False),  # bf16 is switched off
        ("auto", False, CPU, "auto", "fp32", False),
        ("auto", True, GPU, "auto", "bf16", False),
        (True, "auto", GPU, "auto", "fp16", False),
    ],
)
def test_precision_follows_json_hardware_and_flag(fp16, bf16, hardware, choice, expected, noted):
    config = {kind: {"enabled": value} for kind, value in (("fp16", fp16), ("bf16", bf16)) if value is not None}
    if expected is None:
        with pytest.raises(UserError):
            deepspeed_config.choose_precision(config, hardware, choice)
        return
    precision, note = deepspeed_config.choose_precision(config, hardware, choice)
    assert precision == expected
    assert (note is not None) == noted


def test_what_deepspeed_gets_has_exactly_one_precision():
    config = {"train_batch_size": 8, "optimizer": LAMB, "fp16": {"enabled": True, "hysteresis": 4}}
    with pytest.raises(UserError, match="fp16 at ZeRO stage 0"):
        deepspeed_config.fit(config, 2, GPU)
    with pytest.raises(UserError, match="bf16 at ZeRO stage 0 accumulates gradients in bf16 only"):
        deepspeed_config.fit(config | {"data_types": {"grad_accum_dtype": "fp32"}}, 2, CPU)
    config["zero_optimization"] = {"stage": 1}
    fitted = deepspeed_config.fit(config, 2, CPU)
    assert "fp16" not in fitted.json
    assert fitted.json["bf16"] == {"enabled": True}
    assert deepspeed_config.fit(config, 2, GPU).json["fp16"] == {"enabled": True, "hysteresis": 4}
    assert config["fp16"]["enabled"], "the caller's JSON is left as it was"


def changed(path, value):
    """A JSON that is right but for `value` at `path`, written with dots."""
    config = {"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": 0.01}}}
    *blocks, name = path.split(".")
    block = config
    for key in blocks:
        block = block.setdefault(key, {})
    if blocks[:1] == ["scheduler"]:
        config["scheduler"]["type"] = "WarmupLR"
    block[name] = value
    return config


TEXTS = [
    ("{", "line 1"),
    ('{"train_batch_size": 8,\n "train_batch_size": 8}', "has the key 'train_batch_size' twice"),
    ('{"train_batchsize": 8}', "did you mean train_batch_size"),
    ('{"zero_optimization": {"stag": 1}}', "did you mean stage"),
    ('{"zero_optimization": {"offload_optimizer": {}}}', "offload_optimizer'; remove it"),
    ('{"optimizer": {"type": "Adam", "params": {"lr": 0.1, "adam_w_mod": true}}}', "did you mean adam_w_mode"),
    ('{"zero_optimization": {"stage": "auto"}}', "zero_optimization.stage is 'auto'"),
    *(
        (json.dumps({"zero_optimization": {key: True}}), f"unknown key 'zero_optimization.{key}'")
        for key in ("round_robin_gradients", "zenflow", "offload_optimizer", "zero_quantized_weights")
    ),
    ('{"fp16": true}', "object"),
    ('{"optimizer": {"type": "Lamb", "params": {}}}', "lr is missing; add it (paper: 0.00176)"),
    ('{"zero_optimization": {"stage": 4}}', "should be 0, 1, 2 or 3"),
    ('{// of ours\n "train_batch_size": 8}', "JSON has no comments, '//'"),
    ('{"train_batch_size": 8, # rows\n "fp16": {}}', "JSON has no comments, '#'"),
    ('{"optimizer": {"type": "Lmab"}}', "use one of Lamb, Adam, AdamW"),
    ('{"optimizer": {"type": "Lamb", "params": {"max_coeff": 10}}}', "max_coeff"),
    ('{"optimizer": {"type": "AdamW", "params": {"bias_correction": false, "torch_adam": true}}}', "torch_adam"),
    ('{"flops_profiler": {"enbaled": true}}', "did you mean enabled"),
    ('{"flops_profiler": {"enabled": "yes"}}', "flops_profiler.enabled is 'yes'"),
    ('{"timers": {"throughput": {"enable": true}}}', "timers.throughput.enable"),
    ("{}", "optimizer.type"),
    ('{"optimizer": {"type": "Lamb", "params": {"lr": 0.1}}, "scheduler": {"params": {}}}', "scheduler.type"),
]
VALUES = {
    "train_batch_size": ["64", True, 0, 1 << 25, 1.5],
    "train_micro_batch_size_per_gpu": ["8"],
    "optimizer.params.lr": ["auto", "0.01", None, -1, 0, True, float("nan"), 10**400, [1]],
    "optimizer.params.betas": [[0.9], "x", [0.9, 1.5], [0.9, "0.999"]],
    "optimizer.params.adam_w_mode": ["false", 0],
    "zero_optimization.stage": [7, "one"],
    "bf16.enabled": ["false", 2],
    "communication_data_type": ["fp7"],
    "data_types.grad_accum": ["fp32"],
    "scheduler.params.warmup_num_steps": [1.5, -1],
    "scheduler.params.warmup_min_lr": ["a", None],
    "scheduler.params.warmup_type": ["sqrt"],
    "scheduler.params.decay_num_steps": ["auto", True, 1.5],
    "scheduler.params.decay_type": ["cosine"],
    "gradient_clipping": ["1", -1, None],
    "zero_optimization": ["auto"],
}


@pytest.mark.parametrize(
    ("text", "words"),
    [*TEXTS, *((json.dumps(changed(path, value)), path) for path, values in VALUES.items() for value in values)],
)
def test_a_json_that_cannot_be_meant_is_refused_by_name(tmp_path, text, words):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        deepspeed_config.load(path)
    line = str(caught.value)
    assert words in line
    assert str(path) in line
    assert "\n" not in line


def test_a_missing_json_is_named_and_a_preset_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("nowhere.json", "ds_configs/nowhere.json", f"ds_configs/{'x' * 300}.json"):
        with pytest.raises(UserError, match=r"--deepspeed_config .*; name a file such as ds_configs/base.json"):
            deepspeed_config.load(deepspeed_config.Path(name))
    assert deepspeed_config.load(deepspeed_config.Path("ds_configs/base.json"))["train_batch_size"] == 4096
    (tmp_path / "ds_configs").mkdir()
    (tmp_path / "ds_configs" / "base.json").write_text(json.dumps(changed("train_batch_size", 9)))
    assert deepspeed_config.load(deepspeed_config.Path("ds_configs/base.json"))["train_batch_size"] == 9


FILES = sorted((REPOSITORY / "ds_configs").glob("*.json"))
SMALL = {"demo": (1, 2), "student": (1, 2), "tiny": (1, 2, 4)}  # files for small models, with their numbers of ranks
AUTO = {"demo", "student"}  # files that leave the precision to the hardware
LARGEST_GRADIENT = 5.0  # an element of the first steps' gradients: a twentieth of a norm of 100 (docs/plan.md)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_deepspeed_takes_it(path, monkeypatch):
    monkeypatch.setattr("deepspeed.comm.get_rank", lambda: 0)
    for world in SMALL.get(path.stem, (1, 8, 64)):
        config = deepspeed_config.load(path)
        if path.stem in AUTO:
            assert deepspeed_config.fit(config, world, GPU, "config").precision == "bf16"
        hardware = GPU if "-80gb" in path.stem else dataclasses.replace(GPU, bf16=False)
        fitted = deepspeed_config.fit(config, world, hardware, "config")
        ranks = SimpleNamespace(get_data_parallel_world_size=lambda: world)  # noqa: B023
        found = DeepSpeedConfig(fitted.json, mpu=ranks)
        assert found.world_size == world
        sizes = found.train_micro_batch_size_per_gpu, found.gradient_accumulation_steps, world
        assert sizes == (fitted.micro_batch_size, fitted.accumulation_steps, world)
        assert found.train_batch_size == sizes[0] * sizes[1] * sizes[2]
        if path.stem not in AUTO:  # otherwise the sums over micro-batches and ranks are in 16 bits
            assert found.grad_accum_dtype == "fp32"
            assert found.communication_data_type is torch.float32
        assert found.bfloat16_config.enabled == ("-80gb" in path.stem)
        fp16 = DeepSpeedConfig(deepspeed_config.fit(config, world, GPU, "fp16").json, mpu=ranks).float16_config
        assert fp16.enabled
        assert fp16.hysteresis == 1  # an overflow halves the scale at once
        largest = LARGEST_GRADIENT * 2**fp16.initial_scale_power
        assert largest <= torch.finfo(torch.float16).max < 2 * largest
        assert found.zero_config.stage == 1
        assert found.gradient_clipping == 1.0


@pytest.mark.parametrize("path", [path for path in FILES if path.stem not in SMALL], ids=lambda path: path.stem)
def test_it_is_the_paper_s_recipe(path):
    config = deepspeed_config.load(path)
    assert config["train_batch_size"] == 4096
    params = {"lr": 0.00176, "betas": [0.9, 0.999], "eps": 1e-6, "weight_decay": 0.01}
    assert config["optimizer"] == {"type": "Lamb", "params": params}
    # Buckets of about the model's size: DeepSpeed's default takes 1 GB.
    parameters = parameter_counts(AlbertConfig.preset(f"albert-{path.stem.split('-')[0]}")).total
    assert config["zero_optimization"]["reduce_bucket_size"] == pytest.approx(parameters, rel=0.15)


def test_the_first_gradients_are_as_large_as_the_loss_scale_allows_for():
    torch.manual_seed(0)
    model = AlbertForPreTraining(AlbertConfig.preset("albert-base")).train()
    ids, labels = torch.randint(5, model.config.vocab_size, (2, 128)), torch.full((2, 128), -100)
    predicted = torch.randperm(128)[:19]
    labels[:, predicted] = ids[:, predicted]
    sums = model(ids, masked_labels=labels, sentence_labels=torch.tensor([0, 1]))
    (sums.mlm_loss_sum / sums.mlm_count + sums.sentence_loss_sum / sums.sentence_count).backward()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    norm = float(torch.stack([gradient.norm() for gradient in gradients]).norm())
    largest = max(float(gradient.abs().max()) for gradient in gradients)
    assert 0.04 < largest / norm < 0.07  # so that one of a norm of 100 is about `LARGEST_GRADIENT`
