"""What the system says of its GPUs, without torch."""

import os
import subprocess


def lines_of(*command: str, seconds: float = 20) -> list[str]:
    """The lines that a command prints; none if it is missing, fails or takes longer."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return result.stdout.splitlines() if result.returncode == 0 else []


def gpus_of_driver() -> list[str]:
    """The lines of `nvidia-smi -L`, one a GPU; none without a driver."""
    return [line for line in lines_of("nvidia-smi", "-L") if line.startswith("GPU ")]


def has_gpu_device() -> bool:
    """Whether the kernel shows a GPU, with or without nvidia-smi."""
    return os.path.exists("/dev/nvidia0")
