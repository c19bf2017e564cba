"""Checks whether this machine, or every host of a hostfile, can train, and prints one line for each problem.

    python -m pipeline.preflight --data shards/train --output runs/base
    python -m pipeline.preflight --hostfile hostfile --data shards/train --output runs/xxlarge

Without a hostfile it checks this machine: data, directory of the run, GPUs, port. With one, run it on the
host and in the directory in which `deepspeed` will run. It starts itself over ssh on each host, with a question, and
compares the answers with this host: code, Python, packages, data, directory of the run. The GPUs are compared with the
hostfile. Rank 0's host opens the port of the rendezvous, and the other hosts connect to it.

Exit status: 0 ready; 1 problems found; 2 a mistake in the command line.
"""

import argparse
import contextlib
import hashlib
import json
import os
import platform
import re
import secrets
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

from common import PREFIX
from common.command_line import Parser, bounded, entry_point
from common.errors import UserError
from common.files import places
from common.files.json_files import read_text
from common.gpus import gpus_of_driver, has_gpu_device, lines_of
from common.text import quantity
from pipeline.engine.hardware import missing_for_compilation
from pipeline.settings.declare import split_weight

SUFFIXES = (".py", ".json", ".toml", ".txt", ".md")
"""Of the files that decide what is computed."""
SOURCES = ("common", "data_prep", "model", "pipeline", "ds_configs", "requirements.txt")
"""Directories and files of the project that must be the same on all hosts."""
REMEDIES = {
    "code": "bring all hosts to the same commit, without changes",
    "Python": "make the environment with the same one",
    "packages": "pip install -r requirements.txt",
    "shards": "copy the shards again",
}
"""By kind of facts, what makes them the same on all hosts."""
Facts = Mapping[str, Mapping[str, str]]
"""What `examine` finds, by kind and name."""
MAX_BYTES, MAX_SLOTS = 16 << 20, 1024
_CONNECT_SECONDS, _ANSWER_SECONDS = 10, 180
_TORCH_SECONDS = 90  # imports from a cold network disk take long
_NO_FOLDER, _NO_PYTHON, _LATE, _NO_SSH = 97, 98, 124, 255  # exit statuses, also of `timeout` and ssh
_TRIAL = """
import torch
try:
    assert torch.cuda.is_available() or torch.cuda.init(), "torch sees none"
    for number in range(torch.cuda.device_count()):
        ones = torch.ones(512, 512, device=f"cuda:{number}")
        assert bool((ones @ ones == 512).all()), "a matrix product is wrong"
        print("computes", flush=True)
except Exception as error:
    reason = str(error).strip().partition("\\n")[0] or type(error).__name__
    print(f"{reason} (torch {torch.__version__}, built for CUDA {torch.version.cuda or 'none'})")
"""
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
    p.add_argument("--answer", metavar="QUESTION", help=argparse.SUPPRESS)  # on a host that is asked
    return p


@entry_point
def main(argv: Sequence[str]) -> int:
    """Runs the command line and returns the exit status."""
    args = parser().parse_all(argv)
    if args.answer is not None:
        return _answer(json.loads(args.answer))
    began, hosts = time.monotonic(), {} if args.hostfile is None else read_hostfile(args.hostfile)
    own = {name: os.environ[name] for name in ("DS_ACCELERATOR",) if name in os.environ}
    environment = read_environment(Path.home(), Path.cwd()) if hosts else own
    with _beacon(args.output) as beacon:
        question = _question(args, environment, beacon)
        subject, lines = _check_hosts(args, hosts, environment, question) if hosts else _check_here(question)
    print(*lines, sep="\n", end="\n" if lines else "")
    verdict = "ready" if not lines else quantity(len(lines), "problem")
    print(f"{subject}: {verdict} ({time.monotonic() - began:.1f} s)")
    return 1 if lines else 0


