"""Examines a host. `pipeline.preflight` sends this file to every host and runs it there: python -c FILE QUESTION.

It uses only the standard library, so it works on a host whose copy of the project differs or is missing. The question
is a JSON object, as `examine` takes it. The answer is one line of JSON on stdout: what `examine` returns.
"""

import hashlib
import json
import os
import platform
import select
import socket
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

_TORCH_SECONDS = 90  # imports from a cold network disk take long
OPEN_SECONDS = 300.0
"""How long a port stays open without a connection. A host connects last, after its GPUs."""


def examine(question: dict[str, Any]) -> dict[str, Any]:
    """Examines this host, in the project's directory.

    Args:
        question: packages: names of distributions; sources: directories and files of the project; data: directories of
            shards; beacon: a file that the asking host has just made in the run's directory, or null; interfaces: names
            of network interfaces; connect: [address, port] to try, or null; gpus: whether to try the GPUs.
    Returns:
        facts, which must be the same on all hosts: by kind, by name; problems, one line each; gpus: how many
        compute; cores; address of this host.
    """
    gpus, lines = _try_gpus() if question["gpus"] else (0, [])
    facts = {
        "code": _digests(question["sources"]),
        "Python": {"": platform.python_version()},
        "packages": {name: _version(name) for name in question["packages"]},
        "shards": {},
    }
    for directory in question["data"]:
        facts["shards"][directory], damaged = _shards(Path(directory))
        if damaged:
            lines.append(f"{directory}: {len(damaged)} files missing or cut short, as {damaged[0]}; copy them again")
    if question["beacon"] is not None and (state := _output(Path(question["beacon"]))):
        lines.append(f"--output {state}; it must be one folder that all hosts share")
    lines += [
        f"has no network interface {name}, which .deepspeed_env names; see `ip -brief address` there"
        for name in question["interfaces"]
        if name not in [name for _, name in socket.if_nameindex()]
    ]
    if question["connect"] is not None and (fault := _connect(*question["connect"])):
        lines.append(f"cannot reach rank 0's host ({fault}); open the port, or give another --master_addr")
    return {
        "facts": facts,
        "problems": lines,
        "gpus": gpus,
        "cores": len(os.sched_getaffinity(0)),
        "address": " ".join(lines_of("hostname", "-I")).partition(" ")[0],
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def lines_of(*command: str, seconds: float = 20) -> list[str]:
    """The lines that a command prints; none if it is missing, fails or takes longer."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return result.stdout.splitlines() if result.returncode == 0 else []


def _digests(places: list[str]) -> dict[str, str]:
    """The beginning of the sha256 of each source file, by its path in the project."""
    files = [Path(place) for place in places]
    for place in places:
        files += [path for path in Path(place).rglob("*") if path.suffix in (".py", ".json")]
    # An editor's lock is a link that leads nowhere.
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest()[:12] for path in files if path.is_file()}


def _shards(directory: Path) -> tuple[str, list[str]]:
    """The digest of a shard set's manifest, and its files that are missing or have another size."""
    try:
        content = (directory / "manifest.json").read_bytes()
        files = [(os.path.basename(file["name"]), file["bytes"]) for file in json.loads(content)["files"]]
    except (OSError, ValueError, KeyError, TypeError):
        return "none", []
    damaged = [name for name, size in files if _size(directory / name) != size]
    return hashlib.sha256(content).hexdigest()[:12], damaged


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _output(beacon: Path) -> str:
    """What is wrong with the run's directory; "" if nothing is."""
    if not beacon.exists():
        return "is another folder there, or none"
    try:
        tempfile.TemporaryFile(dir=beacon.parent).close()
    except OSError as error:
        return f"cannot be written to ({error.strerror})"
    return ""


def gpus_of_driver() -> list[str]:
    """The lines of `nvidia-smi -L`, one a GPU; none without a driver."""
    return [line for line in lines_of("nvidia-smi", "-L") if line.startswith("GPU ")]


def has_gpu_device() -> bool:
    """Whether the kernel shows a GPU, with or without nvidia-smi."""
    return os.path.exists("/dev/nvidia0")


_TRIAL = """
import json, torch
working, problem = 0, ""
try:
    if not torch.cuda.is_available():
        torch.cuda.init()
        raise RuntimeError("torch sees none")
    for number in range(torch.cuda.device_count()):
        problem = f"GPU {number}: "
        ones = torch.ones(512, 512, device=f"cuda:{number}")
        if not bool((ones @ ones == 512).all()):
            raise RuntimeError("a matrix product is wrong")
        working, problem = working + 1, ""
except Exception as error:
    problem += str(error).strip().partition("\\n")[0] or type(error).__name__
problem += f" (torch {torch.__version__}, built for CUDA {torch.version.cuda or 'none'})" if problem else ""
print(json.dumps([working, problem]))
"""


def _try_gpus() -> tuple[int, list[str]]:
    """On how many GPUs torch can compute (one matrix product each), and a line for each problem."""
    if not gpus_of_driver() and not has_gpu_device():
        return 0, []
    answer = lines_of(sys.executable, "-c", _TRIAL, seconds=_TORCH_SECONDS)
    working, fault = 0, f"torch does not start within {_TORCH_SECONDS} s, or ends with an error"
    if answer:
        working, fault = json.loads(answer[-1])
    lines = []
    if fault:
        lines.append(f'torch cannot compute on its GPUs: {fault}; see `nvidia-smi` there, and README, "GPU drivers"')
    if any("Exclusive" in mode for mode in lines_of("nvidia-smi", "--query-gpu=compute_mode", "--format=csv,noheader")):
        lines.append(
            "its GPUs are in compute mode Exclusive_Process, in which a run cannot try attention kernels; give "
            "`nvidia-smi -c DEFAULT` there"
        )
    return working, lines


def _connect(address: str, port: int) -> str:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError as error:
        return str(error.strerror or error)
    return ""


def listen(port: int) -> tuple[socket.socket | None, list[str]]:
    """Opens the port of the rendezvous as rank 0 will. Returns the server and no problem, or None and the problem."""
    try:
        return socket.create_server(("", port), backlog=1024), []
    except OSError:
        return None, ["the port is taken; end what listens there, or give another --master_port"]


def main() -> None:
    """Answers the question on the command line. With `listen`, keeps that port open until stdin is closed."""
    question = json.loads(sys.argv[1])
    server, taken = listen(question["listen"]) if question["listen"] else (None, [])
    found = examine(question)
    print(json.dumps(found | {"problems": found["problems"] + taken}), flush=True)
    while server is not None:
        ready, _, _ = select.select([server, sys.stdin], [], [], OPEN_SECONDS)
        if server not in ready:
            return
        server.accept()[0].close()


if __name__ == "__main__":
    main()
