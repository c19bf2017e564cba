"""Reads what DeepSpeed's launcher reads, the hostfile and `.deepspeed_env`, and examines the hosts over ssh.

Each host runs `pipeline.distributed.probe` and returns its answer.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files.json_files import read_text
from pipeline.distributed import probe

MAX_BYTES = 16 << 20
MAX_SLOTS = 1024
_CONNECT_SECONDS, _ANSWER_SECONDS = 10, 120
_NO_FOLDER, _NO_PYTHON, _NO_SSH = 97, 98, 255  # exit statuses; the last one is ssh's own


class HostQuery:
    """A question to one host: the probe, started over ssh in the project's directory.

    Args:
        environment: variables of the probe.
        question: as `pipeline.distributed.probe.examine` takes it; `listen` is a port that the host opens until `end`.
    """

    def __init__(self, host: str, environment: Mapping[str, str], question: Mapping[str, Any]) -> None:
        words = [sys.executable, "-c", Path(probe.__file__).read_text(), json.dumps({"listen": 0, **question})]
        remote = (
            f"cd {shlex.quote(os.getcwd())} || exit {_NO_FOLDER}; [ -x {shlex.quote(sys.executable)} ] || exit "
            f"{_NO_PYTHON}; exec env {shlex.join([*(f'{k}={v}' for k, v in environment.items()), *words])}"
        )
        command = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SECONDS}", "--", host, remote]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace")

    def answer(self) -> dict[str, Any]:
        """Waits for what `examine` found; only `problems` if nothing came. A listening host keeps its port open."""
        assert self._process.stdout is not None
        timer = threading.Timer(_ANSWER_SECONDS, self._process.kill)
        timer.start()
        # The shell of a host may greet first, in any bytes.
        line = next((line for line in self._process.stdout if line.startswith('{"facts": ')), "")
        timer.cancel()
        if not line:
            _, errors = self._process.communicate()
            return {"problems": [_why_silent(self._process.returncode, errors)]}
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> None:
        """Ends the query and closes the port of a listening host."""
        try:
            self._process.communicate(timeout=_CONNECT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def _why_silent(status: int, errors: str) -> str:
    """Why a host gave no answer, and the remedy."""
    last = (errors.strip().splitlines() or ["no message"])[-1]
    if status < 0:
        return f"does not answer within {_ANSWER_SECONDS} s; check its load"
    if status == _NO_SSH:
        return f"cannot be reached by ssh without a password ({last}); start it, or set up the key"
    if status == _NO_FOLDER:
        return f"has no directory {os.getcwd()}; put the checkout at the same place, or on shared storage"
    if status == _NO_PYTHON:
        return f"has no {sys.executable}; make the environment at the same place, or on shared storage"
    return f"cannot run {sys.executable} ({last}); make the environment there as it is here"


def ask_all(
    hosts: Sequence[str], environment: Mapping[str, str], question: Mapping[str, Any], address: str, port: int
) -> list[dict[str, Any]]:
    """Asks the first host, then all others at once. The first listens on `port`, and the others connect to it.

    Args:
        address: of rank 0's host; "" for the first address of the host, which DeepSpeed uses.
    """
    first = HostQuery(hosts[0], environment, {**question, "listen": port})
    answer = first.answer()
    connect = (address or answer["address"] or hosts[0], port) if "facts" in answer else None

    def ask(host: str) -> dict[str, Any]:
        query = HostQuery(host, environment, {**question, "connect": connect})
        try:
            return query.answer()
        finally:
            query.end()

    with ThreadPoolExecutor(64) as pool:
        answers = [answer, *pool.map(ask, hosts[1:])]
    first.end()
    return answers


def read_hostfile(path: Path) -> dict[str, int]:
    """Slots by host, in the order of the file. Raises UserError with the first line that DeepSpeed cannot read."""
    try:
        lines = read_text(path, "write a line for each host, as in `node1 slots=8`", MAX_BYTES).splitlines()
    except UserError as error:
        raise UserError(f"--hostfile {error}") from None
    hosts: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        match = re.match(r"(\S+)\s+slots=([0-9]+)", line.strip())
        if match is None or not match[1].isprintable() or not 1 <= int(match[2][:10]) <= MAX_SLOTS:
            raise UserError(
                f"{path}, line {number}: {line[:80]!r} is not a host and its slots, as in `node1 slots=8`; "
                f"give each host a printable name and 1 to {MAX_SLOTS} slots"
            )
        if match[1] in hosts:
            raise UserError(f"{path}, line {number}: {match[1]} is listed twice; give each host one line")
        hosts[match[1]] = int(match[2])
    if not hosts:
        raise UserError(f"{path} names no host; write a line for each, as in `node1 slots=8`")
    return hosts


def read_environment(home: Path, here: Path) -> dict[str, str]:
    """The variables that DeepSpeed will export on the hosts, from `.deepspeed_env` in `home`, then in `here`.

    Raises:
        UserError: a line without "=", which DeepSpeed does not accept.
    """
    found: dict[str, str] = {}
    for path in (home / ".deepspeed_env", here / ".deepspeed_env"):
        text = read_text(path, "correct it", MAX_BYTES) if path.is_file() else ""
        for number, line in enumerate(text.splitlines(), 1):
            name, equals, value = line.partition("=")
            if not equals or not line.isprintable():
                raise UserError(
                    f"{path}, line {number}: {line!r} is not NAME=value; DeepSpeed accepts nothing else, not even a "
                    "blank line or a comment"
                )
            found[name.strip()] = value.strip()
    return found
