"""Checks whether this machine, or every host of a hostfile, can train, and prints one line for each problem.

    python -m pipeline.preflight --data shards/train --output runs/base
    python -m pipeline.preflight --hostfile hostfile --data shards/train --output runs/xxlarge

Without a hostfile it checks this machine: packages, data, directory of the run, GPUs, port. With one, run it on the
host and in the directory in which `deepspeed` will run. Each host is compared with this one: code, Python, packages,
data, directory of the run, clock. Its GPUs are compared with the hostfile. Rank 0's host opens the port of the
rendezvous, and the other hosts connect to it.

Exit status: 0 ready; 1 problems found; 2 a mistake in the command line.
"""

import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.command_line import Parser, entry_point
from common.errors import UserError
from common.files import places
from common.text import quantity
from pipeline.distributed.query import (
    Answer,
    Question,
    ask_all,
    ask_here,
    ask_this_machine,
    read_environment,
    read_hostfile,
)

SOURCES = ("common", "data_prep", "model", "pipeline", "ds_configs", "requirements.txt")
"""Directories and files of the project that must be the same on all hosts."""
REQUIREMENTS = Path("requirements.txt")
THIS_MACHINE = "this machine"
MAX_CLOCK_SECONDS = 5.0  # up to this difference, a person can order the logs of two hosts by time


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
    args = parser.parse_all(argv)
    if not 1 <= args.master_port <= 65535:
        raise UserError(f"--master_port {args.master_port} is no port; give one from 1 to 65535")
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
    devices = f"{found['cores']} cores without a GPU" if on_cpu else f"{found['gpus']} GPUs"
    return _report(lines, f"{THIS_MACHINE}, {devices}", began)


def _report(lines: Sequence[str], subject: str, began: float) -> int:
    for line in lines:
        print(line)
    verdict = "ready" if not lines else quantity(len(lines), "problem")
    print(f"{subject}: {verdict} ({time.monotonic() - began:.1f} s)")
    return 1 if lines else 0


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


def problems(name: str, slots: int, answer: Answer, here: Answer, environment: Mapping[str, str]) -> list[str]:
    """What keeps a host from training: one line for each problem, with the host's name and the remedy.

    Args:
        name, slots: of the host, from the hostfile.
        answer: of that host.
        here: of this host.
        environment: the variables that DeepSpeed will export there.
    """
    if answer.problem:
        return [f"{name} {answer.problem}"]
    there, mine = answer.found, here.found
    lines = _of_code(there, mine) + _of_data(there, mine)
    if there["output"]:
        lines.append(f"--output {there['output']}; it must be one folder that all hosts share")
    early, late = answer.sent - there["time"], there["time"] - answer.received
    if max(early, late) > MAX_CLOCK_SECONDS:
        fault = f"{early:.0f} s slow" if early > late else f"{late:.0f} s fast"
        lines.append(f"its clock is {fault}; set it by NTP (chronyc tracking)")
    on_cpu = environment.get("DS_ACCELERATOR") == "cpu"
    count, device = (there["cores"], "core") if on_cpu else (there["gpus"], "GPU")
    if there["gpu_problem"]:
        lines.append(
            f"torch cannot compute on its GPUs: {there['gpu_problem']}; see `nvidia-smi` there, and README, "
            '"GPU drivers"'
        )
    elif count < slots:
        lines.append(
            f"has {quantity(count, device)}, and {quantity(slots, 'slot')} in the hostfile; correct the hostfile, or "
            "see nvidia-smi"
        )
    if there.get("exclusive"):
        lines.append(
            "its GPUs are in compute mode Exclusive_Process, in which a run cannot try attention kernels; give "
            "`nvidia-smi -c DEFAULT` there"
        )
    lines += [
        f"has no network interface {interface}, which .deepspeed_env names; see `ip -brief address` there"
        for interface in there["interfaces"]
    ]
    if there["port"]:
        lines.append(f"cannot reach rank 0's host ({there['port']}); open the port, or give another --master_addr")
    if there["taken"]:
        lines.append("the port is taken; end what listens there, or give another --master_port")
    return [f"{name}: {line}" for line in lines]


def problems_of_packages(installed: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Packages that are missing or have another version than requirements.txt, on this machine.

    A version's local part, such as `+cu126` of a torch build, does not matter.
    """
    other = [name for name, version in wanted.items() if installed[name].partition("+")[0] != version]
    if not other:
        return []
    shown = ", ".join(f"{name} {installed[name]} (requirements.txt: {wanted[name]})" for name in other[:4])
    more = f" and {len(other) - 4} more" if len(other) > 4 else ""
    return [f"this machine: other packages: {shown}{more}; pip install -r requirements.txt"]


def _of_code(there: Mapping[str, Any], mine: Mapping[str, Any]) -> list[str]:
    """Differences in code, Python and packages."""
    lines = []
    sources = sorted(set(there["sources"]) | set(mine["sources"]))
    if other := [path for path in sources if there["sources"].get(path) != mine["sources"].get(path)]:
        more = f" and {len(other) - 1} more" if len(other) > 1 else ""
        commits = f", commit {there['commit'] or 'unknown'} there and {mine['commit'] or 'unknown'} here"
        lines.append(f"other code ({other[0]}{more}{commits}); bring it to the same commit, without changes")
    if there["python"] != mine["python"]:
        lines.append(f"Python {there['python']}, and {mine['python']} here; make the environment with the same one")
    if other := [name for name in mine["packages"] if there["packages"][name] != mine["packages"][name]]:
        versions = ", ".join(f"{name} {there['packages'][name]} (here {mine['packages'][name]})" for name in other[:4])
        more = f" and {len(other) - 4} more" if len(other) > 4 else ""
        lines.append(f"other packages: {versions}{more}; pip install -r requirements.txt there")
    return lines


def _of_data(there: Mapping[str, Any], mine: Mapping[str, Any]) -> list[str]:
    """Shards that are missing, different or damaged."""
    lines = []
    for directory, found in there["data"].items():
        if found["manifest"] == "none":
            lines.append(f"has no shards in {directory}; copy them, or mount the storage that holds them")
        elif found["manifest"] != mine["data"][directory]["manifest"]:
            lines.append(f"{directory} has another manifest.json there; copy the shards again")
        elif found["damaged"]:
            count = len(found["damaged"])
            lines.append(f"{directory}: {count} files missing or cut short, as {found['damaged'][0]}; copy them again")
    return lines


def problems_of_launcher(hosts: Sequence[str]) -> list[str]:
    """Problems of this host's ssh: without keepalives, DeepSpeed's launcher waits for a lost host forever."""
    if len(hosts) < 2 or "ServerAliveInterval" in os.environ.get("PDSH_SSH_ARGS_APPEND", ""):
        return []
    result = subprocess.run(["ssh", "-G", "--", hosts[-1]], capture_output=True, text=True, check=False)
    if "serveraliveinterval 0" not in result.stdout.splitlines():
        return []
    return [
        "this host: ssh does not notice that a host is lost; "
        "export PDSH_SSH_ARGS_APPEND='-o ServerAliveInterval=10 -o ServerAliveCountMax=3'"
    ]


if __name__ == "__main__":
    sys.exit(main())
