"""Checks whether this machine, or every host of a hostfile, can train, and prints one line for each problem.

    python -m pipeline.preflight --data shards/train --output runs/base
    python -m pipeline.preflight --hostfile hostfile --data shards/train --output runs/xxlarge

Without a hostfile it checks this machine: packages, data, directory of the run, GPUs, port. With one, run it on the
host and in the directory in which `deepspeed` will run. Each host is compared with this one: code, Python, packages,
data, directory of the run. Its GPUs are compared with the hostfile. Rank 0's host opens the port of the
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
from typing import Any

from common.command_line import Parser, bounded, entry_point
from common.errors import UserError
from common.files import places
from common.text import quantity
from pipeline.distributed import probe, query

SOURCES = ("common", "data_prep", "model", "pipeline", "ds_configs", "requirements.txt")
"""Directories and files of the project that must be the same on all hosts."""
REQUIREMENTS = Path("requirements.txt")
REMEDIES = {
    "code": "bring all hosts to the same commit, without changes",
    "Python": "make the environment with the same one",
    "packages": "pip install -r requirements.txt",
    "shards": "copy the shards again",
}
"""By kind of facts, what makes them the same on all hosts."""
Facts = Mapping[str, Mapping[str, str]]
"""What `pipeline.distributed.probe.examine` finds, by kind and name."""

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


def _question(args: argparse.Namespace, environment: Mapping[str, str], beacon: Path | None) -> dict[str, Any]:
    """What each host is asked. Raises UserError if the data are not even here."""
    # A --data argument may have a weight.
    named = [Path(name) if Path(name).is_dir() else Path(name.rpartition(":")[0] or name) for name in args.data]
    data = [*named, *args.eval_data]
    for directory in data:
        if not (directory / "manifest.json").is_file():
            raise UserError(f"{directory} holds no shards on this host; run the preflight where deepspeed is run")
    interfaces = [environment[name] for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") if name in environment]
    return {
        "packages": list(_packages()),
        "sources": list(SOURCES),
        "data": [str(directory.absolute()) for directory in data],
        "beacon": None if beacon is None else str(beacon),
        # NCCL accepts patterns as well.
        "interfaces": [name for name in dict.fromkeys(interfaces) if re.fullmatch(r"[\w.-]+", name)],
        "gpus": environment.get("DS_ACCELERATOR") != "cpu",
        "connect": None,
    }


def _packages() -> dict[str, str]:
    """The versions in requirements.txt, by name; none if the file is not here, as in an installed package."""
    lines = REQUIREMENTS.read_text(encoding="utf-8").splitlines() if REQUIREMENTS.is_file() else []
    pinned = (line.partition("==") for line in lines if "==" in line and not line.startswith("#"))
    return {name.strip(): version.strip() for name, _, version in pinned}


def _check_this_machine(
    args: argparse.Namespace, hosts: Mapping[str, int], environment: Mapping[str, str], question: Mapping[str, Any]
) -> tuple[str, list[str]]:
    """Checks this machine alone. Returns what was checked, and the problems."""
    server, taken = probe.listen(args.master_port)
    if server is not None:
        server.close()
    found = probe.examine({**question})
    # A version's local part, such as `+cu126` of a torch build, does not matter.
    installed = {name: version.partition("+")[0] for name, version in found["facts"]["packages"].items()}
    lines = differences({"packages": installed}, {"packages": _packages()}, "in requirements.txt")
    devices = f"{found['gpus']} GPUs" if found["gpus"] else f"{found['cores']} cores without a GPU"
    return f"this machine, {devices}", [f"this machine: {line}" for line in (*lines, *found["problems"], *taken)]


def _check_hosts(
    args: argparse.Namespace, hosts: Mapping[str, int], environment: Mapping[str, str], question: Mapping[str, Any]
) -> tuple[str, list[str]]:
    """Compares each host with this one. Returns what was checked, and the problems."""
    here = probe.examine({**question, "gpus": False})  # it may be a node without any
    answers = query.ask_all(list(hosts), environment, question, args.master_addr, args.master_port)
    lines = _problems_of_ssh(list(hosts))
    for (name, slots), found in zip(hosts.items(), answers):
        lines += [f"{name}: {line}" for line in problems_of_host(slots, found, here["facts"], question["gpus"])]
    return f"{len(hosts)} hosts, {sum(hosts.values())} slots", lines


def problems_of_host(slots: int, found: Mapping[str, Any], here: Facts, needs_gpus: bool) -> list[str]:
    """What keeps a host from training: one line for each problem, with the remedy.

    Args:
        slots: of the host, from the hostfile.
        found: its answer.
        here: the facts of this host.
    """
    if "facts" not in found:
        return list(found["problems"])
    lines = differences(found["facts"], here, "here") + found["problems"]
    count, device = (found["gpus"], "GPU") if needs_gpus else (found["cores"], "core")
    if count < slots and not any("torch cannot compute" in line for line in lines):
        lines.append(
            f"has {quantity(count, device)}, and {quantity(slots, 'slot')} in the hostfile; correct the hostfile, or "
            "see nvidia-smi"
        )
    return lines


def differences(found: Facts, wanted: Facts, where: str) -> list[str]:
    """A line for each kind of facts in which a host differs, with the first differences and the remedy."""
    lines = []
    for kind, facts in wanted.items():
        names = sorted({*facts, *found[kind]})
        other = [name for name in names if found[kind].get(name) != facts.get(name)]
        shown = [f"{name} {found[kind].get(name, 'none')} ({facts.get(name, 'none')} {where})" for name in other[:4]]
        if other:
            more = f" and {len(other) - 4} more" if len(other) > 4 else ""
            lines.append(f"other {kind}: {', '.join(shown).strip()}{more}; {REMEDIES[kind]}")
    return lines


def _problems_of_ssh(hosts: Sequence[str]) -> list[str]:
    """Problems of this host's ssh: without keepalives, DeepSpeed's launcher waits for a lost host forever."""
    if len(hosts) < 2 or "ServerAliveInterval" in os.environ.get("PDSH_SSH_ARGS_APPEND", ""):
        return []
    if "serveraliveinterval 0" not in probe.lines_of("ssh", "-G", "--", hosts[-1]):
        return []
    return [
        "this host: ssh does not notice that a host is lost; "
        "export PDSH_SSH_ARGS_APPEND='-o ServerAliveInterval=10 -o ServerAliveCountMax=3'"
    ]


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
