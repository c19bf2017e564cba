"""Decides which attention kernel a run uses.

On a GPU, rank 0 tries the candidates on a micro-batch of the run, and all ranks use the fastest. The settings.json of
the run records it ("implementation"), and a later start keeps it: each kernel rounds differently, so a run that changes
it does not go on bit for bit. On a processor a rule decides at no cost (`model/attention/kernels.py`).
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from model.attention.kernels import AttentionCase, candidates
from model.config import ATTENTION_KERNELS, GPU_KERNELS, AlbertConfig, ExecutionOptions
from pipeline.checkpoint import run_directory
from pipeline.distributed.control import ControlGroup
from pipeline.run.attention_trial import Trial, try_kernel
from pipeline.training.run_settings import RunSettings

S = TypeVar("S", bound=RunSettings)
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Recorded(NamedTuple):
    """The kernel that a run was trained with.

    Attributes:
        run: its directory.
        device: the kind of GPU.
    """

    kernel: str
    run: Path
    device: str | None


def choose_for_run(
    settings: S, first_batch: Callable[[], Any], control: ControlGroup, others: Sequence[Path] = ()
) -> S:
    """Returns `settings` with the kernel of the run instead of "auto", executed as rank 0 is. Collective.

    The pages of `make gpu`, by which `--compile auto` decides, may be on some hosts only. Ranks that executed the model
    in different ways could send their gradients in different orders.

    It comes before settings.json is written and before the model is made, while the memory of the GPU is free.

    Args:
        first_batch: makes a micro-batch of the run, a NamedTuple of numpy arrays; called on rank 0, if at all.
        others: runs whose kernel is taken as well if this run has none, such as those of other seeds.
    """
    settings = dataclasses.replace(settings, execution=control.broadcast(settings.execution, (ExecutionOptions,)))
    if settings.execution.attention != "auto":
        return settings
    if not is_measured(settings):
        earlier = recorded([settings.output]) if control.rank == 0 else None
        if earlier is not None and earlier.kernel in GPU_KERNELS:
            print(_gone(earlier, settings, "it needs a GPU"), flush=True)
        return settings
    kernel = "auto"
    if control.rank == 0:
        batch = first_batch()
        case = case_for(settings.model, settings.engine.precision, batch, settings.deterministic)
        kernel = _choose(settings, case, batch.sequence_ids, [settings.output, *others])
    return dataclasses.replace(
        settings, execution=dataclasses.replace(settings.execution, attention=control.broadcast(kernel))
    )


def is_measured(settings: RunSettings) -> bool:
    """Whether kernels are measured for a run: it trains on a GPU."""
    return settings.engine.device != "CPU" and torch.cuda.is_available()


def recorded(runs: Sequence[Path]) -> Recorded | None:
    """The kernel of the first of `runs` that has recorded one; None if none has."""
    for run in runs:
        if (run / "settings.json").exists():
            found = run_directory.read_settings(run)
            kernel = (found.get("implementation") or {}).get("attention")
            if kernel in ATTENTION_KERNELS and kernel != "auto":
                return Recorded(kernel, run, found.get("device"))
    return None


def case_for(config: AlbertConfig, precision: str, batch: Any, deterministic: bool = False) -> AttentionCase:
    """What the choice depends on, for micro-batches such as `batch` in a precision: "fp32", "fp16" or "bf16"."""
    return AttentionCase(
        device=torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu"),
        dtype=DTYPES[precision],
        length=batch.sequence_ids.shape[1],
        heads=config.num_attention_heads,
        head_dim=config.head_dim,
        dropout=config.attention_probs_dropout_prob,
        deterministic=deterministic,
    )


def _choose(settings: RunSettings, case: AttentionCase, sequence_ids: NDArray[np.int64], runs: Sequence[Path]) -> str:
    if (earlier := recorded(runs)) is not None:
        problem = ""
        if earlier.kernel not in candidates(case):
            problem = f"it cannot compute {settings.engine.precision} and these heads and dropout"
        elif earlier.device != settings.engine.device:
            problem = try_kernel(case, earlier.kernel, sequence_ids).problem
        if not problem:
            print(f"attention kernel: {earlier.kernel}, as recorded in {earlier.run}", flush=True)
            return earlier.kernel
        print(_gone(earlier, settings, problem), flush=True)
    print("choosing the attention kernel: each candidate is tried in a process of its own, once per run", flush=True)
    kernel, line = fastest(case, sequence_ids)
    print(line, flush=True)
    return kernel


def fastest(case: AttentionCase, sequence_ids: NDArray[np.int64]) -> tuple[str, str]:
    """The fastest candidate on the micro-batch `sequence_ids` (B, S), and a line for people about all of them.

    It is "auto" if no trial succeeds, for example because no second process may use the GPU. The run then uses the
    masked kernel, records none, and its next start tries again.
    """
    trials = {kernel: try_kernel(case, kernel, sequence_ids) for kernel in candidates(case)}
    kernel = min(trials, key=lambda name: (_seconds(trials[name]), name != "masked"))
    told = [
        f"{name} {1e3 * trial.seconds:.3g} ms" if trial.seconds is not None else f"{name}: {trial.problem}"
        for name, trial in sorted(trials.items(), key=lambda entry: _seconds(entry[1]))
    ]
    if trials[kernel].seconds is None:
        return "auto", f"attention kernel: masked, because no trial succeeded ({'; '.join(told)})"
    return kernel, f"attention kernel: {kernel} ({'; '.join(told)})"


def _seconds(trial: Trial) -> float:
    return float("inf") if trial.seconds is None else trial.seconds


def _gone(earlier: Recorded, settings: RunSettings, problem: str) -> str:
    return (
        f"note: the attention kernel {earlier.kernel}, recorded in {earlier.run}, cannot be used on "
        f"{settings.engine.device} ({problem}); another one takes its place, so what follows is equal up to rounding "
        "only"
    )
