"""Checks whether this machine, or every host of a hostfile, can train, and prints one line for each problem.

    python -m pipeline.preflight --data shards/train --output runs/base
    python -m pipeline.preflight --hostfile hostfile --data shards/train --output runs/xxlarge

Without a hostfile it checks this machine: data, directory of the run, GPUs, port. With one, run it on the host and in
the directory in which `deepspeed` will run. It starts itself over ssh on each host, with a question, and compares the
facts of the answers with this host (`pipeline.run.facts`), as the start will. The GPUs are compared with the hostfile.
Rank 0's host opens the port of the rendezvous, and the other hosts connect to it.

Exit status: 0 ready; 1 problems found; 2 a mistake in the command line.
"""

import argparse
import contextlib
import json
import os
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common import PREFIX
from common.command_line import Parser, bounded, entry_point
from common.environment import gpus_of_driver, has_gpu_device, lines_of
from common.errors import UserError
from common.files import places
from common.files.json_files import read_text
from common.text import quantity
from data_prep.format.shards import open_shards
from pipeline.engine.hardware import missing_for_compilation
from pipeline.pretraining.corpora import open_corpora
from pipeline.run.facts import Facts, differences, facts_of_host
from pipeline.settings.declare import split_weight

MAX_BYTES, MAX_SLOTS = 16 << 20, 1024
_CONNECT_SECONDS, _ANSWER_SECONDS = 10, 180
_TORCH_SECONDS = 90  # imports from a cold network disk take long
_TRIAL = f"""
import os, torch
from {PREFIX}pipeline.engine.hardware import check_gpus_are_usable
os.environ.pop("DS_ACCELERATOR", None)
try:
    check_gpus_are_usable()
    for number in range(torch.cuda.device_count()):
        ones = torch.ones(512, 512, device=f"cuda:{{number}}")
        assert bool((ones @ ones == 512).all()), "a matrix product is wrong"
        print("computes", flush=True)
except Exception as error:
    print(str(error).strip().partition("\\n")[0] or type(error).__name__)
"""
_port = bounded(int, "port", lambda port: 1 <= port <= 65535, "a port; give one from 1 to 65535")


def parser() -> Parser:
    """The command line."""
    p = Parser(prog="python -m pipeline.preflight", description=__doc__.splitlines()[0])
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
        print(json.dumps(examine(question := json.loads(args.answer))), flush=True)
        if question["listen"]:
            sys.stdin.read()  # the port stays open until stdin is closed
        return 0
    began, hosts = time.monotonic(), {} if args.hostfile is None else read_hostfile(args.hostfile)
    environment = read_environment(Path.home(), Path.cwd()) if hosts else dict(os.environ)
    with _beacon(args.output) as beacon:
        question = _question(args, environment, beacon)
        if hosts:
            subject, lines = _check_hosts(args, hosts, environment, question)
        else:
            found = examine(question)
            devices = f"{found['gpus']} GPUs" if found["gpus"] else f"{found['cores']} cores without a GPU"
            subject, lines = f"this machine, {devices}", [f"this machine: {line}" for line in found["problems"]]
    print(*lines, sep="\n", end="\n" if lines else "")
    verdict = "ready" if not lines else quantity(len(lines), "problem")
    print(f"{subject}: {verdict} ({time.monotonic() - began:.1f} s)")
    return 1 if lines else 0


def _question(args: argparse.Namespace, environment: Mapping[str, str], beacon: Path | None) -> dict[str, Any]:
    """What each host is asked. Raises UserError if the data are not even here, not whole, or do not fit together."""
    for directory in (data := [*(split_weight(name)[0] for name in args.data), *args.eval_data]):
        if not (directory / "manifest.json").is_file():
            raise UserError(f"{directory} holds no shards on this host; run the preflight where deepspeed is run")
    if args.data:
        open_corpora(args.data).check_together(args.eval_data)
    for directory in () if args.data else args.eval_data:  # `check_together` opens them, too
        open_shards(directory)
    return {
        "data": [str(directory.absolute()) for directory in data],
        "beacon": None if beacon is None else str(beacon),
        "gpus": environment.get("DS_ACCELERATOR", "").lower() != "cpu",
        "connect": None,
        "listen": args.master_port,
    }


def _check_hosts(
    args: argparse.Namespace, hosts: Mapping[str, int], environment: Mapping[str, str], question: Mapping[str, Any]
) -> tuple[str, list[str]]:
    """Compares each host with this one. Returns what was checked, and the problems. UserError: ssh is missing."""
    if shutil.which("ssh") is None:
        raise UserError("ssh, by which hosts are asked, is not installed here; install it")
    here, names, lines = facts_of_host(question["data"]), list(hosts), []
    if len(names) > 1 and shutil.which("pdsh") is None:
        lines.append("this host: no pdsh, by which deepspeed starts the others; install it, or give --no_ssh on each")
    keeps_alive = len(names) < 2 or "ServerAliveInterval" in os.environ.get("PDSH_SSH_ARGS_APPEND", "")
    if not keeps_alive and "serveraliveinterval 0" in lines_of("ssh", "-G", "--", names[-1]):
        remedy = "export PDSH_SSH_ARGS_APPEND='-o ServerAliveInterval=10 -o ServerAliveCountMax=3'"
        lines.append(f"this host: ssh does not notice that a host is lost; {remedy}")
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
    """What keeps a host with `slots` in the hostfile from training: a line for each problem, with the remedy.

    `found` is its answer, and `here` has the facts of this host.
    """
    if "facts" not in found:
        return list(found["problems"])
    lines = differences(found["facts"], here) + found["problems"]
    count, device = (found["gpus"], "GPU") if needs_gpus else (found["cores"], "core")
    if count < slots and not any("torch cannot compute" in line for line in lines):
        fault = f"has {quantity(count, device)}, and {quantity(slots, 'slot')} in the hostfile"
        lines.append(f"{fault}; correct the hostfile, or see nvidia-smi")
    return lines


