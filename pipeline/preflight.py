"""Checks whether this machine, or every host of a hostfile, can train, and prints one line for each problem.

    python -m pipeline.preflight --data shards/train --output runs/base
    python -m pipeline.preflight --hostfile hostfile --data shards/train --output runs/xxlarge

Without a hostfile it checks this machine: packages, data, directory of the run, GPUs, port. With one, run it on the
host and in the directory in which `deepspeed` will run. Each host is compared with this one: code, Python, packages,
data, directory of the run, clock. Its GPUs are compared with the hostfile. Rank 0's host opens the port of the
rendezvous, and the other hosts connect to it.

Exit status: 0 ready; 1 problems found; 2 a mistake in the command line.
"""

import argparse
import os
import re
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from common.command_line import Parser, bounded, entry_point
from common.errors import UserError
from common.files import places
from common.text import quantity
from pipeline.distributed import query
from pipeline.distributed.host_problems import problems_of_host, problems_of_launcher, problems_of_packages
from pipeline.distributed.query import Question

SOURCES = ("common", "data_prep", "model", "pipeline", "ds_configs", "requirements.txt")
"""Directories and files of the project that must be the same on all hosts."""
REQUIREMENTS = Path("requirements.txt")

_port = bounded(int, "port", lambda port: 1 <= port <= 65535, "a port; give one from 1 to 65535")


def parser() -> Parser:
    """The command line."""
    p = Parser(
        prog="python -m pipeline.preflight",
        description="Checks whether this machine, or the hosts of a hostfile, can train.",
    )
    p.add_argument("--hostfile", type=Path, metavar="FILE", help="as for deepspeed (default: check this machine)")
    p.add_argument("--data", nargs="+", default=[], metavar="DIR[:WEIGHT]", help="as for pipeline.pretrain")
    p.add_argument("--eval-data", nargs="+", type=Path, default=[], metavar="DIR", help="as for pipeline.pretrain")
    p.add_argument("--output", type=Path, metavar="RUN", help="as for pipeline.pretrain")
    p.add_argument("--master_addr", default="", metavar="ADDRESS", help="as for deepspeed")
    p.add_argument("--master_port", type=_port, default=29500, metavar="PORT", help="as for deepspeed (29500)")
    return p


@entry_point
def main(argv: Sequence[str]) -> int:
    """Runs the command line and returns the exit status."""
    args = parser().parse_all(argv)
    hosts = {} if args.hostfile is None else query.read_hostfile(args.hostfile)
    own = {name: os.environ[name] for name in ("DS_ACCELERATOR",) if name in os.environ}
    environment = query.read_environment(Path.home(), Path.cwd()) if hosts else own
    began = time.monotonic()
    with _beacon(args.output) as beacon:
        question = _question(args, environment, beacon)
        check = _check_hosts if hosts else _check_this_machine
        subject, lines = check(args, hosts, environment, question)
    print(*lines, sep="\n", end="\n" if lines else "")
    verdict = "ready" if not lines else quantity(len(lines), "problem")
    print(f"{subject}: {verdict} ({time.monotonic() - began:.1f} s)")
    return 1 if lines else 0


def _question(args: argparse.Namespace, environment: Mapping[str, str], beacon: Path | None) -> Question:
    """What each host is asked. Raises UserError if the data are not even here."""
    # A --data argument may have a weight.
    named = [Path(name) if Path(name).is_dir() else Path(name.rpartition(":")[0] or name) for name in args.data]
    data = [*named, *args.eval_data]
    for directory in data:
        if not (directory / "manifest.json").is_file():
            raise UserError(f"{directory} holds no shards on this host; run the preflight where deepspeed is run")
    interfaces = [environment[name] for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") if name in environment]
    return Question(
        packages=list(_packages()),
        sources=list(SOURCES),
        data=[str(directory.absolute()) for directory in data],
        beacon=None if beacon is None else str(beacon),
        # NCCL accepts patterns as well.
        interfaces=[name for name in dict.fromkeys(interfaces) if re.fullmatch(r"[\w.-]+", name)],
        gpus=environment.get("DS_ACCELERATOR") != "cpu",
    )


def _packages() -> dict[str, str]:
    """The versions in requirements.txt, by name; none if the file is not here, as in an installed package."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines() if REQUIREMENTS.is_file() else []
    pinned = (line.partition("==") for line in lines if "==" in line and not line.startswith("#"))
    return {name.strip(): version.strip() for name, _, version in pinned}


def _check_this_machine(
    args: argparse.Namespace, hosts: Mapping[str, int], environment: Mapping[str, str], question: Question
) -> tuple[str, list[str]]:
    """Checks this machine alone. Returns what was checked, and the problems."""
    answer = query.ask_this_machine(question, args.master_port)
    found = answer.found
    on_cpu = not question.gpus or not (found["gpus"] or found["gpu_problem"])
    lines = problems_of_packages(found["packages"], _packages())
    lines += problems_of_host("this machine", 0, answer, answer, environment)
    devices = f"{found['cores']} cores without a GPU" if on_cpu else f"{found['gpus']} GPUs"
    return f"this machine, {devices}", lines


def _check_hosts(
    args: argparse.Namespace, hosts: Mapping[str, int], environment: Mapping[str, str], question: Question
) -> tuple[str, list[str]]:
    """Compares each host with this one. Returns what was checked, and the problems."""
    here = query.ask_here(question)
    answers = query.ask_all(list(hosts), environment, question, args.master_addr, args.master_port)
    lines = problems_of_launcher(list(hosts))
    for (name, slots), answer in zip(hosts.items(), answers):
        lines += problems_of_host(name, slots, answer, here, environment)
    return f"{len(hosts)} hosts, {sum(hosts.values())} slots", lines


@contextmanager
def _beacon(output: Path | None) -> Iterator[Path | None]:
    """A file in the run's directory, or in its nearest parent that exists; a host that shares the directory sees it.

    Raises:
        UserError: the file cannot be made.
    """
    if output is None:
        yield None
        return
    places.check_directory(output, "--output")
    place = output.absolute()
    while not place.is_dir() and place != place.parent:
        place = place.parent
    beacon = place / f".preflight-{secrets.token_hex(8)}"
    try:
        beacon.touch()
    except OSError as error:
        raise places.cannot_write(place, error, "--output") from None
    try:
        yield beacon
    finally:
        beacon.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())
