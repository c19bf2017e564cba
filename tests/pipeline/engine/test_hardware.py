"""A GPU that torch cannot use is an error, never training on the processor. The GPUs are stand-ins."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from common.errors import UserError
from pipeline.engine.hardware import check_accelerator, check_gpus_are_usable, detect_hardware, limit_compile_threads
from tests.pipeline.conftest import REPOSITORY
from tests.pipeline.stand_ins import nvidia_smi

TOO_OLD = "The NVIDIA driver on your system is too old (found version 12020). Please update it. More"


@pytest.fixture(autouse=True)
def torch_without_gpu(monkeypatch):
    for name in ("DS_ACCELERATOR", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "init", mock.Mock(side_effect=RuntimeError(TOO_OLD)))
    monkeypatch.setattr(torch.version, "cuda", "13.0")


def with_gpus(monkeypatch: pytest.MonkeyPatch, directory: Path, gpus: int, driver: str) -> None:
    monkeypatch.setenv("PATH", f"{nvidia_smi(directory, gpus, driver)}:{os.environ['PATH']}")


def test_the_error_names_driver_build_and_remedy(monkeypatch, tmp_path):
    with_gpus(monkeypatch, tmp_path, 2, "535.104.05")
    said = r"2 GPUs \(driver 535.104.05\), and torch .*\(built for CUDA 13.0\) cannot use .*too old.*DS_ACCELERATOR=cpu"
    with pytest.raises(UserError, match=said):
        detect_hardware()


def test_a_device_without_nvidia_smi_counts(monkeypatch):
    monkeypatch.setattr("pipeline.engine.hardware.gpus_of_driver", list)
    monkeypatch.setattr("pipeline.engine.hardware.has_gpu_device", lambda: True)
    with pytest.raises(UserError, match="this host has /dev/nvidia0, and torch"):
        check_gpus_are_usable()


@pytest.mark.parametrize(
    ("devices", "expected"),
    [([], "0 cpu 2"), (["nvidia0", "nvidiactl", "nvidia-caps"], "1 - 1"), (["nvidia0", "nvidia1"], "2 - 2")],
)
def test_make_trains_on_the_processor_only_without_a_gpu(tmp_path, devices, expected):
    for name in devices:
        (tmp_path / name).touch()
    rule = "told: ; @echo $(GPUS) $${DS_ACCELERATOR--} $(RANKS)"
    words = ["make", "--silent", "--eval", rule, "told", f"DEV={tmp_path}"]
    environment = {name: value for name, value in os.environ.items() if name not in ("DS_ACCELERATOR", "RANKS")}
    ended = subprocess.run(words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == expected.split()


def test_where_torch_uses_what_is_asked_for_nothing_is_wrong(monkeypatch, tmp_path):
    monkeypatch.setattr("pipeline.engine.hardware.has_gpu_device", lambda: False)
    with_gpus(monkeypatch, tmp_path, 0, "")
    check_gpus_are_usable()
    with_gpus(monkeypatch, tmp_path, 1, "535.104.05")
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    check_gpus_are_usable()
    monkeypatch.setenv("DS_ACCELERATOR", "cuda")
    with pytest.raises(UserError, match=r"DS_ACCELERATOR is cuda, and torch .* \(found version 12020\); install"):
        check_gpus_are_usable()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    check_gpus_are_usable()
    monkeypatch.delenv("DS_ACCELERATOR")
    monkeypatch.setattr("pipeline.engine.hardware.gpus_of_driver", lambda: pytest.fail("that takes a second"))
    check_gpus_are_usable()


@pytest.mark.parametrize(
    ("variables", "cores", "threads"),
    [({}, 64, 32), ({"LOCAL_SIZE": "8"}, 64, 8), ({"LOCAL_WORLD_SIZE": "8"}, 4, 1)],
)
def test_the_ranks_of_a_host_share_its_cores_for_compiling(monkeypatch, variables, cores, threads):
    for name in ("LOCAL_SIZE", "LOCAL_WORLD_SIZE", "TORCHINDUCTOR_COMPILE_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    limit_compile_threads()
    assert os.environ["TORCHINDUCTOR_COMPILE_THREADS"] == str(threads)
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "5")
    limit_compile_threads()
    assert os.environ["TORCHINDUCTOR_COMPILE_THREADS"] == "5"


@pytest.mark.parametrize("is_native", [False, True])
def test_emulated_bf16_does_not_count(monkeypatch, is_native):
    """torch's own `is_bf16_supported` answers yes on a V100, where bf16 is emulated."""
    accelerator = SimpleNamespace(
        device_name=lambda: "cuda", is_fp16_supported=lambda: True, is_bf16_supported=lambda: True
    )
    monkeypatch.setattr("pipeline.engine.hardware.check_gpus_are_usable", lambda: None)
    monkeypatch.setattr("deepspeed.accelerator.get_accelerator", lambda: accelerator)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "some GPU")
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation or is_native
    )
    for capability, missing in [((8, 0), ""), ((7, 5), ""), ((9, 0), "gcc")]:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda capability=capability: capability)
        monkeypatch.setattr("pipeline.engine.hardware.missing_for_compilation", lambda missing=missing: missing)
        found = detect_hardware()
        assert (found.name, found.fp16, found.bf16) == ("some GPU", True, is_native)
        assert found.compiles is (capability == (8, 0))


@pytest.mark.parametrize(
    ("has", "is_native"),
    [
        ({"architecture": "x86_64", "avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"architecture": "x86_64", "avx512_f": True, "avx512_bf16": True, "amx_bf16": False}, True),
        ({"architecture": "x86_64", "avx512_f": True, "avx512_bf16": False, "amx_bf16": True}, True),
        ({"architecture": "arm64", "neon": True, "bf16": True}, True),
    ],
)
def test_bf16_that_onednn_emulates_on_a_processor_does_not_count(monkeypatch, has, is_native):
    """With AVX-512 alone oneDNN has it, but takes longer than for fp32."""
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True, raising=False)
    monkeypatch.setattr("pipeline.engine.hardware.check_gpus_are_usable", lambda: None)
    assert detect_hardware().bf16 is is_native


@pytest.mark.parametrize(("given", "becomes"), [("CPU", "cpu"), ("Cuda", "cuda"), ("cpu", "cpu"), ("", None)])
def test_the_accelerator_is_read_without_capitals(monkeypatch, given, becomes):
    monkeypatch.setenv("DS_ACCELERATOR", given)
    check_accelerator()
    assert os.environ.get("DS_ACCELERATOR") == becomes

    monkeypatch.setenv("DS_ACCELERATOR", f"{given}7")
    with pytest.raises(UserError, match=r"DS_ACCELERATOR is '.*7', neither cpu nor cuda"):
        check_accelerator()
