"""Finds weights that differ between ranks, names the rank, and records checksums.

What all ranks hold must be equal on all of them. What ZeRO divides is on one rank only, so no other rank can check it:
there, the model's weights must be the optimizer's fp32 weights, rounded. The moments can only be recorded.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline.distributed.exits import EXIT_LOST
from pipeline.engine import checksums
from pipeline.engine.checksums import RankChecksums
from pipeline.training.callback import Callback, TrainingFailed
from pipeline.training.run_settings import RunSettings
from pipeline.training.state import TrainingRun

_SHOWN = 3


class SilentError(TrainingFailed):
    """The weights of a rank are wrong. The same command can go on from the last checkpoint."""

    status = EXIT_LOST


class WeightChecksums(Callback):
    """Compares what the ranks hold, and adds up the batches since the last record.

    Attributes:
        batches: the checksum of the batches of all ranks, at the last comparison, as a signed number.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._run, self._settings = run, run.settings
        self.batches = run.state.batches if run.is_rank_0 else 0  # those of the checkpoint are of all ranks
        self._batches = torch.tensor(self.batches, dtype=torch.int64, device=run.engine.device)  # ()

    def on_micro_step(self, tensors: dict[str, Tensor], output: Any, loss: Tensor) -> None:
        """Adds a micro-batch, as it is on the device."""
        is_real = (tensors["sequence_ids"] >= 0).any(dim=1)  # (B,)
        self._batches += checksums.batch_checksum(tensors, is_real)

    def on_log(self, record: dict[str, Any]) -> None:
        """Compares the ranks, unless an earlier record is closer than `check_interval` steps. Raises as `compare`."""
        step, every, log_interval = self._run.state.step, self._settings.check_interval, self._settings.log_interval
        if every > 0 and step % log_interval == 0 and step % every < log_interval:
            record |= self.compare(step)
            self._batches.zero_()

    def on_save(self) -> str:
        """Compares the ranks: wrong weights are not saved. Raises as `compare`."""
        self.compare(self._run.state.step)
        self._run.state.batches = self.batches
        return ""

    def compare(self, step: int) -> dict[str, Any]:
        """Compares the ranks after `step`. Collective; waits for the device.

        Returns:
            Of the record in metrics.jsonl: three checksums of all ranks together, 16 hexadecimal digits each, and how
            the step was divided. The batches are those since the record before.
        Raises:
            SilentError: on all ranks together.
        """
        mine = checksums.rank_checksums(self._run.engine)
        replica = checksums.combine([checksum for found in mine.replicas.values() for checksum in found])
        weights = checksums.combine(mine.own["weight"])
        moments = checksums.combine(mine.own["exp_avg"] + mine.own["exp_avg_sq"])
        numbers = replica, len(mine.unequal), weights, moments, int(self._batches)
        everyone = self._run.control.all_gather(numbers)
        replicas, unequal, all_weights, all_moments, batches = zip(*everyone)
        if len(set(replicas)) > 1 or any(unequal):
            found = self._run.control.gather(mine, (RankChecksums,))
            message = "" if found is None else describe(wrong_tensors(found), self._run.hosts, step)
            raise SilentError(self._run.control.broadcast(message))
        if self._settings.engine.zero_stage > 0:
            weights, moments = checksums.sum_checksums(*all_weights), checksums.sum_checksums(*all_moments)
        all_batches = checksums.sum_checksums(*batches)
        self.batches = _signed(all_batches)
        return {
            "weights_checksum": f"{weights:016x}",
            "moments_checksum": f"{moments:016x}",
            "batch_checksum": f"{all_batches:016x}",
            "layout": layout_of(self._settings),
        }


def layout_of(settings: RunSettings) -> str:
    """How a step is divided, and what computes it. Only the same layout computes the same bits."""
    config, execution = settings.engine, settings.execution
    division = f"{config.world_size} x {config.accumulation_steps} x {config.micro_batch_size} rows"
    words = {"compile": "compiled", "cuda_graphs": "CUDA graphs"}
    words |= {"chunked_loss": "chunked loss", "sum_gradients": "summed gradients"}
    features = "".join(f", {word}" for name, word in words.items() if getattr(execution, name))
    kernels = f"attention {execution.attention}{features}"
    return f"{division}, ZeRO stage {config.zero_stage}, {config.precision}, {config.device}, {kernels}"


def wrong_tensors(found: Sequence[RankChecksums]) -> dict[int, list[str]]:
    """By rank, the tensors that it holds wrongly. Each rank that differs is there, if nothing tells which is right.

    Of the whole tensors those are right that are the optimizer's fp32 weights of all ranks, rounded; otherwise those of
    a majority; otherwise those of a rank whose weights and fp32 weights are the same.

    Args:
        found: of each rank.
    """
    wrong: dict[int, dict[str, None]] = {rank: dict.fromkeys(one.unequal) for rank, one in enumerate(found)}
    for kind in found[0].replicas:
        for index, name in enumerate(found[0].names):
            values = [one.replicas[kind][index] for one in found]
            rounded = [one.rounded[index] for one in found] if kind == "weights" else []
            for rank in _suspects(values, rounded, [name in one.unequal for one in found]):
                wrong[rank][name if kind == "weights" else f"{kind} of {name}"] = None
    return {rank: list(names) for rank, names in wrong.items() if names}


def _suspects(values: Sequence[int], rounded: Sequence[int], unequal: Sequence[bool]) -> list[int]:
    """The ranks whose checksum of a tensor is wrong. See `wrong_tensors`.

    Args:
        values: of the tensor that all ranks should hold.
        rounded: of the fp32 weights, rounded: of the whole tensor on each rank, or of parts that add up to it.
        unequal: whether a rank's weights and fp32 weights are not the same.
    """
    (right, count), *others = Counter(values).most_common()
    if not others:
        return []
    known = [checksums.sum_checksums(*rounded), *(rounded[:1] if len(set(rounded)) == 1 else [])] if rounded else []
    if found := [one for one in known if one in values]:
        right = found[0]
    elif 2 * count <= len(values):
        return [rank for rank, differs in enumerate(unequal) if differs] or list(range(len(values)))
    return [rank for rank, value in enumerate(values) if value != right]


def describe(wrong: dict[int, list[str]], hosts: Sequence[str], step: int) -> str:
    """The error line about ranks that hold wrong weights."""
    ranks = " or ".join(f"rank {rank} on host {hosts[rank]}" for rank in sorted(wrong))
    names = list(dict.fromkeys(name for rank in sorted(wrong) for name in wrong[rank]))
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return (
        f"{ranks} holds wrong weights after step {step}, in {shown}: an error of memory, of a link or of a computation "
        f"that nothing else reported. Nothing of step {step} is saved; the same command goes on from the last "
        "checkpoint, better without that host (docs/reliability.md)"
    )


def _signed(number: int) -> int:
    """The same 64 bits as a signed number."""
    return number - (1 << 64) if number >= 1 << 63 else number