def _question(args: argparse.Namespace, environment: Mapping[str, str], beacon: Path | None) -> dict[str, Any]:
    """What each host is asked. Raises UserError if the data are not even here."""
    for directory in (data := [*(split_weight(name)[0] for name in args.data), *args.eval_data]):
        if not (directory / "manifest.json").is_file():
            raise UserError(f"{directory} holds no shards on this host; run the preflight where deepspeed is run")
    return {
        "data": [str(directory.absolute()) for directory in data],
        "beacon": None if beacon is None else str(beacon),
        "gpus": environment.get("DS_ACCELERATOR") != "cpu",
        "connect": None,
        "listen": args.master_port,
    }


def _check_here(question: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Checks this machine alone. Returns what was checked, and the problems."""
    taken, found = _open(question["listen"]), examine(question)
    devices = f"{found['gpus']} GPUs" if found["gpus"] else f"{found['cores']} cores without a GPU"
    return f"this machine, {devices}", [f"this machine: {line}" for line in (*found["problems"], *taken)]


def _check_hosts(
    args: argparse.Namespace, hosts: Mapping[str, int], environment: Mapping[str, str], question: Mapping[str, Any]
) -> tuple[str, list[str]]:
    """Compares each host with this one. Returns what was checked, and the problems."""
    here = examine({**question, "gpus": False})["facts"]  # this may be a node without any
    names, lines = list(hosts), []
    keeps_alive = len(names) < 2 or "ServerAliveInterval" in os.environ.get("PDSH_SSH_ARGS_APPEND", "")
    if not keeps_alive and "serveraliveinterval 0" in lines_of("ssh", "-G", "--", names[-1]):
        lines.append(
            "this host: ssh does not notice that a host is lost; "
            "export PDSH_SSH_ARGS_APPEND='-o ServerAliveInterval=10 -o ServerAliveCountMax=3'"
        )
    first = _start(names[0], environment, question)
    answer = answer_of(first)
    address = args.master_addr or answer.get("address") or names[0]
    others = {**question, "listen": 0, "connect": [address, args.master_port] if "facts" in answer else None}
    with ThreadPoolExecutor(64) as pool:
        answers = [answer, *pool.map(lambda name: answer_of(_start(name, environment, others)), names[1:])]
    first.kill()  # its port was open until now
    first.communicate()
    for (name, slots), found in zip(hosts.items(), answers):
        lines += [f"{name}: {line}" for line in problems_of_host(slots, found, here, question["gpus"])]
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
    lines = differences(found["facts"], here) + found["problems"]
    count, device = (found["gpus"], "GPU") if needs_gpus else (found["cores"], "core")
    if count < slots and not any("torch cannot compute" in line for line in lines):
        lines.append(
            f"has {quantity(count, device)}, and {quantity(slots, 'slot')} in the hostfile; correct the hostfile, or "
            "see nvidia-smi"
        )
    return lines


def differences(found: Facts, wanted: Facts) -> list[str]:
    """A line for each kind of facts in which a host differs, with the first differences and the remedy."""
    lines = []
    for kind, facts in wanted.items():
        names = sorted({*facts, *found[kind]})
        other = [name for name in names if found[kind].get(name) != facts.get(name)]
        shown = [f"{name} {found[kind].get(name, 'none')} ({facts.get(name, 'none')} here)" for name in other[:4]]
        if other:
            more = f" and {len(other) - 4} more" if len(other) > 4 else ""
            lines.append(f"other {kind}: {', '.join(shown).strip()}{more}; {REMEDIES[kind]}")
    return lines


def _start(host: str, environment: Mapping[str, str], question: Mapping[str, Any]) -> "subprocess.Popen[str]":
    """Starts this module over ssh on a host, in the project's directory, with a question."""
    words = [sys.executable, "-m", PREFIX + "pipeline.preflight", "--answer", json.dumps(question)]
    remote = (
        f"cd {shlex.quote(os.getcwd())} || exit {_NO_FOLDER}; [ -x {shlex.quote(sys.executable)} ] || exit "
        f"{_NO_PYTHON}; exec timeout {_ANSWER_SECONDS} env "
        f"{shlex.join([*(f'{name}={value}' for name, value in environment.items()), *words])}"
    )
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SECONDS}", "-o", "ServerAliveInterval=10"]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        ["ssh", *options, "--", host, remote], stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace"
    )


