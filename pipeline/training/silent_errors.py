"""Finds weights that differ between ranks, names the rank, and records checksums for `pipeline.replay`.

What all ranks hold must be equal on all of them. What ZeRO divides is on one rank only, so no other rank can check it:
there, the model's weights must be the optimizer's fp32 weights, rounded. The moments can only be recorded.
"""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipeline.distributed.control import ControlGroup
from pipeline.distributed.exits import EXIT_LOST
from pipeline.engine import checksums
from pipeline.engine.checksums import RankChecksums
from pipeline.engine.protocol import Engine
from pipeline.training.divergence.non_finite import TrainingFailed
from pipeline.training.settings import RunSettings

CHECKSUMS = ("weights_checksum", "moments_checksum", "batch_checksum")
"""Keys of a train record in metrics.jsonl: 16 hexadecimal digits, of all ranks together. The batches are those of the
steps since the record before."""
LAYOUT = "layout"
"""Key of a train record: how the step was divided. Only the same layout computes the same bits."""
_SHOWN = 3


class SilentError(TrainingFailed):
    """The weights of a rank are wrong. The same command can go on from the last checkpoint."""

    status = EXIT_LOST


class SilentErrorCheck:
    """Compares what the ranks hold, and adds up the batches since the last record.

    Args:
        engine: its ranks are those of `control`.
        settings: of the run.
        hosts: host name of each rank, on rank 0.
        batches: the checksum of the batches so far, as a checkpoint has it: on rank 0, else 0.

    Attributes:
        batches: the checksum of the batches of all ranks, at the last comparison, as a signed number.
    """

    def __init__(
        self, control: ControlGroup, engine: Engine, settings: RunSettings, hosts: Sequence[str], batches: int
    ) -> None:
        self._control, self._engine, self._settings, self._hosts = control, engine, settings, hosts
        self._batches = torch.tensor(batches, dtype=torch.int64, device=engine.device)  # ()
        self.batches = batches
        self._comparisons, self._seconds, self._cost_is_told = 0, 0.0, False

    def add_batch(self, tensors: dict[str, Tensor]) -> None:
        """Adds a micro-batch, as it is on the device. Waits for nothing; not collective."""
        is_real = (tensors["sequence_ids"] >= 0).any(dim=1)  # (B,)
        self._batches += checksums.of_batch(tensors, is_real)

    def forget_batches(self) -> None:
        """Begins the next record. Not collective."""
        self._batches.zero_()

    def compare(self, step: int) -> dict[str, Any]:
        """Compares the ranks after `step`. Collective; waits for the device.

        Returns:
            What the record of the step holds of it.
        Raises:
            SilentError: on all ranks together.
        """
        began = time.perf_counter()
        mine = checksums.of_rank(self._engine)
        replica = checksums.combine([one for found in mine.replicas.values() for one in found])
        weights = checksums.combine(mine.own["weight"])
        moments = checksums.combine(mine.own["exp_avg"] + mine.own["exp_avg_sq"])
        numbers = replica, len(mine.unequal), weights, moments, int(self._batches)
        everyone = self._control.all_gather([_signed(number) for number in numbers])
        replicas, unequal, all_weights, all_moments, batches = zip(*everyone)
        if len(set(replicas)) > 1 or any(unequal):
            self._name(mine, step)
        if self._settings.engine.zero_stage > 0:
            weights, moments = checksums.add(*all_weights), checksums.add(*all_moments)
        all_batches = checksums.add(*batches)
        self.batches = _signed(all_batches)
        self._comparisons += 1
        found = dict(zip(CHECKSUMS, (f"{one:016x}" for one in (weights, moments, all_batches))))
        self._seconds = time.perf_counter() - began
        return {**found, LAYOUT: layout_of(self._settings)}

    def cost(self, seconds: float) -> str | None:
        """What a comparison costs, for people: once, after the second one. The first one also made tables.

        Args:
            seconds: from one record to the next.
        """
        if self._cost_is_told or self._comparisons < 2:
            return None
        self._cost_is_told = True
        own, share = 1e3 * self._seconds, 100 * self._seconds / seconds
        return f"comparing the weights by checksum takes {own:.3g} ms, {share:.2g} % of the time between two records"

    def _name(self, mine: RankChecksums, step: int) -> None:
        """Raises SilentError, which names the ranks that are wrong."""
        everyone = self._control.gather(mine)
        message = "" if everyone is None else describe(wrong_tensors(everyone), self._hosts, step)
        raise SilentError(self._control.broadcast(message))


def layout_of(settings: RunSettings) -> str:
    """How a step is divided, and what computes it."""
    config, execution = settings.engine, settings.execution
    division = f"{config.world_size} x {config.accumulation_steps} x {config.micro_batch_size} rows"
    features = (", compiled" if execution.compile else "") + (", CUDA graphs" if execution.cuda_graphs else "")
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
    known = [checksums.add(*rounded), *(rounded[:1] if len(set(rounded)) == 1 else [])] if rounded else []
    if found := [one for one in known if one in values]:
        right = found[0]
    elif 2 * count <= len(values):
        return [rank for rank, differs in enumerate(unequal) if differs] or list(range(len(values)))
    return [rank for rank, value in enumerate(values) if value != right]


def describe(wrong: dict[int, list[str]], hosts: Sequence[str], step: int) -> str:
    """The error line about ranks that hold wrong weights."""
    ranks = [f"rank {rank} on host {hosts[rank]}" for rank in sorted(wrong)]
    names = list(dict.fromkeys(name for rank in sorted(wrong) for name in wrong[rank]))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    subject = f"{ranks[0]} holds" if len(ranks) == 1 else f"{', '.join(ranks[:-1])} or {ranks[-1]}, or several, hold"
    return (
        f"{subject} wrong weights after step {step}, in {', '.join(names[:_SHOWN])}{more}: an error of memory, of a "
        f"link or of a computation that nothing else reported. Nothing of step {step} is saved; the same command goes "
        "on from the last checkpoint, better without that host (docs/reliability.md)"
    )


def _signed(number: int) -> int:
    """The same 64 bits as a signed number."""
    return number - (1 << 64) if number >= 1 << 63 else number