def _start(host: str, environment: Mapping[str, str], question: Mapping[str, Any]) -> "subprocess.Popen[str]":
    """Starts this module over ssh on a host, in the project's directory, with a question."""
    words = [sys.executable, "-m", PREFIX + "pipeline.preflight", "--answer", json.dumps(question)]
    variables = [f"{name}={value}" for name, value in environment.items()]
    run = shlex.join(["timeout", str(_ANSWER_SECONDS), "env", *variables, *words])
    options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SECONDS}", "-o", "ServerAliveInterval=10"]
    command = ["ssh", *options, "--", host, f"cd {shlex.quote(os.getcwd())} && exec {run}"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace")


def answer_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """What `examine` found on a host; only `problems` if nothing came. A listening host keeps its port open."""
    assert process.stdout is not None
    # The shell of a host may greet first, in any bytes.
    if line := next((line for line in process.stdout if line.startswith('{"facts": ')), ""):
        found: dict[str, Any] = json.loads(line)
        return found
    _, errors = process.communicate()
    said = (errors.strip().splitlines() or [f"status {process.returncode}"])[-1]
    if process.returncode == 255:  # ssh's own
        return {"problems": [f"cannot be reached by ssh without a password ({said}); start it, or set up the key"]}
    return {"problems": [f"cannot run the preflight ({said}); make checkout and environment there as they are here"]}


def read_hostfile(path: Path) -> dict[str, int]:
    """Slots by host, in the order of the file. Raises UserError with the first line that DeepSpeed cannot read."""
    form, hosts = "write a line for each host, as in `node1 slots=8`", dict[str, int]()
    for number, line in enumerate(map(str.strip, read_text(path, form, MAX_BYTES).splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        match = re.match(r"(\S+)\s+slots=([0-9]{1,5})\b", line)
        if match is None or not match[1].isprintable() or not 1 <= int(match[2]) <= MAX_SLOTS or match[1] in hosts:
            problem = f"{line[:80]!r} is not a new host and 1 to {MAX_SLOTS} slots"
            raise UserError(f"--hostfile {path}, line {number}: {problem}; {form}")
        hosts[match[1]] = int(match[2])
    if not hosts:
        raise UserError(f"--hostfile {path} names no host; {form}")
    return hosts


def read_environment(home: Path, here: Path) -> dict[str, str]:
    """The variables that DeepSpeed will export on the hosts, from `.deepspeed_env` in `home`, then in `here`.

    Raises UserError for another line. DeepSpeed stops with a traceback, or exports nothing and ends with status 0.
    """
    variables: dict[str, str] = {}
    for path in (home / ".deepspeed_env", here / ".deepspeed_env"):
        lines = read_text(path, "correct it", MAX_BYTES).splitlines() if path.is_file() else []
        for number, line in enumerate(lines, 1):
            match = re.match(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*=(.*)", line, re.ASCII)
            if match is None or not line.strip().isprintable():
                raise UserError(f"{path}, line {number}: {line!r} is not NAME=value, the only form for DeepSpeed")
            variables[match[1]] = match[2].strip()
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


def examine(question: Mapping[str, Any]) -> dict[str, Any]:
    """Examines this host.

    Args:
        question: data: directories of shards; beacon: a file that the asking host has just made in the run's directory,
            or None; connect: [address, port] to try, or None; listen: the port of the rendezvous to open, as rank 0
            will, until this process ends, or 0; gpus: whether to try the GPUs.
    Returns:
        facts: see `pipeline.run.facts`; problems, one line each; gpus: how many compute; cores; address of this host.
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
    if question["listen"]:
        try:
            socket.create_server(("", question["listen"]), backlog=1024).detach()  # the kernel takes the connections
        except OSError:
            lines.append("the port is taken; end what listens there, or give another --master_port")
    return {
        "facts": facts_of_host(question["data"]),
        "problems": lines,
        "gpus": gpus,
        "cores": len(os.sched_getaffinity(0)),
        "address": " ".join(lines_of("hostname", "-I")).partition(" ")[0],
    }


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
    count = said.count("computes")
    lines = [f"torch cannot compute on its GPUs: {line}; see `nvidia-smi` there" for line in said[count:]]
    if missing := missing_for_compilation():
        lines.append(f"{missing}; install what is missing, or train with --compile off")
    return count, lines


if __name__ == "__main__":
    sys.exit(main())
