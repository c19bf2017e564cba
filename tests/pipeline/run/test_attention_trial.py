"""A trial of an attention kernel in a process of its own."""

import dataclasses
import io
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from model.attention.kernels import AttentionCase
from pipeline.run import attention_trial as trial
from pipeline.run.attention_trial import try_kernel

CASE = AttentionCase(torch.device("cpu"), torch.float32, 6, heads=2, head_dim=8, dropout=0.1, deterministic=True)
IDS = np.array([[0, 0, 0, 1, 1, -1], [0, 1, 1, 1, 1, 1]])


@pytest.mark.slow
def test_a_kernel_is_measured_in_a_process_of_its_own() -> None:
    found = try_kernel(CASE, "sequences", IDS)
    assert found.problem == ""
    assert found.seconds is not None
    assert 0 < found.seconds < 60


@pytest.mark.parametrize(("kernel", "problem"), [("sequences", ""), ("flash", "'aten::_flash_attention_forward'")])
def test_what_the_process_answers(kernel: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer_here(command: object, input: bytes, **_: object) -> SimpleNamespace:
        found = trial.answer(io.BytesIO(input))
        return SimpleNamespace(returncode=0, stdout=json.dumps(found._asdict()).encode())

    monkeypatch.setattr(trial.subprocess, "run", answer_here)
    found = try_kernel(dataclasses.replace(CASE, deterministic=False), kernel, IDS)
    assert (found.seconds is None) == bool(problem)
    assert problem in found.problem


@pytest.mark.parametrize(
    ("program", "timeout", "problem"),
    [
        ("import os; os.abort()", 300.0, "its process was ended by signal 6"),
        (
            "import sys; sys.exit('CUDA error: an illegal memory access')",
            300.0,
            "ended with 1 and said: CUDA error: an illegal",
        ),
        ("print('{}')", 300.0, "ended with 0 and said: nothing"),
        ("import time; time.sleep(3600)", 1.0, "no answer within 1 s"),
    ],
)
def test_a_process_that_dies_excludes_the_kernel(
    program: str, timeout: float, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "TIMEOUT", timeout)
    found = try_kernel(CASE, "flash", IDS, [sys.executable, "-S", "-c", program])
    assert found.seconds is None
    assert problem in found.problem
