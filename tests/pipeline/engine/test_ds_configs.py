"""The DeepSpeed JSONs of the project: DeepSpeed takes them on the GPUs that their names say, and they fit there."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from deepspeed.runtime.config import DeepSpeedConfig

from model import AlbertConfig
from pipeline import plan
from pipeline.engine import config as engine_config
from pipeline.engine import workarounds
from pipeline.engine.hardware import Hardware
from tests.pipeline.conftest import REPOSITORY

GPU = Hardware("GPU", fp16=True, bf16=True)
FILES = sorted((REPOSITORY / "ds_configs").glob("*.json"))
EVERYWHERE = (1, 8, 64)
KINDS = {"": "a10", "-16gb": "t4", "-80gb": "a100"}
"""The kind of GPU, 24 GB where none is named, by what follows the model in a file's name."""
SMALL = {"demo": (1, 2), "tiny": (1, 2, 4)}
"""Files for albert-tiny, with their numbers of ranks."""


CASES = [(path, world) for path in FILES for world in SMALL.get(path.stem, EVERYWHERE)]
PAPERS = [(path, world) for path, world in CASES if path.stem not in SMALL]


def ids(value: object) -> str:
    return value.stem if isinstance(value, Path) else str(value)


@pytest.mark.parametrize(("path", "world"), CASES, ids=ids)
def test_deepspeed_takes_it(path: Path, world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = engine_config.fit(engine_config.load(path), world, GPU, "config")
    workarounds.reject_unsafe_settings(fitted.json)
    simulated = SimpleNamespace(get_data_parallel_world_size=lambda: world)
    monkeypatch.setattr("deepspeed.comm.get_rank", lambda: 0)
    found = DeepSpeedConfig(fitted.json, mpu=simulated)
    assert found.world_size == world
    sizes = found.train_micro_batch_size_per_gpu, found.gradient_accumulation_steps, world
    assert sizes == (fitted.micro_batch_size, fitted.accumulation_steps, world)
    assert found.train_batch_size == sizes[0] * sizes[1] * sizes[2]
    if "-80gb" in path.stem:
        assert found.bfloat16_config.enabled
        assert found.grad_accum_dtype == "fp32"
    else:
        assert found.float16_config.enabled
        assert found.float16_config.initial_scale_power == 16
    assert found.zero_config.stage == 1
    assert found.gradient_clipping == 1.0


@pytest.mark.parametrize(("path", "world"), PAPERS, ids=ids)
def test_it_is_the_paper_s_recipe_and_fits(path: Path, world: int) -> None:
    model, variant = re.fullmatch(r"([a-z]+)(.*)", path.stem).groups()  # type: ignore[union-attr]
    config = engine_config.load(path)
    assert config["train_batch_size"] == 4096
    assert config["optimizer"] == {
        "type": "Lamb",
        "params": {"lr": 0.00176, "betas": [0.9, 0.999], "eps": 1e-6, "weight_decay": 0.01},
    }
    nodes = ["--nodes", str(max(1, world // 8)), "--gpus-per-node", str(min(8, world)), "--gpu", KINDS[variant]]
    words = ["--model", f"albert-{model}", "--deepspeed_config", str(path), *nodes]
    planned = plan.resolve(plan.parse(words))
    assert planned.fits
    # Buckets of about the model's size: DeepSpeed's default takes 1 GB.
    assert config["zero_optimization"]["reduce_bucket_size"] == pytest.approx(planned.parameters, rel=0.15)
    assert AlbertConfig.preset(f"albert-{model}").hidden_size == planned.model.hidden_size
    if variant.startswith("-80gb"):
        twice = planned.engine.micro_batch_size * 2
        divides = planned.engine.accumulation_steps % 2 == 0
        assert not divides or twice > planned.largest_micro_batch, "a larger power of two fits"
