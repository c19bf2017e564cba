"""Examines a host. `pipeline.preflight` sends this file to every host and runs it there: python -c FILE QUESTION.

It uses only the standard library, so it works on a host whose copy of the project differs or is missing. The question
is a JSON object with the fields of `pipeline.distributed.query.Question`. The answer is one line of JSON on
stdout: the result of `examine`.
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
import time
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
    """
    return {
        "time": time.time(),
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in question["packages"]},
        "commit": _commit(),
        "sources": _digests(question["sources"]),
        "data": {directory: _shards(Path(directory)) for directory in question["data"]},
        "output": "" if question["beacon"] is None else _output(Path(question["beacon"])),
        "interfaces": [name for name in question["interfaces"] if name not in _interfaces()],
        **(try_gpus() if question["gpus"] else {"gpus": 0, "gpu_problem": ""}),
        "cores": len(os.sched_getaffinity(0)),
        "addresses": lines_of("hostname", "-I")[:1],
        "port": "" if question["connect"] is None else _connect(*question["connect"]),
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


def _commit() -> str:
    return next(iter(lines_of("git", "rev-parse", "--short", "HEAD")), "")


def _digests(places: list[str]) -> dict[str, str]:
    """sha256 of each source file by its path in the project."""
    files = [Path(place) for place in places]
    for place in places:
        files += [path for path in Path(place).rglob("*") if path.suffix in (".py", ".json")]
    # An editor's lock is a link that leads nowhere.
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.is_file()}


def _shards(directory: Path) -> dict[str, Any]:
    """The digest of a shard set's manifest, and its files that are missing or have another size."""
    try:
        content = (directory / "manifest.json").read_bytes()
        files = [(os.path.basename(file["name"]), file["bytes"]) for file in json.loads(content)["files"]]
    except (OSError, ValueError, KeyError, TypeError):
        return {"manifest": "none", "damaged": []}
    damaged = [name for name, size in files if _size(directory / name) != size]
    return {"manifest": hashlib.sha256(content).hexdigest(), "damaged": damaged}


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


def _interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


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
print(json.dumps({"gpus": working, "gpu_problem": problem}))
"""


def try_gpus() -> dict[str, Any]:
    """How many GPUs torch can compute on (one matrix product each), and what is wrong with the first other one."""
    listed = gpus_of_driver()
    if not listed and not has_gpu_device():
        return {"gpus": 0, "gpu_problem": ""}
    answer = lines_of(sys.executable, "-c", _TRIAL, seconds=_TORCH_SECONDS)
    if not answer:
        return {"gpus": 0, "gpu_problem": f"torch does not start within {_TORCH_SECONDS} s, or ends with an error"}
    found: dict[str, Any] = json.loads(answer[-1])
    # A run tries its attention kernels in a second process, which this mode refuses.
    modes = lines_of("nvidia-smi", "--query-gpu=compute_mode", "--format=csv,noheader")
    return found | {"exclusive": any("Exclusive" in mode for mode in modes)}


def _connect(address: str, port: int) -> str:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError as error:
        return str(error.strerror or error)
    return ""


def listen(port: int) -> socket.socket | None:
    """Opens the port of the rendezvous as rank 0 will; None if it is taken."""
    try:
        return socket.create_server(("", port), backlog=1024)
    except OSError:
        return None


def main() -> None:
    """Answers the question on the command line. With `listen`, keeps the port open until stdin is closed."""
    question = json.loads(sys.argv[1])
    server = listen(question["listen"]) if question["listen"] else None
    taken = bool(question["listen"]) and server is None
    print(json.dumps(examine(question) | {"taken": taken}), flush=True)
    while server is not None:
        ready, _, _ = select.select([server, sys.stdin], [], [], OPEN_SECONDS)
        if server not in ready:
            return
        server.accept()[0].close()


if __name__ == "__main__":
    main()
