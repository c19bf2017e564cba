"""Measures seconds, bytes, and the speed of a plain matrix product."""

import contextlib
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from pipeline.engine.hardware import sum_products_in_fp32


def synchronise(device: torch.device) -> None:
    """Waits until `device` has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    """Wall-clock seconds of `work()`, with the device's work."""
    synchronise(device)
    start = time.perf_counter()
    work()
    synchronise(device)
    return time.perf_counter() - start


def alternate(works: Sequence[Callable[[], object]], number: int, device: torch.device) -> list[float]:
    """Seconds of each work in round `number`. The works take turns, in reverse order in every other round.

    Other load on the machine then affects all of them alike.
    """
    seconds = [0.0] * len(works)
    for index in range(len(works)) if number % 2 == 0 else reversed(range(len(works))):
        seconds[index] = seconds_of(works[index], device)
    return seconds


def saved_bytes(model: nn.Module, loss: Callable[[], Tensor]) -> int:
    """Bytes that `loss()` saves for the backward pass: distinct storages, without the model's parameters."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss()
    return sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in parameters)


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """Peak of the CUDA memory that `work()` allocates, in bytes, without what was allocated before."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    synchronise(device)
    return torch.cuda.max_memory_allocated(device) - before


def note_largest(module: nn.Module) -> dict[str, Tensor]:
    """The largest absolute output of each product, LayerNorm and GELU in `module` by name, from now on.

    They must not be compiled. Queries, keys and values are not among them.
    """
    found: dict[str, Tensor] = {}

    def note(name: str, _: nn.Module, __: object, output: Tensor) -> None:
        found[name] = torch.maximum(found.get(name, output.new_zeros(())), output.detach().abs().amax())

    for name, one in module.named_modules():
        if isinstance(one, nn.Linear | nn.LayerNorm | nn.GELU):
            one.register_forward_hook(partial(note, name))
    return found


def matrix_product_tflops(
    dtype: torch.dtype, device: torch.device, seconds: float = 3.0, size: int | None = None
) -> float:
    """TFLOP/s of square products of width `size`, sustained: the median over so many seconds.

    The parts of a product are added up in fp32, as in training. The default width is 8192 on a GPU and 2048 on a
    processor. Tests give a small one: a processor without instructions for bf16 is very slow in it.
    """
    sum_products_in_fp32()
    size = size or (8192 if device.type == "cuda" else 2048)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    repeats = 10 if device.type == "cuda" else 1

    def work() -> None:
        for _ in range(repeats):
            torch.mm(a, b)

    work()
    times = [seconds_of(work, device)]
    while sum(times) < seconds:
        times.append(seconds_of(work, device))
    return 2 * size**3 * repeats / statistics.median(times) / 1e12


def copy_gigabytes_per_second(device: torch.device, megabytes: int = 1024) -> float:
    """GB/s of the device's memory, read and written: the median of ten copies."""
    source = torch.zeros(megabytes << 18, device=device)
    copy = source.clone()
    middle = statistics.median(seconds_of(partial(copy.copy_, source), device) for _ in range(10))
    return 2 * source.nbytes / middle / 1e9


def gpu_state(wait: float = 0.0) -> dict[str, str]:
    """What `nvidia-smi` says of the first GPU after `wait` seconds; {} where it is missing or refuses."""
    time.sleep(wait)
    names = "clocks.sm,clocks.mem,power.draw,power.limit,temperature.gpu,driver_version"
    words = ["nvidia-smi", "-i", "0", f"--query-gpu={names}", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout
        return dict(zip(names.split(","), map(str.strip, said.split(","))))
    return {}
