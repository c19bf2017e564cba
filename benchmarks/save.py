"""Measures for how long a checkpoint stops training, in the background and in the foreground.

    python -m benchmarks.save --model albert-xlarge --out DIR [--rounds 3] [--result benchmarks/results/save_cpu]

One process saves the whole model as a run does: fp32 weights and both moments are written, synced to disk, hashed and
published. In turn this happens while training waits, and in the background while the process multiplies matrices. In a
run all ranks copy and write their parts at the same time, so more ranks save faster until the disk or its network is
the limit. The disk is that of --out. With --result, NAME.json and NAME.md are written.
"""

import resource
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.shared import report
from common.command_line import Parser, entry_point
from common.errors import UserError
from pipeline.checkpoint.manifest import BYTES_A_PARAMETER
from pipeline.engine import ranks

INTERVAL = 600.0
"""Seconds between two checkpoints."""


def measure(model: str, directory: Path, rounds: int) -> dict[str, Any]:
    """Parameters, and for each round the seconds of its saves into `directory`; then those of a load."""
    import torch

    from model import AlbertConfig, AlbertForPreTraining
    from model.counts import parameter_counts
    from pipeline.checkpoint import loader
    from pipeline.checkpoint.saver import Saver
    from pipeline.engine import config as engine_config
    from pipeline.engine import workarounds
    from pipeline.engine.build import initialise
    from pipeline.engine.hardware import detect_hardware

    try:
        config = AlbertConfig.preset(model)
    except ValueError as error:
        raise UserError(str(error)) from None
    json = {"train_batch_size": 1, "optimizer": {"type": "Lamb", "params": {"lr": 0.001}}}
    json |= {"zero_optimization": {"stage": 1, "reduce_bucket_size": 1_000_000}}
    fitted = engine_config.fit(json, 1, detect_hardware(), "bf16")
    workarounds.init_distributed()
    engine: Any  # Engine does not let its step be set; DeepSpeed's own engine does
    engine, _ = initialise(AlbertForPreTraining(config), fitted)
    saver, found = Saver(engine, directory, keep=1), []
    in_foreground = Saver(engine, directory, keep=1, in_background=False)
    matrix = torch.randn(512, 512)
    for step in range(rounds):
        engine.global_steps = 2 * step
        began = time.perf_counter()
        in_foreground.start({})
        in_foreground.finish()
        foreground = time.perf_counter() - began
        engine.global_steps += 1
        began = time.perf_counter()
        saver.start({})
        saved = None
        while saved is None:
            matrix @ matrix
            saved = None if saver.is_busy else saver.advance()
        whole = time.perf_counter() - began
        found.append({"foreground": foreground, "blocked": saved.blocked_seconds, "background": whole})
    began = time.perf_counter()
    loader.load_latest(engine, directory)
    return {
        "model": model,
        "parameters": parameter_counts(config).total,
        "rounds": found,
        "load": time.perf_counter() - began,
        "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    }


def markdown(result: dict[str, Any]) -> str:
    """The measurements as a table."""
    hardware, rounds = result["hardware"], result["rounds"]
    size = BYTES_A_PARAMETER * result["parameters"] / 1e9
    median = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    foreground, blocked = median["foreground"], median["blocked"]
    shares = [100 * one["blocked"] / one["foreground"] for one in rounds]
    return "\n".join(
        [
            f"{result['model']}, {result['parameters']:,} parameters, {size:.2f} GB; {hardware['name']}, "
            f"{hardware['cores']} cores, load {hardware['load']} before; {result['date']}. Seconds.",
            "",
            "| round | foreground save | background save: training stands | share | until published |",
            "|---|---|---|---|---|",
            *(
                f"| {number} | {one['foreground']:.2f} | {one['blocked']:.2f} | {share:.1f} % "
                f"| {one['background']:.2f} |"
                for number, (one, share) in enumerate(zip(rounds, shares), 1)
            ),
            f"| median | {foreground:.2f} | {blocked:.2f} | {100 * blocked / foreground:.1f} % | "
            f"{median['background']:.2f} |",
            "",
            "One save every 10 minutes takes "
            f"{100 * foreground / (INTERVAL + foreground):.2f} % of the time in the foreground and "
            f"{100 * blocked / (INTERVAL + blocked):.2f} % in the background. Checked and loaded in "
            f"{result['load']:.1f} s. Peak memory of the process: {result['peak_bytes'] / 1e9:.1f} GB.",
        ]
    )


@entry_point
def main(argv: Sequence[str]) -> None:
    """Runs the command line."""
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
    p.add_argument("--result", type=Path, metavar="NAME", help="write NAME.json and NAME.md")
    args = p.parse_all(argv)
    if args.out.exists():
        raise UserError(f"--out {args.out} exists; name a directory that can be made and removed")
    if args.rounds < 1:
        raise UserError(f"--rounds is {args.rounds}; give 1 or more")
    ranks.become_single_rank()
    try:
        result = report.describe_host("save 1") | measure(args.model, args.out, args.rounds)
    finally:
        shutil.rmtree(args.out, ignore_errors=True)
    report.publish(args.result, result, markdown(result), f"Saves, {result['hardware']['name']}")


if __name__ == "__main__":
    sys.exit(main())
