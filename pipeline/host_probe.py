"""What a host is like. `pipeline.preflight` sends this file to every host and runs it there: python -c FILE QUESTION.

So it needs nothing but the standard library, and works where the host's own copy of the project is another or none.
The question is a JSON object, the fields of `Question`; the answer, one line of JSON on stdout, is what `examine`
returns.
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


def examine(question: dict[str, Any]) -> dict[str, Any]:
    """Answers a question about the host, in the directory of the project there.

    Args:
        question: packages: names of distributions; sources: directories and files of the project; data: directories of
            shards; beacon: a file that the asking host has just made beside the run, or null; interfaces: names of
            network interfaces; connect: [address, port], or null.
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
        "gpus": _gpus(),
        "cores": len(os.sched_getaffinity(0)),
        "addresses": _lines("hostname", "-I")[:1],
        "port": "" if question["connect"] is None else _connect(*question["connect"]),
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def _lines(*command: str) -> list[str]:
    """What a command prints; nothing where it is not there or fails."""
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return result.stdout.splitlines() if result.returncode == 0 else []


def _commit() -> str:
    return next(iter(_lines("git", "rev-parse", "--short", "HEAD")), "")


def _digests(places: list[str]) -> dict[str, str]:
    """sha256 of each source file, by its path in the project."""
    files = [Path(place) for place in places if Path(place).is_file()]
    for place in places:
        files += [path for path in Path(place).rglob("*") if path.suffix in (".py", ".json")]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _shards(directory: Path) -> dict[str, Any]:
    """The digest of a shard set's manifest, and which of its files are missing or of another size."""
    try:
        content = (directory / "manifest.json").read_bytes()
        files = [(file["name"], file["bytes"]) for file in json.loads(content)["files"]]
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
    """What is wrong with the folder of the run, or ""."""
    if not beacon.exists():
        return "is another folder there, or none"
    try:
        tempfile.TemporaryFile(dir=beacon.parent).close()
    except OSError as error:
        return f"cannot be written to ({error.strerror})"
    return ""


def _interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def _gpus() -> int:
    return sum(line.startswith("GPU ") for line in _lines("nvidia-smi", "-L"))


def _connect(address: str, port: int) -> str:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError as error:
        return str(error.strerror or error)
    return ""


def listen(port: int) -> socket.socket | None:
    """The port that the ranks will meet on, opened as rank 0 will; None where it is taken."""
    try:
        return socket.create_server(("", port), backlog=1024)
    except OSError:
        return None


def main() -> None:
    """Answers the question of the command line; a host that is to listen does so until stdin is closed."""
    question = json.loads(sys.argv[1])
    server = listen(question["listen"]) if question["listen"] else None
    taken = bool(question["listen"]) and server is None
    print(json.dumps(examine(question) | {"taken": taken}), flush=True)
    while server is not None:
        ready, _, _ = select.select([server, sys.stdin], [], [], 60.0)
        if server not in ready:
            return
        server.accept()[0].close()


if __name__ == "__main__":
    main()
