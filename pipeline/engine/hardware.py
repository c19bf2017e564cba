"""This rank's accelerator: precisions, whether torch can use it, determinism; data sheets of GPU kinds."""

import os
import platform
import re
import shutil
import sys
import sysconfig
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

from common.environment import gpus_of_driver, has_gpu_device, lines_of, whole_number
from common.errors import UserError, one_line
from common.text import quantity

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
    """The name of an accelerator ("NVIDIA H200", "CPU"), its native precisions, and whether it compiles.

    `compiles`: torch.compile is worth its start: a GPU of compute capability 8.0 or newer, and a host with a compiler.
    """

    name: str
    fp16: bool
    bf16: bool
    compiles: bool = False


def detect_hardware() -> Hardware:
    """The hardware of this rank's accelerator, as DeepSpeed selects it.

    Raises UserError: the host has a GPU that torch cannot use.
    """
    import torch
    from deepspeed.accelerator import get_accelerator

    check_gpus_are_usable()
    accelerator = get_accelerator()
    if accelerator.device_name() == "cpu":
        return Hardware("CPU", bool(accelerator.is_fp16_supported()), has_bf16("cpu"))
    return Hardware(
        torch.cuda.get_device_name() if torch.cuda.is_available() else accelerator.device_name(),
        bool(accelerator.is_fp16_supported()),
        has_bf16("cuda") if accelerator.device_name() == "cuda" else bool(accelerator.is_bf16_supported()),
        torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0) and not missing_for_compilation(),
    )


def has_bf16(device: str) -> bool:
    """Whether a device, "cpu" or "cuda", has instructions for bf16. Emulation takes several times as long as fp32."""
    import torch

    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # DeepSpeed's CPU accelerator always claims bf16, and oneDNN wherever there is AVX-512.
    has = torch.cpu.get_capabilities()
    is_emulated = has["architecture"] == "x86_64" and not (has.get("avx512_bf16") or has.get("amx_bf16"))
    return torch.ops.mkldnn._is_mkldnn_bf16_supported() and not is_emulated


