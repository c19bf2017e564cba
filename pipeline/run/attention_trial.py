"""Measures one attention kernel in a process of its own.

A kernel that reads or writes outside of its memory leaves the GPU unusable for the process that called it, and shows it
at a later call only. So the process that trains calls no kernel that was not tried before. The request comes on stdin:
a line of JSON, then the sequence ids of a micro-batch. The answer is a line of JSON on stdout.
"""

import dataclasses
import json
import subprocess
import sys
import warnings
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from model.attention.kernels import AttentionCase, seconds_of
from pipeline.data.packed_rows import sequence_offsets
from pipeline.engine import hardware

TIMEOUT = 240.0
"""Seconds that a trial may take: torch is imported first."""
_LONGEST = 100
"""Characters of an error that are told."""
_COMMAND = (sys.executable, "-m", __name__)


class Trial(NamedTuple):
    """What became of a trial.

    Attributes:
        seconds: of a forward and backward pass; None if the kernel cannot be used.
        problem: why it cannot; "" if it can.
    """

    seconds: float | None
    problem: str = ""


def try_kernel(
    case: AttentionCase, kernel: str, sequence_ids: NDArray[np.int64], command: Sequence[str] = _COMMAND
) -> Trial:
    """Measures `kernel` on the micro-batch `sequence_ids` (B, S) in another process.

    Args:
        command: what reads the request and answers.
    """
    fields = dataclasses.asdict(case) | {"device": str(case.device), "dtype": str(case.dtype).removeprefix("torch.")}
    request = json.dumps({"case": fields, "kernel": kernel, "shape": sequence_ids.shape}).encode()
    try:
        done = subprocess.run(
            command, input=request + b"\n" + sequence_ids.tobytes(), capture_output=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return Trial(None, f"no answer within {TIMEOUT:.0f} s")
    if done.returncode < 0:
        return Trial(None, f"its process was ended by signal {-done.returncode}")
    try:
        return Trial(**json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError, TypeError):
        said = done.stderr.decode(errors="replace").strip().splitlines() or ["nothing"]
        return Trial(None, f"its process ended with {done.returncode} and said: {said[-1][:_LONGEST]}")


def answer(source: BinaryIO) -> Trial:
    """Measures in this process what a request asks for."""
    request = json.loads(source.readline())
    fields = request["case"]
    fields |= {"device": torch.device(fields["device"]), "dtype": getattr(torch, fields["dtype"])}
    case = AttentionCase(**fields)
    ids = np.frombuffer(source.read(), dtype=np.int64).reshape(request["shape"])  # (B, S)
    if case.deterministic:
        hardware.make_deterministic()
    if case.device.type == "cuda":
        torch.cuda.set_device(case.device)
    offsets = torch.from_numpy(sequence_offsets(ids)).to(case.device)  # (N + 1,)
    try:
        with warnings.catch_warnings(action="ignore"):  # torch warns about unavailable kernels
            return Trial(seconds_of(case, request["kernel"], torch.tensor(ids, device=case.device), offsets))
    except Exception as error:  # torch, Triton and cuDNN raise different errors where a kernel is unavailable
        return Trial(None, (str(error).strip().splitlines() or [type(error).__name__])[0][:_LONGEST])


if __name__ == "__main__":
    print(json.dumps(answer(sys.stdin.buffer)._asdict()))
