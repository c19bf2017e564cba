"""Refuses to train on the processor where a GPU is there that torch cannot use."""

import os
import warnings

import torch

from common.errors import UserError
from common.progress import quantity
from pipeline.distributed.hosts.probe import gpus_of_driver, has_gpu_device, lines_of

_OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
"""The oldest driver for torch builds of a CUDA major version (NVIDIA, "CUDA Compatibility")."""


def check_gpus_are_usable() -> None:
    """Raises UserError if this host has a GPU that torch cannot use, unless DS_ACCELERATOR names another accelerator.

    DeepSpeed would choose the processor without a word, and a run of hours would take years. The same is an error if
    DS_ACCELERATOR asks for a GPU, and there is none.
    """
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
    return f"torch {torch.__version__} (built for CUDA {torch.version.cuda or 'none'})"


def _reason() -> str:
    """Why torch has no GPU, in its own words."""
    try:
        torch.cuda.init()
    except Exception as error:  # RuntimeError, AssertionError
        return str(error).strip().partition("\n")[0].partition(". ")[0].rstrip(".")
    return "it sees none"


def _remedy(driver: str) -> str:
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return "unset CUDA_VISIBLE_DEVICES, which hides the GPUs"
    if torch.version.cuda is None:
        return 'install a build for CUDA (README, "GPU drivers")'
    major, installed = int(torch.version.cuda.partition(".")[0]), driver.partition(".")[0]
    oldest = _OLDEST_DRIVER.get(major)
    if oldest is not None and installed.isdigit() and int(installed) < oldest:
        return f'install driver {oldest} or newer, or a build for an older one (README, "GPU drivers")'
    return "see `nvidia-smi`, and whether this user or container may use /dev/nvidia*"
