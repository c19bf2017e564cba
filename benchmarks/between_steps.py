"""Measures what a step waits for beside the computation: the agreement of the ranks, and checks of the gradients.

    python -m benchmarks.between_steps [--ranks 2 4 8 16] [--rounds 100] [--out benchmarks/results/NAME]

**Agreement.** So many processes on this machine sum what a step's agreement sums (`pipeline.training.agreement`), over
gloo. Once they wait for it at once, and once they start it, sleep as long as a device may compute, and take the result.
The first is what a step loses if the agreement is made before it, the second what is left if it is made ahead. A line
through the medians gives the time of more ranks; with more processes than cores, waiting for a core is part of it.

**Gradients.** One backward pass of each model on this processor, with the moment at which each gradient is complete:
what `overlap_comm` could send while the pass goes on.
"""

import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.shared import report
from common.command_line import Parser, entry_point
from common.errors import UserError
from model import AlbertConfig, AlbertForPreTraining
from pipeline.distributed.control import ControlGroup

VALUES = 7
"""Values of an agreement beside one for each rank: three signals, the progress, busy ranks, two counts of labels."""
COMPUTING = 0.05
"""Seconds in which the device computes."""
EXTRAPOLATED = (64, 512)
MODELS = ("albert-base", "bert-base")
ROWS, LENGTH = 2, 128
TRAFFIC = 0.25
"""Part of a backward pass in which gradients could be sent while it goes on."""


def _time_agreements(rank: int, ranks: int, place: str, rounds: int, answer: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=ranks)
    control, values = ControlGroup(), [1.0] * (VALUES + ranks)
    at_once, ahead = [], []
    for _ in range(rounds):
        control.barrier()
        began = time.perf_counter()
        control.sum(values)
        at_once.append(time.perf_counter() - began)
        began = time.perf_counter()
        finish = control.begin_sum(values)
        started = time.perf_counter() - began
        time.sleep(COMPUTING)
        began = time.perf_counter()
        finish()
        ahead.append(started + time.perf_counter() - began)
    control.barrier()
    if rank == 0:
        answer.send((statistics.median(at_once), statistics.median(ahead)))
    os._exit(0)  # without waiting for gloo's threads


def time_agreements(ranks: int, rounds: int) -> dict[str, float]:
    """Median seconds that rank 0 stands in an agreement that it waits for at once, and in one that is made ahead."""
    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (ranks, f"{folder}/meeting", rounds, theirs)
        processes = [fork.Process(target=_time_agreements, args=(rank, *arguments)) for rank in range(ranks)]
        for process in processes:
            process.start()
        while not ours.poll(1.0):
            if any(process.exitcode for process in processes):
                raise RuntimeError("a process of the measurement has failed")
        at_once, ahead = ours.recv()
        for process in processes:
            process.join()
    return {"ranks": ranks, "at_once": at_once, "ahead": ahead}


def extrapolate(measured: Sequence[dict[str, float]]) -> dict[str, float]:
    """Seconds of an agreement that is waited for at once, by ranks: a line through the measured ones."""
    if len(measured) < 2:
        return {}
    slope, start = np.polyfit([one["ranks"] for one in measured], [one["at_once"] for one in measured], 1)
    return {str(ranks): float(start + slope * ranks) for ranks in EXTRAPOLATED}


def time_gradients(name: str) -> dict[str, Any]:
    """When the gradients of one backward pass are complete, as parts of its time.

    Returns:
        `seconds` of the pass, `bytes` of all gradients, and `early`: the part of them that is complete when the part
        `TRAFFIC` of the pass is still to come.
    """
    torch.manual_seed(0)
    model = AlbertForPreTraining(AlbertConfig.preset(name, vocab_size=30000))
    ids = torch.randint(5, 30000, (ROWS, LENGTH))  # (B, S)
    places = torch.arange(0, LENGTH, 7).expand(ROWS, -1)  # (B, M)
    first = torch.zeros(ROWS, 1, dtype=torch.int64)  # (B, P)
    batch = {
        "input_ids": ids,
        "token_type_ids": torch.zeros_like(ids),  # (B, S)
        "position_ids": torch.arange(LENGTH).expand(ROWS, -1),  # (B, S)
        "sequence_ids": torch.zeros_like(ids),  # (B, S)
        "masked_positions": places,
        "masked_labels": ids.gather(1, places),  # (B, M)
        "cls_positions": first,
        "sentence_labels": first,
    }
    complete: list[tuple[float, int]] = []

    def note(parameter: torch.Tensor) -> None:
        complete.append((time.perf_counter(), parameter.numel() * parameter.element_size()))

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(note)
    for _ in range(2):  # the first pass allocates
        complete.clear()
        model.zero_grad()
        output = model(**batch)
        began = time.perf_counter()
        (output.mlm_loss_sum + output.sentence_loss_sum).backward()
        seconds = time.perf_counter() - began
    whole = sum(size for _, size in complete)
    early = sum(size for moment, size in complete if moment - began < (1 - TRAFFIC) * seconds)
    return {"model": name, "seconds": seconds, "bytes": whole, "early": early / whole}


def measure(ranks: Sequence[int], rounds: int) -> dict[str, Any]:
    """Both measurements."""
    agreements = [time_agreements(count, rounds) for count in ranks]  # before torch has threads, as it forks
    return report.describe_host("between_steps 1", ("torch",)) | {
        "agreements": agreements,
        "extrapolated": extrapolate(agreements),
        "gradients": [time_gradients(name) for name in MODELS],
    }


def markdown(result: dict[str, Any]) -> str:
    """The measurements as two tables."""
    hardware = result["hardware"]
    extrapolated = ", ".join(f"{1e3 * seconds:.0f} ms at {ranks}" for ranks, seconds in result["extrapolated"].items())
    return "\n".join(
        [
            f"{hardware['name']}, {hardware['cores']} cores, load {hardware['load']}; torch "
            f"{result['versions']['torch']}; {result['date']}.",
            "",
            "| ranks | agreement before the step | made ahead |",
            "|---|---|---|",
            *(
                f"| {one['ranks']} | {1e3 * one['at_once']:.2f} ms | {1e3 * one['ahead']:.2f} ms |"
                for one in result["agreements"]
            ),
            "",
            "Medians of the time in which rank 0 stands. Made ahead: the device computes for "
            f"{1e3 * COMPUTING:.0f} ms between start and end."
            + (f" A line through the column in the middle gives {extrapolated} ranks." if extrapolated else ""),
            "",
            f"| model | gradients | backward | complete {TRAFFIC:.0%} before its end |",
            "|---|---|---|---|",
            *(
                f"| {one['model']} | {one['bytes'] / 1e6:.0f} MB | {one['seconds']:.2f} s | {one['early']:.1%} |"
                for one in result["gradients"]
            ),
            "",
            f"Gradients in fp32 of {ROWS} rows of {LENGTH} tokens.",
        ]
    )


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    p = Parser(prog="python -m benchmarks.between_steps", description=(__doc__ or "").splitlines()[0])
    p.add_argument("--ranks", nargs="+", type=int, default=[2, 4, 8, 16], metavar="N", help="(2 4 8 16)")
    p.add_argument("--rounds", type=int, default=100, metavar="N", help="agreements of each kind (100)")
    p.add_argument("--out", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    args = p.parse_all(argv)
    if min(*args.ranks, args.rounds) < 1:
        raise UserError("--ranks and --rounds must be 1 or more")
    result = measure(args.ranks, args.rounds)
    report.publish(args.out, result, markdown(result), f"Between two steps, {result['hardware']['name']}")


if __name__ == "__main__":
    sys.exit(main())
