"""Stand-ins for the programs and packages of a GPU, for machines without one."""

from pathlib import Path

TORCH = """
__version__ = "2.13.0"
class Tensor(float):
    def __matmul__(self, other): return Tensor(512 * self * other)
    def __eq__(self, other): return Tensor(float(self) == other)
    def all(self): return self
def ones(rows, columns, device):
    if device in {broken!r}: raise RuntimeError("CUDA error: uncorrectable ECC error\\nmore")
    return Tensor(1.0)
class version: cuda = "13.0"
class cuda:
    is_available = staticmethod(lambda: {count} > 0)
    device_count = staticmethod(lambda: {count})
    @staticmethod
    def init(): raise RuntimeError("The NVIDIA driver on your system is too old (found version 12020).")
"""


def nvidia_smi(directory: Path, gpus: int, driver: str) -> Path:
    """Makes an `nvidia-smi` in `directory` that lists so many GPUs, and returns the directory, for PATH."""
    listed = "\\n".join(f"GPU {number}: NVIDIA A100-SXM4-80GB (UUID: GPU-{number})" for number in range(gpus))
    script = f'#!/bin/sh\n[ "$1" = -L ] && printf "{listed}\\n" && exit\nprintf "{driver}\\n%.0s" $(seq {gpus})\n'
    directory.mkdir(exist_ok=True)
    (directory / "nvidia-smi").write_text(script)
    (directory / "nvidia-smi").chmod(0o755)
    return directory


def torch_package(directory: Path, count: int, broken: tuple[str, ...] = ()) -> Path:
    """Makes a package `torch` that sees `count` GPUs, of which some are broken; the directory, for PYTHONPATH."""
    directory.mkdir(exist_ok=True)
    (directory / "torch.py").write_text(TORCH.format(count=count, broken=broken))
    return directory