def answer_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """What `examine` found on a host; only `problems` if nothing came. A listening host keeps its port open."""
    assert process.stdout is not None
    # The shell of a host may greet first, in any bytes.
    if line := next((line for line in process.stdout if line.startswith('{"facts": ')), ""):
        found: dict[str, Any] = json.loads(line)
        return found
    _, errors = process.communicate()
    last = (errors.strip().splitlines() or ["no message"])[-1]
    causes = {
        _NO_SSH: f"cannot be reached by ssh without a password ({last}); start it, or set up the key",
        _NO_FOLDER: f"has no directory {os.getcwd()}; put the checkout at the same place, or on shared storage",
        _NO_PYTHON: f"has no {sys.executable}; make the environment at the same place, or on shared storage",
        _LATE: f"does not answer within {_ANSWER_SECONDS} s; check its load",
    }
    other = f"cannot run the preflight ({last}); make checkout and environment there as they are here"
    return {"problems": [causes.get(process.returncode, other)]}


def read_hostfile(path: Path) -> dict[str, int]:
    """Slots by host, in the order of the file. Raises UserError with the first line that DeepSpeed cannot read."""
    form, hosts = "write a line for each host, as in `node1 slots=8`", dict[str, int]()
    try:
        lines = read_text(path, form, MAX_BYTES).splitlines()
    except UserError as error:
        raise UserError(f"--hostfile {error}") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        match = re.match(r"(\S+)\s+slots=([0-9]{1,5})\b", line.strip())
        if match is None or not match[1].isprintable() or not 1 <= int(match[2]) <= MAX_SLOTS:
            raise UserError(f"{path}, line {number}: {line[:80]!r} is not a host and 1 to {MAX_SLOTS} slots; {form}")
        if match[1] in hosts:
            raise UserError(f"{path}, line {number}: {match[1]} is listed twice; give each host one line")
        hosts[match[1]] = int(match[2])
    if not hosts:
        raise UserError(f"{path} names no host; {form}")
    return hosts


def read_environment(home: Path, here: Path) -> dict[str, str]:
    """The variables that DeepSpeed will export on the hosts, from `.deepspeed_env` in `home`, then in `here`.

    Raises UserError for a line without "=", which DeepSpeed does not accept, nor a blank line or a comment.
    """
    variables: dict[str, str] = {}
    for path in (home / ".deepspeed_env", here / ".deepspeed_env"):
        lines = read_text(path, "correct it", MAX_BYTES).splitlines() if path.is_file() else []
        for number, line in enumerate(lines, 1):
            if "=" not in line or not line.isprintable():
                raise UserError(f"{path}, line {number}: {line!r} is not NAME=value, the only form for DeepSpeed")
            name, _, value = line.partition("=")
            variables[name.strip()] = value.strip()
    return variables


@contextlib.contextmanager
def _beacon(output: Path | None) -> Iterator[Path | None]:
    """A file in the run's directory, or in its nearest parent that exists. A host that shares it sees the file."""
    if output is None:
        yield None
        return
    places.check_directory(output, "--output")
    folder = next(folder for folder in (output.absolute(), *output.absolute().parents) if folder.is_dir())
    beacon = folder / f".preflight-{secrets.token_hex(8)}"
    try:
        beacon.touch()
    except OSError as error:
        raise places.cannot_write(folder, error, "--output") from None
    try:
        yield beacon
    finally:
        beacon.unlink(missing_ok=True)


