"""Pre-training in two ranks whose clocks prefer different attention kernels, and with deterministic algorithms."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.distributed as dist

import model.albert
from pipeline.engine import hardware
from pipeline.run import attention_choice
from pipeline.run.attention_trial import Trial
from tests.pipeline.workers.runs import Ended, run_each


@dataclass(frozen=True)
class Start:
    """A start of a run.

    Attributes:
        clocks: for each rank, the seconds that its clock gives to a kernel. What is missing is no candidate.
        stop: the step after which a signal ends it.
    """

    clocks: tuple[dict[str, float], dict[str, float]]
    stop: int | None


class Trained(NamedTuple):
    """What became of a start.

    Attributes:
        used: by rank, the kernels that its model used.
        tried: by rank, the kernels that it tried.
        recorded: in settings.json.
    """

    status: int
    stdout: str
    used: list[set[str]]
    tried: list[list[str]]
    recorded: str


def train(command: list[str], starts: list[Start], output: Path) -> list[Trained]:
    """Runs one command line once for each start."""
    return [_train(command, start, output) for start in starts]


def _train(command: list[str], start: Start, output: Path) -> Trained:
    clock = start.clocks[dist.get_rank()]
    used: set[str] = set()
    tried: list[str] = []
    choose = model.albert.choose_kernel

    def note_use(*arguments: Any) -> str:
        kernel = choose(*arguments)
        used.add(kernel)
        return kernel

    def read_clock(_case: Any, kernel: str, _ids: Any) -> Trial:
        tried.append(kernel)
        return Trial(clock[kernel])

    with (
        mock.patch.object(attention_choice, "is_measured", return_value=True),
        mock.patch.object(attention_choice, "candidates", return_value=list(clock)),
        mock.patch.object(attention_choice, "try_kernel", read_clock),
        mock.patch.object(model.albert, "choose_kernel", note_use),
    ):
        (ended,) = run_each([(command, start.stop)])
    everyone: list[Any] = [None, None]
    dist.all_gather_object(everyone, (used, tried))
    recorded = json.loads((output / "settings.json").read_text())["implementation"]["attention"]
    return Trained(ended.status, ended.stdout, *map(list, zip(*everyone)), recorded)


def train_deterministically(command: list[str], folder: Path, stop: int) -> tuple[list[Ended], dict[str, Any]]:
    """Runs one command line with --deterministic to its end in `folder`/straight, and in two starts in `folder`/twice.

    Returns what became of the three starts, and torch's switches.
    """
    runs = {name: [*command, "--deterministic", "--output", str(folder / name)] for name in ("straight", "twice")}
    ended = run_each([(runs["straight"], None), (runs["twice"], stop), (runs["twice"], None)])
    return ended, {
        "algorithms": torch.are_deterministic_algorithms_enabled(),
        "only a warning": torch.is_deterministic_algorithms_warn_only_enabled(),
        "cudnn": (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark),
        "environment": {name: os.environ.get(name) for name in hardware.DETERMINISTIC_ENVIRONMENT},
    }
