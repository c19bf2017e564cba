"""Measures the seconds of a checkpoint, and the part of training time that one every 10 minutes takes.

    python -m benchmarks.save --model albert-xlarge --out DIR [--rounds 3]

One process saves the whole model as a run does: fp32 weights and both moments are written, synced to disk, hashed and
published while training waits. In a run all ranks write their parts at the same time, so more ranks save faster until
the disk or its network is the limit. The disk is that of --out.
"""

import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from common.command_line import Parser
from common.errors import UserError
from pipeline.checkpoint.manifest import BYTES_A_PARAMETER
from pipeline.engine.machine import rank_discovery

INTERVAL = 600.0
"""Seconds between two checkpoints."""


def measure(model: str, directory: Path, rounds: int) -> tuple[int, list[float], float]:
    """Parameters, seconds of each save into `directory`, and seconds of a load."""
    from model import AlbertConfig, AlbertForPreTraining
    from model.inspection.parameter_counts import parameter_counts
    from pipeline.checkpoint import save_load
    from pipeline.engine import config as engine_config
    from pipeline.engine import workarounds
    from pipeline.engine.build import initialise
    from pipeline.engine.machine.hardware import detect_hardware

    try:
        config = AlbertConfig.preset(model)
    except ValueError as error:
        raise UserError(str(error)) from None
    json = {"train_batch_size": 1, "optimizer": {"type": "Lamb", "params": {"lr": 0.001}}}
    json |= {"zero_optimization": {"stage": 1, "reduce_bucket_size": 1_000_000}}
    fitted = engine_config.fit(json, 1, detect_hardware(), "bf16")
    workarounds.init_distributed()
    engine, _ = initialise(AlbertForPreTraining(config), fitted)
    seconds = []
    for step in range(rounds):
        engine.global_steps = step
        began = time.perf_counter()
        save_load.save(engine, directory, {}, keep=1)
        seconds.append(time.perf_counter() - began)
    began = time.perf_counter()
    save_load.load_latest(engine, directory)
    return parameter_counts(config).total, seconds, time.perf_counter() - began


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    p = Parser(prog="python -m benchmarks.save", description=__doc__.splitlines()[0])
    p.add_argument("--model", required=True, metavar="NAME", help="a preset, e.g. albert-xlarge")
    p.add_argument(
        "--out",
        required=True,
        type=Path,
        metavar="DIR",
        help="on the disk to measure; it is made and removed",
    )
    p.add_argument("--rounds", type=int, default=3, metavar="N", help="(3)")
    try:
        args = p.parse_all(sys.argv[1:] if argv is None else argv)
        if args.out.exists():
            raise UserError(f"--out {args.out} exists; name a directory that can be made and removed")
        rank_discovery.become_single_rank()
        try:
            parameters, seconds, loading = measure(args.model, args.out, args.rounds)
        finally:
            shutil.rmtree(args.out, ignore_errors=True)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    size, median = BYTES_A_PARAMETER * parameters / 1e9, statistics.median(seconds)
    each = ", ".join(f"{second:.1f}" for second in seconds)
    print(
        f"{args.model}: {parameters:,} parameters, {size:.2f} GB; saved in {median:.1f} s ({each}), "
        f"{1e3 * size / median:.0f} MB/s: {100 * median / (INTERVAL + median):.1f} % of the time at one every 10 "
        f"minutes; checked and loaded in {loading:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
