"""Checks whether this machine, or every host of a hostfile, can train, and prints one line for each problem.

    python -m pipeline.preflight --data shards/train --output runs/base
    python -m pipeline.preflight --hostfile hostfile --data shards/train --output runs/xxlarge

Without a hostfile it checks this machine: packages, data, directory of the run, GPUs, port. With one, run it on the
host and in the directory in which `deepspeed` will run. Each host is compared with this one: code, Python, packages,
data, directory of the run, clock. Its GPUs are compared with the hostfile. Rank 0's host opens the port of the
rendezvous, and the other hosts connect to it. With `--burn-in SECONDS` the hosts that have no problem multiply matrices
for so long, then add up tensors in pairs, and the slow ones are named.

Exit status: 0 ready; 1 problems found; 2 a mistake in the command line.
"""

import argparse
import os
import re
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from common.command_line import Parser, entry_point
from common.errors import UserError
from common.files import places
from common.progress import quantity
from pipeline.distributed.burn_in import hosts as burn_in_hosts
from pipeline.distributed.burn_in import results as burn_in_results
from pipeline.distributed.hosts.comparison import (
    problems,
    problems_of_launcher,
    problems_of_packages,
    problems_of_rank_0,
)
from pipeline.distributed.hosts.hostfile import read_environment, read_hostfile
from pipeline.distributed.hosts.query import Answer, Question, address_of_rank_0, ask_all, ask_here, ask_this_machine

SOURCES = ("common", "data_prep", "model", "pipeline", "ds_configs", "requirements.txt")
"""Directories and files of the project that must be the same on all hosts."""


REQUIREMENTS = Path("requirements.txt")
THIS_MACHINE = "this machine"


def packages(requirements: Path) -> dict[str, str]:
    """The versions in requirements.txt, by name; none if the file is not here, as in an installed package."""
    if not requirements.is_file():
        return {}
    lines = requirements.read_text(encoding="utf-8").splitlines()
    pinned = (line.partition("==") for line in lines if "==" in line and not line.startswith("#"))
    return {name.strip(): version.strip() for name, _, version in pinned}


