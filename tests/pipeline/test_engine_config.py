"""The DeepSpeed JSON: batch arithmetic by hand, precision by hardware, and every way to get it wrong."""

import json

import pytest

from data_prep.errors import UserError
from pipeline import engine_config
from pipeline.engine_config import Hardware

CPU = Hardware("CPU", fp16=False, bf16=True)
OLD_CPU = Hardware("CPU", fp16=False, bf16=False)
GPU = Hardware("GPU", fp16=True, bf16=True)

LAMB = {"type": "Lamb", "params": {"lr": 0.01}}


@pytest.mark.parametrize(
    ("batch", "micro", "accumulation", "world", "expected"),
    [
        (4096, 32, None, 64, (4096, 32, 2)),  # 4096 / (32 * 64)
        (4096, 64, None, 1, (4096, 64, 64)),
        (4096, None, 2, 8, (4096, 256, 2)),  # 4096 / (2 * 8)
        (4096, None, None, 8, (4096, 512, 1)),
        (None, 16, 4, 3, (192, 16, 4)),  # 16 * 4 * 3
        (None, 16, None, 3, (48, 16, 1)),
        (96, 16, 2, 3, (96, 16, 2)),
    ],
)
def test_the_open_size_is_derived(batch, micro, accumulation, world, expected):
    config = {
        "train_batch_size": batch,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": accumulation,
    }
    assert engine_config.batch_sizes({k: v for k, v in config.items() if v is not None}, world) == expected


