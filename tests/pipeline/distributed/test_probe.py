"""The preflight tries a host's GPUs with a matrix product each. The GPUs and their torch are stand-ins."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipeline.distributed import probe, query
from pipeline.distributed.query import HostQuery
from pipeline.preflight import problems_of_host as problems
from tests.pipeline.stand_ins import nvidia_smi, torch_package

NOTHING: dict[str, Any] = {"packages": [], "sources": [], "data": [], "beacon": None, "interfaces": [], "connect": None}


def ask_probe(
    tmp_path: Path, listed: int, usable: int, broken: tuple[str, ...] = (), gpus: bool = True, told: str = "Default"
) -> dict[str, Any]:
    """The answer of a host, as the preflight asks it: the probe's file, run by a Python without the project."""
    path = f"{nvidia_smi(tmp_path / 'bin', listed, told)}:{os.environ['PATH']}"
    environment = {"PATH": path, "PYTHONPATH": str(torch_package(tmp_path / "package", usable, broken))}
    words = [
        sys.executable,
        "-c",
        Path(probe.__file__).read_text(),
        json.dumps({**NOTHING, "gpus": gpus, "listen": 0}),
    ]
    ended = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


@pytest.mark.parametrize(
    ("listed", "usable", "broken", "line"),
    [
        (2, 2, (), ""),
        (2, 2, ("cuda:1",), "torch cannot compute on its GPUs: GPU 1: CUDA error: uncorrectable ECC error (torch"),
        (2, 0, (), "is too old (found version 12020). (torch 2.13.0, built for CUDA 13.0); see `nvidia-smi`"),
        (2, 1, (), "has 1 GPU, and 2 slots in the hostfile"),
        (0, 0, (), "has 0 GPUs, and 2 slots in the hostfile"),
    ],
)
def test_each_gpu_computes_a_product(
    tmp_path: Path, listed: int, usable: int, broken: tuple[str, ...], line: str
) -> None:
    found = ask_probe(tmp_path, listed, usable, broken)
    lines = problems(2, found, found["facts"], needs_gpus=True)
    if not line:
        assert lines == []
    else:
        (only,) = lines
        assert line in only


def test_gpus_that_serve_one_process_only_are_named(tmp_path: Path) -> None:
    found = ask_probe(tmp_path, 1, 1, told="Exclusive_Process")
    (line,) = problems(1, found, found["facts"], needs_gpus=True)
    assert "compute mode Exclusive_Process" in line
    assert "nvidia-smi -c DEFAULT" in line


def test_a_host_that_trains_on_its_processor_is_not_asked_for_gpus(tmp_path: Path) -> None:
    found = ask_probe(tmp_path, 2, 0, gpus=False)
    assert problems(1, found, found["facts"], needs_gpus=False) == []
    (line,) = problems(5000, found, found["facts"], needs_gpus=False)
    assert "and 5,000 slots in the hostfile" in line


def test_the_greeting_of_a_host_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(
        '#!/bin/sh\necho Welcome\necho "{ node 7 }"\nprintf "\\\\374\\\\n"\nfor word; do :; done\nexec sh -c "$word"\n'
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    asked = HostQuery("node1", {}, {**NOTHING, "gpus": False})
    found = asked.answer()
    asked.end()
    assert (found["problems"], found["facts"]["Python"]) == ([], {"": platform.python_version()})


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (255, "cannot be reached by ssh without a password (Permission denied); start it, or set up the key"),
        (97, "has no directory "),
        (98, "has no "),
        (1, f"cannot run {sys.executable} (Permission denied); make the environment there as it is here"),
    ],
)
def test_a_host_that_gives_no_answer_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, line: str
) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\necho Permission denied >&2\nexit {status}\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (found,) = query.ask_all(["node1"], {}, {**NOTHING, "gpus": False}, "", 29500)
    (only,) = problems(8, found, {}, needs_gpus=True)
    assert only.startswith(line)