@entry_point
def main(argv: Sequence[str]) -> int:
    """Runs the command line and returns the exit status."""
    parser = Parser(
        prog="python -m pipeline.preflight",
        description="Checks whether this machine, or the hosts of a hostfile, can train.",
    )
    parser.add_argument("--hostfile", type=Path, metavar="FILE", help="as for deepspeed (default: check this machine)")
    parser.add_argument("--data", nargs="+", default=[], metavar="DIR[:WEIGHT]", help="as for pipeline.pretrain")
    parser.add_argument("--eval-data", nargs="+", type=Path, default=[], metavar="DIR", help="as for pipeline.pretrain")
    parser.add_argument("--output", type=Path, metavar="RUN", help="as for pipeline.pretrain")
    parser.add_argument("--master_addr", default="", metavar="ADDRESS", help="as for deepspeed")
    parser.add_argument("--master_port", type=int, default=29500, metavar="PORT", help="as for deepspeed (29500)")
    parser.add_argument(
        "--burn-in",
        type=_seconds,
        default=0.0,
        metavar="SECONDS",
        help="let all hosts compute for so long and communicate in pairs, and name the slow ones (default: no burn-in)",
    )
    args = parser.parse_all(argv)
    if not 1 <= args.master_port <= 65535:
        raise UserError(f"--master_port {args.master_port} is no port; give one from 1 to 65535")
    if args.burn_in and args.hostfile is None:
        raise UserError("--burn-in compares hosts; give --hostfile as well")
    hosts = {} if args.hostfile is None else read_hostfile(args.hostfile)
    environment = read_environment(Path.home(), Path.cwd()) if hosts else _own_environment()
    data = [*map(_directory, args.data), *args.eval_data]
    for directory in data:
        if not (directory / "manifest.json").is_file():
            raise UserError(f"{directory} holds no shards on this host; run the preflight where deepspeed is run")
    interfaces = [environment[name] for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") if name in environment]
    exact = [
        name for name in dict.fromkeys(interfaces) if re.fullmatch(r"[\w.-]+", name)
    ]  # NCCL accepts patterns as well
    beacon = None if args.output is None else _make_beacon(args.output)
    began = time.monotonic()
    try:
        question = Question(
            packages=list(packages(REQUIREMENTS)),
            sources=list(SOURCES),
            data=[str(directory.absolute()) for directory in data],
            beacon=None if beacon is None else str(beacon),
            interfaces=exact,
            gpus=environment.get("DS_ACCELERATOR") != "cpu",
        )
        if not hosts:
            return _check_this_machine(question, environment, args.master_port, began)
        here = ask_here(question)
        answers = ask_all(list(hosts), environment, question, args.master_addr, args.master_port)
    finally:
        if beacon is not None:
            beacon.unlink(missing_ok=True)
    lines = problems_of_launcher(list(hosts))
    for (name, slots), answer in zip(hosts.items(), answers):
        lines += problems(name, slots, answer, here, environment)
    lines += problems_of_rank_0(next(iter(hosts)), answers[0], sum(hosts.values()))
    if args.burn_in and not lines:
        lines += _burn_in(hosts, environment, answers[0], args)
    return _report(lines, f"{len(hosts)} hosts, {sum(hosts.values())} slots", began)


def _own_environment() -> dict[str, str]:
    """The variables of this process that decide what a run on this machine needs."""
    return {name: os.environ[name] for name in ("DS_ACCELERATOR",) if name in os.environ}


def _check_this_machine(question: Question, environment: Mapping[str, str], port: int, began: float) -> int:
    """Checks this machine alone, prints what is wrong, and returns the exit status."""
    answer = ask_this_machine(question, port)
    found = answer.found
    on_cpu = not question.gpus or not (found["gpus"] or found["gpu_problem"])
    lines = problems_of_packages(found["packages"], packages(REQUIREMENTS))
    lines += problems(THIS_MACHINE, 0, answer, answer, environment)
    lines += problems_of_rank_0(THIS_MACHINE, answer, found["cores"] if on_cpu else found["gpus"])
    devices = f"{found['cores']} cores without a GPU" if on_cpu else f"{found['gpus']} GPUs"
    return _report(lines, f"{THIS_MACHINE}, {devices}", began)


def _report(lines: Sequence[str], subject: str, began: float) -> int:
    for line in lines:
        print(line)
    verdict = "ready" if not lines else quantity(len(lines), "problem")
    print(f"{subject}: {verdict} ({time.monotonic() - began:.1f} s)")
    return 1 if lines else 0


def _burn_in(
    hosts: Mapping[str, int], environment: Mapping[str, str], first: Answer, args: argparse.Namespace
) -> list[str]:
    """Runs the burn-in, prints the range of speeds, and returns a line for each host that is slow or failed."""
    address = address_of_rank_0(args.master_addr, first, next(iter(hosts)))
    measured, problems = burn_in_hosts.run(hosts, environment, address, args.master_port, args.burn_in)
    if problems:
        return problems
    print(burn_in_results.summary(hosts, measured), flush=True)
    return burn_in_results.slow(hosts, measured)


def _seconds(text: str) -> float:
    """Reads a number of seconds from 1 to 86,400."""
    value = float(text)
    if not 1 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text} is not between 1 and 86400 seconds")
    return value


_seconds.__name__ = "number of seconds"


def _directory(argument: str) -> Path:
    """The directory of a `--data` argument, without the weight."""
    return Path(argument) if Path(argument).is_dir() else Path(argument.rpartition(":")[0] or argument)


def _make_beacon(output: Path) -> Path:
    """Makes a file in the run's directory, or in its nearest parent that exists; a host that shares it sees the file.

    Raises:
        UserError: the file cannot be made.
    """
    places.check_directory(output, "--output")
    place = output.absolute()
    while not place.is_dir() and place != place.parent:
        place = place.parent
    beacon = place / f".preflight-{secrets.token_hex(8)}"
    try:
        beacon.touch()
    except OSError as error:
        raise UserError(
            f"--output {output}: cannot write to {place} ({error.strerror}); choose another place"
        ) from None
    return beacon


if __name__ == "__main__":
    sys.exit(main())
