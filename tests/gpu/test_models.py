"""A model that is compiled or exported computes what it computes otherwise."""

from dataclasses import replace

import pytest
import torch
import transformers
from torch import Tensor

from benchmarks.shared.measure import note_largest
from model import AlbertConfig, AlbertForPreTraining, ExecutionOptions, huggingface
from tests.model.examples import randomise, tiny_config
from tests.model.test_packing import make_pair, pack

pytestmark = pytest.mark.slow


def config_for(device: torch.device) -> AlbertConfig:
    if device.type == "cpu":
        return tiny_config()
    plain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "vocab_size": 50}
    return AlbertConfig.preset("albert-base", **plain)


def batch(device: torch.device, seed: int) -> dict[str, Tensor]:
    """Packed rows of several lengths, with padding."""
    scale, rows = (12, 16) if device.type == "cuda" else (1, 2)
    pairs = [
        [make_pair(seed + row, scale * (5 + row % 9), row % 2), make_pair(seed + row + 50, scale * (14 + row % 9), 1)]
        for row in range(rows)
    ]
    return {name: one.to(device) for name, one in pack(pairs, 40 * scale).items()}


def results(device: torch.device, dtype: torch.dtype, execution: ExecutionOptions) -> tuple[list[float], Tensor]:
    """The losses of two batches, and their gradients added up, as one vector."""
    torch.compiler.reset()
    model = AlbertForPreTraining(config_for(device), execution)
    randomise(model, seed=5, scale=0.05)
    model = model.to(device, dtype)
    losses = []
    for seed in (0, 100):
        output = model(**batch(device, seed))
        loss = output.mlm_loss_sum / output.mlm_count + output.sentence_loss_sum / output.sentence_count
        (loss * 128).backward()
        losses.append(loss.item())
    return losses, torch.cat([one.grad.flatten().double() for one in model.parameters() if one.grad is not None])


def kernels(device: torch.device, dtype: torch.dtype) -> list[str]:
    """The attention kernels to compare: "flash" has other offsets in each batch, where it runs."""
    if device.type == "cpu" or dtype == torch.float32 or torch.cuda.get_device_capability() < (8, 0):
        return ["auto"]
    return ["masked", "flash"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(("compiled", "chunked"), [(True, False), (False, True), (True, True)])
def test_an_option_equals_eager(device, dtype, compiled, chunked):
    """Rounding differs between the two, its size must not."""
    what = "none" if compiled else "layer"
    backend = "inductor" if device.type == "cuda" else "aot_eager"
    execution = ExecutionOptions(what, compile=compiled, compile_backend=backend, chunked_loss=chunked)
    exact_losses, exact = results(device, torch.float32, ExecutionOptions(attention="masked"))
    eager_losses, eager = results(device, dtype, ExecutionOptions())
    rounding = float((eager - exact).norm() / exact.norm()) + 1e-5
    for kernel in kernels(device, dtype):
        losses, gradients = results(device, dtype, replace(execution, attention=kernel))
        assert float((gradients - exact).norm() / exact.norm()) <= 2 * rounding, kernel
        for loss, eager_loss, exact_loss in zip(losses, eager_losses, exact_losses):
            assert abs(loss - exact_loss) <= 2 * abs(eager_loss - exact_loss) + rounding * exact_loss, kernel


def test_no_activation_of_xxlarge_comes_near_the_largest_number_of_fp16(device, record_property):
    config = AlbertConfig.preset("albert-xxlarge") if device.type == "cuda" else tiny_config()
    torch.manual_seed(0)
    model = AlbertForPreTraining(config).to(device, torch.float16)
    noted = note_largest(model)
    rows, length = (4, 512) if device.type == "cuda" else (2, 40)
    ids = torch.randint(5, config.vocab_size, (rows, length), generator=torch.Generator().manual_seed(1)).to(device)
    output = model(ids, masked_labels=ids)
    assert bool(output.mlm_loss_sum.isfinite())
    largest = {name: float(value) for name, value in noted.items()}
    largest["hidden states"] = float(torch.stack(model.albert(ids).hidden_states).detach().abs().max())
    name = max(largest, key=lambda name: largest[name])
    record_property("largest", f"{largest[name]:.4g} of {name}; hidden states {largest['hidden states']:.4g}")
    assert {"albert.encoder.feed_forward.0.output", "albert.encoder.feed_forward.0.activation"} <= largest.keys()
    assert largest[name] <= torch.finfo(torch.float16).max / 16  # training may make them larger


def test_an_exported_model_is_equal_in_transformers(device, tmp_path):
    model = AlbertForPreTraining(config_for(device)).eval().to(device)
    huggingface.save(model, tmp_path)
    reference = transformers.AlbertForPreTraining.from_pretrained(tmp_path).eval().to(device)
    ids = batch(device, 0)["input_ids"]
    with torch.no_grad():
        mine, theirs = model(ids), reference(ids)
    torch.testing.assert_close(mine.mlm_logits, theirs.prediction_logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mine.sentence_logits, theirs.sop_logits, rtol=1e-4, atol=1e-4)
