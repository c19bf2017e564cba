"""Makes one step of a pre-training run again, from the nearest checkpoint, and compares it with the run's record.

    python -m pipeline.replay --run runs/base --step 5000
    deepspeed --num_gpus 8 --module pipeline.replay --run runs/base --step 5000

It shows whether a step was computed rightly, for example before a spike of the loss. Loss, gradient norm and the
checksums of batches, weights and moments must be the same bit for bit at each logged step on the way. On other ranks
or kernels than those of the run only the batches are compared. Nothing is written. Data and DeepSpeed JSON are those
of the run's command, unless the flags name others.

Exit status: 0 the same; 1 something differs; 2 a mistake in the command; 75 stopped by a signal.
"""

import argparse
import functools
from pathlib import Path

from common.command_line import Parser, positive
from pipeline.distributed.exits import run_and_exit
from pipeline.run import launch


def parser() -> Parser:
    """The command line."""
    p = Parser(
        prog="python -m pipeline.replay", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("--run", required=True, type=Path, metavar="RUN", help="the --output of pipeline.pretrain")
    p.add_argument(
        "--step", required=True, type=positive, metavar="N", help="the step; the next logged one if it is not logged"
    )
    p.add_argument("--data", nargs="+", metavar="DIR[:WEIGHT]", help="where the run's shards are now, if they moved")
    p.add_argument("--deepspeed_config", type=Path, metavar="JSON", help="the run's JSON, if it moved")
    p.set_defaults(mirror=None)  # nothing is restored
    p.add_argument("--local_rank", type=int, default=0, help=argparse.SUPPRESS)  # the launcher adds it
    return p


main = functools.partial(launch.run_command, parser().parse_all, "pipeline.pretraining.replay")
"""Runs a command line, by default that of this process, and returns the exit status."""

if __name__ == "__main__":
    run_and_exit(main)
