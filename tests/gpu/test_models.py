"""A model that is compiled, captured in CUDA graphs or exported computes what it computes otherwise."""

import gc
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor

from model import AlbertConfig, AlbertForPreTraining, ExecutionOptions, huggingface
from model.counts import parameter_counts
from pipeline.engine import cuda_graphs
from tests.model.examples import randomise, tiny_config
from tests.model.test_packing import make_pair, pack
from tests.pipeline.workers.cases.cuda_graph import Tape

pytestmark = pytest.mark.slow
PRECISIONS = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)


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
    if execution.cuda_graphs:
        cuda_graphs.install(model, None if device.type == "cuda" else Tape())
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


def check_as_close_as_eager(device: torch.device, dtype: torch.dtype, execution: ExecutionOptions) -> None:
    """Compares with fp32: rounding differs between the two, its size must not."""
    exact_losses, exact = results(device, torch.float32, ExecutionOptions(attention="masked"))
    eager_losses, eager = results(device, dtype, ExecutionOptions())
    rounding = float((eager - exact).norm() / exact.norm()) + 1e-5
    for kernel in kernels(device, dtype):
        losses, gradients = results(device, dtype, replace(execution, attention=kernel))
        assert float((gradients - exact).norm() / exact.norm()) <= 2 * rounding, kernel
        for loss, eager_loss, exact_loss in zip(losses, eager_losses, exact_losses):
            assert abs(loss - exact_loss) <= 2 * abs(eager_loss - exact_loss) + rounding * exact_loss, kernel


def backend(device: torch.device) -> str:
    return "inductor" if device.type == "cuda" else "aot_eager"


@PRECISIONS
def test_compiled_equals_eager(device: torch.device, dtype: torch.dtype) -> None:
    check_as_close_as_eager(device, dtype, ExecutionOptions(compile=True, compile_backend=backend(device)))


@PRECISIONS
def test_graphs_equal_eager(device: torch.device, dtype: torch.dtype) -> None:
    check_as_close_as_eager(device, dtype, ExecutionOptions(cuda_graphs=True))


@PRECISIONS
def test_compiled_in_graphs_equals_eager(device: torch.device, dtype: torch.dtype) -> None:
    execution = ExecutionOptions(compile=True, compile_backend=backend(device), cuda_graphs=True)
    check_as_close_as_eager(device, dtype, execution)


@PRECISIONS
def test_chunked_loss_and_summed_gradients_equal_eager(device: torch.device, dtype: torch.dtype) -> None:
    check_as_close_as_eager(device, dtype, ExecutionOptions("pointwise", chunked_loss=True, sum_gradients=True))


@PRECISIONS
def test_compiled_chunked_and_summed_in_graphs_equal_eager(device: torch.device, dtype: torch.dtype) -> None:
    both = ExecutionOptions(chunked_loss=True, sum_gradients=True, cuda_graphs=True)
    check_as_close_as_eager(device, dtype, replace(both, compile=True, compile_backend=backend(device)))


def reserved(execution: ExecutionOptions) -> int:
    """Bytes that the allocator reserves at most for two micro-steps of albert-base on the GPU."""
    device = torch.device("cuda")
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_reserved()
    results(device, torch.float16, execution)
    return torch.cuda.max_memory_reserved() - before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")
def test_graphs_keep_one_copy_of_the_gradients_and_no_second_one_of_the_activations() -> None:
    eager, graphs = (
        reserved(ExecutionOptions(attention="flash")),
        reserved(ExecutionOptions(attention="flash", cuda_graphs=True)),
    )
    gradients = 2 * parameter_counts(config_for(torch.device("cuda"))).total
    assert graphs < 1.2 * eager + gradients + (64 << 20)


def test_graphs_draw_the_dropout_of_eager(device: torch.device) -> None:
    """Also after a second seed, and although the warm-up has drawn numbers."""
    model = AlbertForPreTraining(tiny_config(hidden_dropout_prob=0.3), ExecutionOptions(attention="masked")).to(device)
    graphed = AlbertForPreTraining(model.config, ExecutionOptions(attention="masked")).to(device)
    graphed.load_state_dict(model.state_dict())
    cuda_graphs.install(graphed, None if device.type == "cuda" else Tape())
    inputs = {name: one.to(device) for name, one in pack([[make_pair(0, 12, 1)]], 40).items()}
    for seed in (1, 2):
        found = []
        for one in (model, graphed):
            torch.manual_seed(seed)
            found += [float(one(**inputs).mlm_loss_sum.detach()) for _ in range(2)]
        assert found[2:] == pytest.approx(found[:2], rel=1e-5)
        assert found[0] != pytest.approx(found[1], rel=1e-5)


def test_an_exported_model_is_equal_in_transformers(device: torch.device, tmp_path: Path) -> None:
    model = AlbertForPreTraining(config_for(device)).eval().to(device)
    huggingface.save(model, tmp_path)
    reference = transformers.AlbertForPreTraining.from_pretrained(tmp_path).eval().to(device)
    ids = batch(device, 0)["input_ids"]
    with torch.no_grad():
        mine, theirs = model(ids), reference(ids)
    torch.testing.assert_close(mine.mlm_logits, theirs.prediction_logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(mine.sentence_logits, theirs.sop_logits, rtol=1e-4, atol=1e-4)
