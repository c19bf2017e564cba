"""Command-line flags that pre-training and fine-tuning share, and the types of their values."""

import argparse
import math
import tempfile
from pathlib import Path
from typing import NamedTuple

from common.command_line import Parser
from common.errors import UserError
from model.config import ACTIVATION_CHECKPOINTING
from pipeline.engine.config import PRECISION_CHOICES
from pipeline.tracking.choice import TRACK_CHOICES


class Defaults(NamedTuple):
    """How a command describes the defaults of the shared flags.

    Attributes:
        deepspeed_config: what replaces the JSON; None makes the flag required.
        steps, warmup_steps: text.
        log_interval, eval_interval: steps, or text if the default depends on other settings.
    """

    deepspeed_config: str | None
    steps: str
    warmup_steps: str
    log_interval: int | str
    eval_interval: int | str


def add_run_arguments(parser: Parser, defaults: Defaults) -> None:
    """Adds the flags of a training run to `parser`."""
    parser.add_argument("--output", required=True, type=Path, metavar="RUN", help="directory of the run")
    parser.add_argument(
        "--deepspeed_config",
        required=defaults.deepspeed_config is None,
        type=Path,
        metavar="JSON",
        help=f"default: {defaults.deepspeed_config}" if defaults.deepspeed_config else "such as ds_configs/base.json",
    )
    parser.add_argument(
        "--steps", type=positive, metavar="N", help=f"optimizer steps of the run (default: {defaults.steps})"
    )
    parser.add_argument(
        "--warmup-steps", type=natural, metavar="N", help=f"steps of warm-up (default: {defaults.warmup_steps})"
    )
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of all random numbers (default: 0)")
    parser.add_argument(
        "--deterministic",
        action="store_true",
        help="use torch's deterministic algorithms only, so that the same command gives the same bits on the same "
        "hardware; slower",
    )
    for flag, default, event in (
        ("--log-interval", defaults.log_interval, "logged line"),
        ("--eval-interval", defaults.eval_interval, "evaluation"),
    ):
        parser.add_argument(
            flag,
            type=positive,
            default=default if isinstance(default, int) else None,
            metavar="N",
            help=f"steps from one {event} to the next (default: {default})",
        )
    parser.add_argument(
        "--precision",
        choices=PRECISION_CHOICES,
        default="auto",
        help="auto: the JSON's if the hardware has it, else the nearest; config: the JSON's, or an error if the "
        "hardware lacks it",
    )
    parser.add_argument(
        "--max-hours",
        type=hours,
        metavar="H",
        help="end the schedule and the run within H hours, the sum over all starts (paper: Table 6)",
    )
    parser.add_argument(
        "--host-timeout",
        type=host_timeout,
        default=30.0,
        metavar="SECONDS",
        help="end the job if a host does not answer for this long (default: 30)",
    )
    parser.add_argument(
        "--hang-timeout",
        type=hang_timeout,
        default=60.0,
        metavar="SECONDS",
        help="end the job if a rank makes no progress for this long, or for 10 median steps if that is longer; "
        "0: never (default: 60)",
    )
    parser.add_argument(
        "--check-interval",
        type=natural,
        default=1,
        metavar="N",
        help="compare the weights of all ranks by checksum at the first logged line after every N steps, and at every "
        "save; 0: at saves only (default: 1, at every logged line)",
    )
    parser.add_argument(
        "--save-mode",
        choices=("background", "foreground"),
        default="background",
        help="background: copy weights and moments, and write the copy while training goes on; foreground: let "
        "training wait, without memory for a copy (default: background)",
    )
    parser.add_argument(
        "--activation-checkpointing",
        choices=ACTIVATION_CHECKPOINTING,
        default="none",
        help="what to recompute in the backward pass to save memory (default: none)",
    )
    parser.add_argument(
        "--track",
        nargs="+",
        action="extend",
        choices=TRACK_CHOICES,
        default=[],
        metavar="NAME",
        help=f"send the curves of TensorBoard to {', '.join(TRACK_CHOICES)} as well (docs/monitoring.md)",
    )
    parser.add_argument(
        "--all-curves", action="store_true", help="make a curve of every number, not only of the useful ones"
    )
    parser.add_argument("--local_rank", type=int, default=0, help=argparse.SUPPRESS)  # the launcher adds it


def check_writable(output: Path) -> None:
    """Raises UserError unless `output` is a directory, or can become one, that this process may write to."""
    if output == Path():
        raise UserError("--output is empty or the current directory; name a directory for the run")
    place = output
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        raise UserError(f"--output {output}: {place} is not a directory; choose another place")
    try:
        # Permission bits do not show read-only mounts and quotas, and root may write anywhere. A real file does.
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise UserError(
            f"--output {output}: cannot write to {place} ({error.strerror}); choose another place"
        ) from None


MAX_NUMBER = 10**9
"""The largest number of steps, GPUs or anything else that is counted. Larger ones are mistakes."""


def positive(text: str) -> int:
    """Reads a whole number from 1 to `MAX_NUMBER`."""
    value = int(text)
    if not 1 <= value <= MAX_NUMBER:
        raise argparse.ArgumentTypeError(f"{text[:40]} is not at least 1 and at most {MAX_NUMBER}")
    return value


def natural(text: str) -> int:
    """Reads a whole number of at least 0 that fits into 63 bits."""
    value = int(text)
    if not 0 <= value < 2**63:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 2**63 - 1")
    return value


def below_one(text: str) -> float:
    """Reads a number of at least 0 and below 1."""
    value = float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 0 and below 1")
    return value


def above_zero(text: str) -> float:
    """Reads a number above 0, and at most `MAX_NUMBER`."""
    value = float(text)
    if not 0 < value <= MAX_NUMBER:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most {MAX_NUMBER}")
    return value


def hours(text: str) -> float:
    """Reads a finite number of hours above 0."""
    value = float(text)
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"{text} is not a number of hours above 0")
    return value


def price(text: str) -> float:
    """Reads a finite price of at least 0."""
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a price of at least 0")
    return value


def host_timeout(text: str) -> float:
    """Reads a number of seconds from 3 to 3600."""
    value = float(text)
    if not 3 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not between 3 and 3600 seconds")
    return value


def hang_timeout(text: str) -> float:
    """Reads a number of seconds: 0, or from 1 to 86,400."""
    value = float(text)
    if not (value == 0 or 1 <= value <= 86_400):
        raise argparse.ArgumentTypeError(f"{text} is neither 0 nor between 1 and 86400 seconds")
    return value


# argparse prints the name of the function: "invalid positive whole number value: 'x'".
positive.__name__ = "positive whole number"
natural.__name__ = "whole number"
below_one.__name__ = "number"
above_zero.__name__ = "number"
hours.__name__ = "number of hours"
price.__name__ = "price"
host_timeout.__name__ = hang_timeout.__name__ = "number of seconds"
