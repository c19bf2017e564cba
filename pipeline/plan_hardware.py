"""GPU kinds, by their data sheets: memory, dense matrix products, and the links between them."""

import re
from dataclasses import dataclass, replace

from data_prep.errors import UserError


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU.

    Attributes:
        name: as a person would call it.
        memory_bytes: of one GPU.
        tflops: peak of dense matrix products without sparsity, by precision. A missing precision is not native; fp32 is
            that of the plain cores, for nothing here switches to TF32.
        link_bytes_per_second: from one GPU to the others of its node, one direction.
        network_gbit: of a node as it is usually built, in Gbit/s, one direction.
    """

    name: str
    memory_bytes: float
    tflops: dict[str, float]
    link_bytes_per_second: float
    network_gbit: float


_GIB = 2.0**30

GPUS = {
    "v100": Gpu("V100 32 GB", 32 * _GIB, {"fp16": 125, "fp32": 15.7}, 150e9, 100),
    "t4": Gpu("T4", 15 * _GIB, {"fp16": 65, "fp32": 8.1}, 16e9, 50),
    "a10": Gpu("A10", 22.5 * _GIB, {"fp16": 125, "bf16": 125, "fp32": 31.2}, 32e9, 100),
    "a100-40": Gpu("A100 40 GB", 40 * _GIB, {"fp16": 312, "bf16": 312, "fp32": 19.5}, 300e9, 400),
    "a100": Gpu("A100 80 GB", 80 * _GIB, {"fp16": 312, "bf16": 312, "fp32": 19.5}, 300e9, 1600),
    "l40s": Gpu("L40S", 45 * _GIB, {"fp16": 362, "bf16": 362, "fp32": 91.6}, 32e9, 400),
    "h100": Gpu("H100 SXM 80 GB", 80 * _GIB, {"fp16": 989, "bf16": 989, "fp32": 67}, 450e9, 3200),
    "h200": Gpu("H200 141 GB", 139 * _GIB, {"fp16": 989, "bf16": 989, "fp32": 67}, 450e9, 3200),
    "b200": Gpu("B200 180 GB", 178 * _GIB, {"fp16": 2250, "bf16": 2250, "fp32": 80}, 900e9, 3200),
}


# What the driver calls the kinds above. Variants with other peaks (H100 PCIe and NVL, A10G) are not among them.
_DEVICE_NAMES = {
    r"V100-.*-32GB": "v100",
    r"T4": "t4",
    r"A10": "a10",
    r"A100-.*-40GB": "a100-40",
    r"A100-.*-80GB|A100 80GB PCIe": "a100",
    r"L40S": "l40s",
    r"H100 80GB HBM3": "h100",
    r"H200": "h200",
    r"B200": "b200",
}


def find_by_device_name(name: str) -> Gpu | None:
    """The GPU kind that the driver gives this name, such as "NVIDIA A100-SXM4-80GB"; None for one not known."""
    short = re.sub(r"^(NVIDIA|Tesla) ", "", name)
    return next((GPUS[kind] for pattern, kind in _DEVICE_NAMES.items() if re.fullmatch(pattern, short)), None)


@dataclass(frozen=True)
class Cluster:
    """Nodes of equal GPUs."""

    gpu: Gpu
    nodes: int
    gpus_per_node: int

    @property
    def world_size(self) -> int:
        """All GPUs."""
        return self.nodes * self.gpus_per_node


def find_gpu(name: str, network_gbit: float | None = None) -> Gpu:
    """The GPU kind of that name, with another network if one is given. Raises UserError for a name not known."""
    if name not in GPUS:
        raise UserError(f"--gpu {name!r} is not known; choose one of {', '.join(GPUS)}")
    gpu = GPUS[name]
    return gpu if network_gbit is None else replace(gpu, network_gbit=network_gbit)
