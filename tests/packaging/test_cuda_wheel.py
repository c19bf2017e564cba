"""The CUDA build of torch without a GPU: it imports, computes shapes for a GPU, and refuses clearly.

It is a download of gigabytes, so that no other test has it. ALBERT_CUDA_WHEEL names a Python that has it, and the
packages of requirements.txt:

    ALBERT_CUDA_WHEEL=/some/venv/bin/python python -m pytest tests/packaging/test_cuda_wheel.py
"""

import os
from pathlib import Path

import pytest

from tests.pipeline.conftest import run
from tests.pipeline.stand_ins import nvidia_smi

PYTHON = os.environ.get("ALBERT_CUDA_WHEEL", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="ALBERT_CUDA_WHEEL names no Python with the CUDA build of torch"),
    pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="this machine has a GPU"),
]


def refusal(directory: Path, *environment: str) -> str:
    """The line with which a command ends that finds no usable GPU."""
    command = [
        PYTHON,
        "-m",
        "pipeline.pretrain",
        "--model",
        "albert-tiny",
        "--deepspeed_config",
        "ds_configs/tiny.json",
    ]
    paths = ("--data", directory / "none", "--output", directory / "run")
    ended = run("env", "-u", "DS_ACCELERATOR", *environment, *command, *paths, status=2)
    assert "Traceback" not in ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
    return str(line)


def test_it_imports_computes_with_fake_tensors_and_refuses_a_build(tmp_path: Path) -> None:
    without = ("-u", "CUDA_HOME", "-u", "TORCH_CUDA_ARCH_LIST")
    settings = ("DS_ACCELERATOR=cuda", "PYTHONPATH=.", f"TORCH_EXTENSIONS_DIR={tmp_path}")
    ended = run("env", *without, *settings, PYTHON, "tests/packaging/cuda_wheel.py")
    lines = [line for line in ended.stdout.splitlines() if not line.startswith("compiling")]
    assert lines[0].startswith("torch for CUDA 1")
    assert lines[0].endswith("False pipeline.pretraining.command")
    assert lines[1:4] == ["masked cuda:0 torch.float32", "flash cuda:0 torch.float32", "LAMB cuda:0"]
    assert lines[4].startswith("build: DeepSpeed cannot build its extension fused_adam: ")
    assert 'remove what needs it, such as "torch_adam": false' in lines[4]
    assert len(lines) == 5


def test_a_gpu_that_it_cannot_use_is_an_error_of_one_line(tmp_path: Path) -> None:
    programs = nvidia_smi(tmp_path / "bin", 1, "535.104.05")
    line = refusal(tmp_path, f"PATH={programs}:{os.environ['PATH']}")
    assert "this host has 1 GPU (driver 535.104.05), and torch" in line
    assert "cannot use a GPU" in line
    assert "install driver 580 or newer" in line
    assert "DS_ACCELERATOR is cuda" in refusal(tmp_path, "DS_ACCELERATOR=cuda")