def processor() -> str:
    """The name of this host's processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


MAX_COMPILE_THREADS = 32  # torch's own limit


def limit_compile_threads() -> None:
    """Shares the cores of this host among the compilers of its ranks. Otherwise each starts a thread per core."""
    ranks = whole_number("LOCAL_WORLD_SIZE", low=1, default=whole_number("LOCAL_SIZE", low=1, default=1))
    threads = min(MAX_COMPILE_THREADS, len(os.sched_getaffinity(0)), max(1, (os.cpu_count() or 1) // ranks))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(threads))


def missing_for_compilation() -> str:
    """What Inductor and Triton need on this machine and do not find; "" if nothing is missing."""
    missing = [] if any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))) else ["a C compiler (gcc)"]
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    missing += [] if header.exists() else [f"{header} (python3-dev)"]
    return f"torch.compile needs {' and '.join(missing)}" if missing else ""


def check_accelerator() -> None:
    """Reads DS_ACCELERATOR as DeepSpeed will: without capitals, and not at all if it is empty.

    Raises UserError for an accelerator that this project does not know.
    """
    chosen = os.environ.get("DS_ACCELERATOR")
    if chosen == "":
        del os.environ["DS_ACCELERATOR"]
    elif chosen is not None and chosen.lower() not in ("cpu", "cuda"):
        raise UserError(f"the variable DS_ACCELERATOR is {chosen[:40]!r}, neither cpu nor cuda; correct or unset it")
    elif chosen is not None:
        os.environ["DS_ACCELERATOR"] = chosen.lower()


def check_gpus_are_usable() -> None:
    """Raises UserError if this host has a GPU that torch cannot use, unless DS_ACCELERATOR names another accelerator.

    The processor would be chosen without a word, and a run of hours would take years. The same is an error if
    DS_ACCELERATOR asks for a GPU, and there is none.
    """
    import torch

    chosen = os.environ.get("DS_ACCELERATOR")
    if chosen and chosen != "cuda":
        return
    with warnings.catch_warnings(action="ignore"):  # torch warns about an old driver, and the error says it
        if torch.cuda.is_available():
            return
        gpus = [] if chosen else gpus_of_driver()
        if not (chosen or gpus or has_gpu_device()):
            return
        reason = "it sees none"
        try:
            torch.cuda.init()
        except Exception as error:  # RuntimeError, AssertionError: why torch has no GPU, in its own words
            reason = one_line(error).partition(". ")[0].rstrip(".")
    driver = next(iter(lines_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")), "unknown")
    gpu = f"{quantity(len(gpus), 'GPU')} (driver {driver})" if gpus else "/dev/nvidia0"
    raise UserError(
        f"{'DS_ACCELERATOR is cuda' if chosen else f'this host has {gpu}'}, and torch {torch.__version__} (built for "
        f"CUDA {torch.version.cuda or 'none'}) cannot use a GPU: {reason}; install a driver and a build of torch that "
        'fit (docs/quickstart.md, "1. Set up"), make CUDA_VISIBLE_DEVICES name GPUs, or set DS_ACCELERATOR=cpu to '
        "use the processor"
    )


def sum_products_in_fp32(yes: bool = True) -> None:
    """Lets a GPU add up the parts of a 16-bit product in fp32 only, such as a weight's gradient over all tokens.

    torch's default lets it add them up in 16 bits.
    """
    import torch

    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = not yes
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = not yes


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
    """One kind of GPU."""

    name: str
    memory_bytes: float
    # peak of dense matrix products, by precision. A missing precision is not native; fp32 is without TF32.
    tflops: dict[str, float]
    link_bytes_per_second: float  # from one GPU to the others of its node, one direction
    network_gbit: float  # network of a typical node, in Gbit/s, one direction
    device_names: str  # a pattern of the driver's names. Variants with other peaks (H100 PCIe, A10G) do not match.


_GIB = 2.0**30
_PCIE = 32e9  # bytes a second of PCIe 4.0 x16, one direction

GPUS = {
    "v100": Gpu("V100 32 GB", 32 * _GIB, {"fp16": 125, "fp32": 15.7}, 150e9, 100, "V100-.*-32GB"),
    "t4": Gpu("T4", 15 * _GIB, {"fp16": 65, "fp32": 8.1}, 16e9, 50, "T4"),
    "a10": Gpu("A10", 22.5 * _GIB, {"fp16": 125, "bf16": 125, "fp32": 31.2}, _PCIE, 100, "A10"),
    "l4": Gpu("L4", 22.5 * _GIB, {"fp16": 121, "bf16": 121, "fp32": 30.3}, _PCIE, 100, "L4"),
    # Of GeForce cards, the peak with fp32 accumulation, which training uses.
    "rtx3090": Gpu("RTX 3090", 24 * _GIB, {"fp16": 71, "bf16": 71, "fp32": 35.6}, _PCIE, 10, "GeForce RTX 3090"),
    "rtx4090": Gpu("RTX 4090", 24 * _GIB, {"fp16": 165, "bf16": 165, "fp32": 82.6}, _PCIE, 10, "GeForce RTX 4090"),
    "rtx6000": Gpu(
        "RTX 6000 Ada", 45 * _GIB, {"fp16": 364, "bf16": 364, "fp32": 91.1}, _PCIE, 25, "RTX 6000 Ada Generation"
    ),
    "a100-40": Gpu("A100 40 GB", 40 * _GIB, {"fp16": 312, "bf16": 312, "fp32": 19.5}, 300e9, 400, "A100-.*-40GB"),
    "a100": Gpu(
        "A100 80 GB", 80 * _GIB, {"fp16": 312, "bf16": 312, "fp32": 19.5}, 300e9, 1600, "A100-.*-80GB|A100 80GB PCIe"
    ),
    "l40s": Gpu("L40S", 45 * _GIB, {"fp16": 362, "bf16": 362, "fp32": 91.6}, _PCIE, 400, "L40S"),
    "h100": Gpu("H100 SXM 80 GB", 80 * _GIB, {"fp16": 989, "bf16": 989, "fp32": 67}, 450e9, 3200, "H100 80GB HBM3"),
    "h200": Gpu("H200 141 GB", 139 * _GIB, {"fp16": 989, "bf16": 989, "fp32": 67}, 450e9, 3200, "H200"),
    "mi300x": Gpu(
        "MI300X 192 GB", 191 * _GIB, {"fp16": 1307, "bf16": 1307, "fp32": 163}, 448e9, 3200, "AMD Instinct MI300X.*"
    ),
    "b200": Gpu("B200 180 GB", 178 * _GIB, {"fp16": 2250, "bf16": 2250, "fp32": 80}, 900e9, 3200, "B200"),
}


def find_by_device_name(name: str) -> Gpu | None:
    """The GPU kind by the driver's name, such as "NVIDIA A100-SXM4-80GB"; None if it is not known."""
    short = re.sub(r"^(NVIDIA|Tesla) ", "", name)
    return next((gpu for gpu in GPUS.values() if re.fullmatch(gpu.device_names, short)), None)


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


def find_gpu(
    name: str, network_gbit: float | None = None, memory_gb: float | None = None, tflops: float | None = None
) -> Gpu:
    """The GPU kind of that name, with the figures that are given. `memory_gb` and `tflops` make a kind of their own.

    network_gbit: of a node, one direction. memory_gb: of one GPU, in 1e9 bytes. tflops: the peak in the precision of
    the run. Raises UserError: an unknown name without memory and peak.
    """
    if name not in GPUS and None in (memory_gb, tflops):
        raise UserError(f"--gpu {name!r} is not known; use {', '.join(GPUS)}, or give --gpu-memory and --gpu-tflops")
    gpu = GPUS.get(name) or Gpu(name, 0.0, {}, _PCIE, network_gbit=100, device_names="")
    return replace(
        gpu,
        network_gbit=network_gbit or gpu.network_gbit,
        memory_bytes=memory_gb * 1e9 if memory_gb else gpu.memory_bytes,
        tflops=dict.fromkeys(gpu.tflops or ("fp16", "bf16", "fp32"), tflops) if tflops else gpu.tflops,
    )
