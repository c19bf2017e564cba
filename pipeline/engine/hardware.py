"""This rank's accelerator: its precisions, whether torch can use it, determinism; and data sheets of GPU kinds."""

import os
import re
import sys
import warnings
from dataclasses import dataclass, replace

from common.errors import UserError
from common.text import quantity
from pipeline.distributed.hosts.probe import gpus_of_driver, has_gpu_device, lines_of

_OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
"""The oldest driver for torch builds of a CUDA major version (NVIDIA, "CUDA Compatibility")."""
DETERMINISTIC_ENVIRONMENT = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "NCCL_ALGO": "^NVLS,NVLSTree",
    "TORCHINDUCTOR_DETERMINISTIC": "1",
}
"""Read by cuBLAS, NCCL and torch's compiler when they start. A value that the user has set stays. Without these, cuBLAS
may take another algorithm each time, switches add in no fixed order (NVLS), and the compiler chooses between reductions
by the clock."""


@dataclass(frozen=True)
class Hardware:
    """The precisions of an accelerator.

    Attributes:
        name: as a person would call it, "NVIDIA H200" or "CPU".
        fp16: whether fp16 matrix products are native.
        bf16: whether bf16 matrix products are native.
    """

    name: str
    fp16: bool
    bf16: bool


def detect_hardware() -> Hardware:
    """The hardware of this rank's accelerator, as DeepSpeed selects it.

    Raises:
        UserError: the host has a GPU that torch cannot use.
    """
    import torch
    from deepspeed.accelerator import get_accelerator

    check_gpus_are_usable()
    accelerator = get_accelerator()
    if accelerator.device_name() == "cpu":
        # DeepSpeed's CPU accelerator always claims bf16; without instructions for it torch is many times slower.
        return Hardware("CPU", bool(accelerator.is_fp16_supported()), torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return Hardware(
        torch.cuda.get_device_name() if torch.cuda.is_available() else accelerator.device_name(),
        bool(accelerator.is_fp16_supported()),
        # The accelerator's own answer counts emulation, which is many times slower than fp16.
        torch.cuda.is_bf16_supported(including_emulation=False)
        if accelerator.device_name() == "cuda"
        else bool(accelerator.is_bf16_supported()),
    )


def check_gpus_are_usable() -> None:
    """Raises UserError if this host has a GPU that torch cannot use, unless DS_ACCELERATOR names another accelerator.

    DeepSpeed would choose the processor without a word, and a run of hours would take years. The same is an error if
    DS_ACCELERATOR asks for a GPU, and there is none.
    """
    import torch

    chosen = os.environ.get("DS_ACCELERATOR")
    if chosen == "cuda" and not torch.cuda.is_available():
        raise UserError(
            f"DS_ACCELERATOR is cuda, and {_build()} cannot use a GPU: {_reason()}; "
            "unset it, or set DS_ACCELERATOR=cpu to train on the processor"
        )
    if chosen:
        return
    gpus = gpus_of_driver()
    if not gpus and not has_gpu_device():
        return
    with warnings.catch_warnings(action="ignore"):  # torch warns about an old driver, and the error says it
        if torch.cuda.is_available():
            return
        reason = _reason()
    driver = next(iter(lines_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")), "")
    found = f"{quantity(len(gpus), 'GPU')} (driver {driver or 'unknown'})" if gpus else "/dev/nvidia0"
    raise UserError(
        f"this host has {found}, and {_build()} cannot use a GPU: {reason}; {_remedy(driver)}, "
        "or set DS_ACCELERATOR=cpu to train on the processor"
    )


def _build() -> str:
    import torch

    return f"torch {torch.__version__} (built for CUDA {torch.version.cuda or 'none'})"


def _reason() -> str:
    """Why torch has no GPU, in its own words."""
    import torch

    try:
        torch.cuda.init()
    except Exception as error:  # RuntimeError, AssertionError
        return str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
    return "it sees none"


def _remedy(driver: str) -> str:
    import torch

    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return "unset CUDA_VISIBLE_DEVICES, which hides the GPUs"
    if torch.version.cuda is None:
        return 'install a build for CUDA (README, "GPU drivers")'
    major, installed = int(torch.version.cuda.partition(".")[0]), driver.partition(".")[0]
    oldest = _OLDEST_DRIVER.get(major)
    if oldest is not None and installed.isdigit() and int(installed) < oldest:
        return f'install driver {oldest} or newer, or a build for an older one (README, "GPU drivers")'
    return "see `nvidia-smi`, and whether this user or container may use /dev/nvidia*"


def make_deterministic() -> None:
    """Switches to deterministic algorithms, in this process and those that it starts. Call it before CUDA starts."""
    import torch

    for name, value in DETERMINISTIC_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # An operation without a deterministic algorithm raises RuntimeError.
    torch.use_deterministic_algorithms(True)
    # Filling what is allocated costs time, and nothing here reads memory that was not written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    if (compiler := sys.modules.get("torch._inductor.config")) is not None:  # it has read its variable already
        compiler.deterministic = True  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU.

    Attributes:
        name: as a person would call it.
        memory_bytes: of one GPU.
        tflops: peak of dense matrix products without sparsity, by precision. A missing precision is not native. fp32 is
            the peak of the plain cores, because the project does not use TF32.
        link_bytes_per_second: from one GPU to the others of its node, one direction.
        network_gbit: network of a typical node, in Gbit/s, one direction.
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


# Names that the driver gives to the kinds above. Variants with other peaks (H100 PCIe and NVL, A10G) are left out.
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
    """The GPU kind by the driver's name, such as "NVIDIA A100-SXM4-80GB"; None if it is not known."""
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
    """The GPU kind of that name, with `network_gbit` if it is given. Raises UserError for an unknown name."""
    if name not in GPUS:
        raise UserError(f"--gpu {name!r} is not known; choose one of {', '.join(GPUS)}")
    gpu = GPUS[name]
    return gpu if network_gbit is None else replace(gpu, network_gbit=network_gbit)
