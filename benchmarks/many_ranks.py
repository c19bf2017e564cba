"""Measures what rank 0 of many ranks computes because they are many, with one process in the place of all.

    python -m benchmarks.many_ranks [--ranks 2 64 512]

The watch reads the reports of all other ranks out of torch's store, twice a second. DeepSpeed's `average_tensor` has a
slice of the gradients for each rank, once a bucket, unless the JSON has `"reduce_scatter": false`. Collectives do
nothing here (torch's backend "fake"). Milliseconds of processor time, medians; the model is albert-tiny, so that hardly
any bytes are copied.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmarks.shared.texts import call
from common.command_line import Parser, entry_point
from common.text import markdown_table
from model import AlbertConfig, AlbertForPreTraining
from pipeline.distributed import progress
from pipeline.distributed.rendezvous import Rendezvous
from pipeline.distributed.watch import Watch
from pipeline.engine import workarounds
from pipeline.engine.lamb import Lamb
from pipeline.engine.optimizers import parameter_groups

ROUNDS = 20


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m benchmarks.many_ranks", description=__doc__.splitlines()[0])
    p.add_argument("--ranks", nargs="+", type=int, default=[2, 64, 512], metavar="N", help="(2 64 512)")
    p.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    return p


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
    args = parser().parse_all(argv)
    if args.here:
        (ranks,) = args.ranks
        print(json.dumps([ranks, _watch(ranks), *(_average_tensor(ranks, scatter) for scatter in (True, False))]))
        return
    rows = []
    for ranks in args.ranks:
        said = call("benchmarks.many_ranks", "--ranks", ranks, "--here")
        number, *milliseconds = json.loads(said.splitlines()[-1])
        rows.append([number, *(f"{value:.2f}" for value in milliseconds)])
    header = ("ranks", "a look of the watch, ms", "`average_tensor`, ms", '`"reduce_scatter": false`, ms')
    print(markdown_table(header, rows, "rrrr"))


def _watch(ranks: int) -> float:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    store.set("end", "")
    report = progress.get_progress().report(0.0)
    for rank in range(ranks):
        store.set(f"beat/{rank}", json.dumps([0, *report]))
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    rendezvous = Rendezvous()
    rendezvous.store, rendezvous.hosts = store, ["host"] * ranks
    watch = Watch(rendezvous, Path("hangs"), 1e9, 0.0)
    taken = []
    for _ in range(ROUNDS):
        began = time.process_time()
        watch._hear()
        progress.find_hanging({rank: other.report for rank, other in watch._others.items()})
        taken.append(1e3 * (time.process_time() - began))
    return statistics.median(taken)


def _average_tensor(ranks: int, reduce_scatter: bool) -> float:
    """Of one step, in all buckets."""
    import deepspeed

    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(ranks)}
    if not dist.is_initialized():
        dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
        workarounds.init_distributed("fake")
    model = AlbertForPreTraining(AlbertConfig.preset("albert-tiny"))
    zero = {"stage": 1, "reduce_bucket_size": 50_000_000, "reduce_scatter": reduce_scatter}
    sizes = {"train_batch_size": ranks, "train_micro_batch_size_per_gpu": 1}
    other = {"steps_per_print": None, "zero_optimization": zero, "zero_allow_untested_optimizer": True}
    lamb = Lamb(parameter_groups(model), lr=1e-3)
    engine, *_ = deepspeed.initialize(model=model, config={**sizes, **other}, optimizer=lamb)
    average, taken = engine.optimizer.average_tensor, list[float]()

    def timed(*arguments: object) -> None:
        began = time.process_time()
        average(*arguments)
        taken[-1] += 1e3 * (time.process_time() - began)

    engine.optimizer.average_tensor = timed
    for _ in range(ROUNDS):
        taken.append(0.0)
        engine.backward(sum(parameter.sum() for parameter in model.parameters()))
        engine.step()
    return statistics.median(taken)


if __name__ == "__main__":
    sys.exit(main())