@pytest.mark.parametrize(
    ("config", "world", "words"),
    [
        ({"train_batch_size": 100, "train_micro_batch_size_per_gpu": 16}, 2, "not a multiple of micro-batch 16 x 2"),
        ({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 16}, 2, "use a batch of 32"),
        ({"train_batch_size": 7, "gradient_accumulation_steps": 2}, 2, "not a multiple of 2 accumulation steps"),
        (
            {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": 3},
            2,
            "contradicts",
        ),
        ({"gradient_accumulation_steps": 3}, 2, "neither"),
        ({"train_batch_size": "64"}, 2, "'64'"),
        ({"train_batch_size": True}, 2, "True"),
        ({"train_batch_size": 0}, 2, "at least 1"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(config, world, words):
    with pytest.raises(UserError, match=words):
        engine_config.batch_sizes(config, world)


@pytest.mark.parametrize(
    ("config", "hardware", "choice", "expected", "noted"),
    [
        ({"fp16": {"enabled": True}}, GPU, "auto", "fp16", False),
        ({"fp16": {"enabled": True}}, CPU, "auto", "bf16", True),
        ({"fp16": {"enabled": True}}, OLD_CPU, "auto", "fp32", True),
        ({"bf16": {"enabled": True}}, OLD_CPU, "auto", "fp32", True),
        ({}, GPU, "auto", "fp32", False),
        ({"fp16": {"enabled": False}}, GPU, "auto", "fp32", False),
        ({"fp16": {"enabled": True}}, GPU, "config", "fp16", False),
        ({"fp16": {"enabled": True}}, GPU, "fp32", "fp32", True),
        ({"fp16": {"enabled": True}}, CPU, "bf16", "bf16", True),
        ({}, OLD_CPU, "bf16", "bf16", True),
    ],
)
def test_precision_follows_json_hardware_and_flag(config, hardware, choice, expected, noted):
    precision, note = engine_config.choose_precision(config, hardware, choice)
    assert precision == expected
    assert (note is not None) == noted


@pytest.mark.parametrize(
    ("config", "hardware", "choice"),
    [
        ({"fp16": {"enabled": True}}, CPU, "config"),
        ({}, CPU, "fp16"),
        ({"fp16": {"enabled": True}, "bf16": {"enabled": True}}, GPU, "auto"),
    ],
)
def test_a_precision_that_is_not_there_is_refused(config, hardware, choice):
    with pytest.raises(UserError):
        engine_config.choose_precision(config, hardware, choice)


def test_what_deepspeed_gets_has_exactly_one_precision():
    config = {"train_batch_size": 8, "optimizer": LAMB, "fp16": {"enabled": True, "hysteresis": 4}}
    fitted = engine_config.fit(config, 2, CPU)
    assert "fp16" not in fitted.json
    assert fitted.json["bf16"] == {"enabled": True}
    assert engine_config.fit(config, 2, GPU).json["fp16"] == {"enabled": True, "hysteresis": 4}
    assert config["fp16"]["enabled"], "the caller's JSON is left as it was"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "line 1"),
        ('{"train_batch_size": 8,\n "train_batch_size": 8}', "given twice"),
        ("[]", "object"),
        ('{"train_batchsize": 8}', "did you mean 'train_batch_size'"),
        ('{"zero_optimization": {"stag": 1}}', "did you mean 'stage'"),
        ('{"fp16": {"enable": true}}', "did you mean 'enabled'"),
        ('{"fp16": true}', "object"),
        ('{"optimizer": {"type": "Lmab"}}', "did you mean 'Lamb'"),
        ('{"optimizer": {"type": "Lamb", "params": {"max_coeff": 10}}}', "max_coeff"),
        ('{"optimizer": {"type": "Lamb", "params": {}}}', "lr is missing"),
        ("{}", r"optimizer\.type"),
        ('{"optimizer": {"type": "Lamb", "params": {"lr": 0.1}}, "scheduler": {"params": {}}}', r"scheduler\.type"),
    ],
)
def test_a_json_that_cannot_be_meant_is_refused_by_name(tmp_path, text, words):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        engine_config.load(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


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


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("optimizer.params.lr", ["0.01", None, -1, 0, True, float("nan"), [1]]),
        ("optimizer.params.betas", [[0.9], "x", [0.9, 1.5], [0.9, "0.999"]]),
        ("optimizer.params.eps", [0, "1e-6"]),
        ("optimizer.params.weight_decay", [-1, "0.01", None]),
        ("optimizer.params.adam_w_mode", ["false", 0]),
        ("zero_optimization.stage", [7, "one"]),
        ("zero_optimization.reduce_bucket_size", [-1, "big"]),
        ("bf16.enabled", ["false", 1]),
        ("fp16.initial_scale_power", ["x"]),
        ("gradient_clipping", ["1", -1, None]),
        ("steps_per_print", [0, "x"]),
        ("gradient_predivide_factor", [0, "x"]),
        ("communication_data_type", ["fp7"]),
        ("data_types.grad_accum_dtype", ["fp7"]),
        ("data_types.grad_accum", ["fp32"]),
        ("scheduler.params", ["x", None]),
        ("scheduler.params.warmup_num_steps", ["auto", 1.5, -1]),
        ("scheduler.params.warmup_min_lr", ["a", None]),
        ("tensorboard.enabld", [True]),
        ("flops_profiler.enabld", [True]),
        ("checkpoint.tag_validaton", ["Fail"]),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_by_its_path(tmp_path, path, values):
    for value in values:
        file = tmp_path / "config.json"
        file.write_text(json.dumps(changed(path, value)))
        with pytest.raises(UserError) as caught:
            engine_config.load(file)
        line = str(caught.value)
        assert path in line
        assert str(file) in line
        assert "\n" not in line


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("optimizer.params.betas", [0.9, 0.999]),
        ("optimizer.params.weight_decay", 0),
        ("gradient_clipping", 0),
        ("steps_per_print", None),
        ("zero_optimization.stage", 3),
        ("zero_optimization.offload_optimizer", {"device": "cpu"}),
        ("bf16.enabled", False),
        ("scheduler.params.warmup_num_steps", 10),
        ("data_types.grad_accum_dtype", "fp32"),
        ("wall_clock_breakdown", True),
    ],
)
def test_values_that_can_be_meant_pass(tmp_path, path, value):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(changed(path, value)))
    assert engine_config.load(file) == changed(path, value)


def test_a_missing_json_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.json"):
        engine_config.load(tmp_path / "nowhere.json")


def test_the_presets_are_accepted():
    for path in sorted(engine_config.Path("ds_configs").glob("*.json")):
        config = engine_config.load(path)
        assert json.loads(path.read_text()) == config