def _answer(question: Mapping[str, Any]) -> int:
    """Prints what this host is, as a line of JSON. One that listens keeps its port open until stdin is closed."""
    taken = _open(question["listen"]) if question["listen"] else []
    found = examine(question)
    print(json.dumps(found | {"problems": found["problems"] + taken}), flush=True)
    if question["listen"]:
        sys.stdin.read()
    return 0


def examine(question: Mapping[str, Any]) -> dict[str, Any]:
    """Examines this host, in the project's directory.

    Args:
        question: data: directories of shards; beacon: a file that the asking host has just made in the run's directory,
            or None; connect: [address, port] to try, or None; gpus: whether to try the GPUs.
    Returns:
        facts, which must be the same on all hosts: by kind, by name; problems, one line each; gpus: how many compute;
        cores; address of this host.
    """
    gpus, lines = _try_gpus() if question["gpus"] else (0, [])
    if question["beacon"] is not None and (state := _output(Path(question["beacon"]))):
        lines.append(f"--output {state}; it must be one folder that all hosts share")
    if question["connect"] is not None:
        try:
            socket.create_connection(tuple(question["connect"]), timeout=5).close()
        except OSError as error:
            reason = error.strerror or error
            lines.append(f"cannot reach rank 0's host ({reason}); open the port, or give another --master_addr")
    found = [path for place in map(Path, SOURCES) for path in (place, *place.rglob("*"))]
    files = [path for path in found if path.suffix in SUFFIXES]
    facts = {
        # An editor's lock is a link that leads nowhere.
        "code": {str(path): _digest(path.read_bytes()) for path in files if path.is_file()},
        "Python": {"": platform.python_version()},
        "packages": {str(package.name): package.version for package in metadata.distributions()},
        "shards": {directory: _shards(Path(directory)) for directory in question["data"]},
    }
    address = " ".join(lines_of("hostname", "-I")).partition(" ")[0]
    cores = len(os.sched_getaffinity(0))
    return {"facts": facts, "problems": lines, "gpus": gpus, "cores": cores, "address": address}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _shards(directory: Path) -> str:
    """A digest of a shard set's manifest and of the sizes of its files; "none" without a manifest."""
    if not (directory / "manifest.json").is_file():
        return "none"
    sizes = sorted((entry.name, entry.stat().st_size) for entry in os.scandir(directory) if entry.name[0] != ".")
    return _digest((directory / "manifest.json").read_bytes() + str(sizes).encode())


def _output(beacon: Path) -> str:
    """What is wrong with the run's directory; "" if nothing is."""
    if not beacon.exists():
        return "is another folder there, or none"
    try:
        tempfile.TemporaryFile(dir=beacon.parent).close()
    except OSError as error:
        return f"cannot be written to ({error.strerror})"
    return ""


def _try_gpus() -> tuple[int, list[str]]:
    """On how many GPUs torch can compute (one matrix product each), and a line for each problem."""
    if not gpus_of_driver() and not has_gpu_device():
        return 0, []
    said = lines_of(sys.executable, "-c", _TRIAL, seconds=_TORCH_SECONDS) or ["torch does not start, or ends"]
    count, advice = said.count("computes"), 'see `nvidia-smi` there, and docs/quickstart.md, "GPU drivers"'
    lines = [f"torch cannot compute on its GPUs: {line}; {advice}" for line in said[count:]]
    if missing := missing_for_compilation():
        lines.append(f"{missing}; install what is missing, or train with --compile off")
    return count, lines


def _open(port: int) -> list[str]:
    """Listens on the port of the rendezvous, as rank 0 will, until this process ends. Returns the problem, if any."""
    try:
        socket.create_server(("", port), backlog=1024).detach()  # the kernel takes the connections
    except OSError:
        return ["the port is taken; end what listens there, or give another --master_port"]
    return []


if __name__ == "__main__":
    sys.exit(main())
