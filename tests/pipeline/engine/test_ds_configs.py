"""The DeepSpeed JSONs of the project: DeepSpeed takes them. tests/docs/test_presets.py plans them."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from deepspeed.runtime.config import DeepSpeedConfig

from model import AlbertConfig, AlbertForPreTraining
from model.counts import parameter_counts
from pipeline.engine import deepspeed_config as engine_config
from pipeline.engine.hardware import Hardware
from tests.pipeline.conftest import REPOSITORY

GPU = Hardware("GPU", fp16=True, bf16=True)
FILES = sorted((REPOSITORY / "ds_configs").glob("*.json"))
SMALL = {"demo": (1, 2), "student": (1, 2), "tiny": (1, 2, 4)}  # files for small models, with their numbers of ranks
AUTO = {"demo", "student"}  # files that leave the precision to the hardware
LARGEST_GRADIENT = 5.0  # an element of the first steps' gradients: a twentieth of a norm of 100 (docs/plan.md)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_deepspeed_takes_it(path, monkeypatch):
    monkeypatch.setattr("deepspeed.comm.get_rank", lambda: 0)
    for world in SMALL.get(path.stem, (1, 8, 64)):
        config = engine_config.load(path)
        if path.stem in AUTO:
            assert engine_config.fit(config, world, GPU, "config").precision == "bf16"
        hardware = GPU if "-80gb" in path.stem else dataclasses.replace(GPU, bf16=False)
        fitted = engine_config.fit(config, world, hardware, "config")
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
        fp16 = DeepSpeedConfig(engine_config.fit(config, world, GPU, "fp16").json, mpu=ranks).float16_config
        assert fp16.enabled
        assert fp16.hysteresis == 1  # an overflow halves the scale at once
        largest = LARGEST_GRADIENT * 2**fp16.initial_scale_power
        assert largest <= torch.finfo(torch.float16).max < 2 * largest
        assert found.zero_config.stage == 1
        assert found.gradient_clipping == 1.0


@pytest.mark.parametrize("path", [path for path in FILES if path.stem not in SMALL], ids=lambda path: path.stem)
def test_it_is_the_paper_s_recipe(path):
    config = engine_config.load(path)
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
