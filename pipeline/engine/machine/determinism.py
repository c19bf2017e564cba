"""Makes torch compute the same bits for the same operations on the same hardware (--deterministic)."""

import os
import sys

import torch

ENVIRONMENT = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "NCCL_ALGO": "^NVLS,NVLSTree",
    "TORCHINDUCTOR_DETERMINISTIC": "1",
}
"""Read by cuBLAS, NCCL and torch's compiler when they start. A value that the user has set stays. Without these, cuBLAS
may take another algorithm each time, switches add in no fixed order (NVLS), and the compiler chooses between reductions
by the clock."""


def switch_on() -> None:
    """Switches to deterministic algorithms, in this process and those that it starts. Call it before CUDA starts."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # An operation without a deterministic algorithm raises RuntimeError.
    torch.use_deterministic_algorithms(True)
    # Filling what is allocated costs time, and nothing here reads memory that was not written.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    if (compiler := sys.modules.get("torch._inductor.config")) is not None:  # it has read its variable already
        compiler.deterministic = True  # type: ignore[attr-defined]
