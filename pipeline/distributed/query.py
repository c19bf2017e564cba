"""Reads what DeepSpeed's launcher reads, the hostfile and `.deepspeed_env`, and examines the hosts over ssh.

Each host runs `pipeline.distributed.probe` and returns its answer.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.files.json_files import read_text
from pipeline.distributed import probe

MAX_BYTES = 16 << 20
MAX_SLOTS = 1024

_CONNECT_SECONDS, _ANSWER_SECONDS = 10, 120
_NO_FOLDER, _NO_PYTHON, _NO_SSH = 97, 98, 255  # exit statuses; the last one is ssh's own


@dataclass(frozen=True)
class Question:
    """The arguments of `pipeline.distributed.probe.examine`, which describes the fields.

    Attributes:
        listen: a port that the host opens until the query ends; 0 for none.
    """

    packages: list[str]
    sources: list[str]
    data: list[str]
    beacon: str | None
    interfaces: list[str]
    gpus: bool
    connect: tuple[str, int] | None = None
    listen: int = 0


@dataclass(frozen=True)
class Answer:
    """The answer of a host.

    Attributes:
        found: the result of `pipeline.distributed.probe`; empty if there is none.
        problem: why there is none.
        sent, received: when the question was sent and the answer came, in seconds since the epoch of this host's clock.
    """

    found: dict[str, Any]
    problem: str
    sent: float
    received: float


class HostQuery:
    """A question to one host: the probe, started over ssh in the project's directory.

    Args:
        environment: variables of the probe.
    """

    def __init__(self, host: str, environment: Mapping[str, str], question: Question) -> None:
        words = [sys.executable, "-c", Path(probe.__file__).read_text(), json.dumps(asdict(question))]
        remote = (
            f"cd {shlex.quote(os.getcwd())} || exit {_NO_FOLDER}; [ -x {shlex.quote(sys.executable)} ] || exit "
            f"{_NO_PYTHON}; exec env {shlex.join([*(f'{k}={v}' for k, v in environment.items()), *words])}"
        )
        command = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SECONDS}", "--", host, remote]
        self._sent = time.time()
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def answer(self) -> Answer:
        """Waits for the answer. A listening host keeps its port open."""
        assert self._process.stdout is not None
        timer = ThreadPoolExecutor(1)
        line = timer.submit(_first_object, self._process.stdout)
        try:
            text = line.result(timeout=_ANSWER_SECONDS)
        except TimeoutError:
            self._process.kill()
            return Answer({}, f"does not answer within {_ANSWER_SECONDS} s; check its load", self._sent, 0.0)
        finally:
            timer.shutdown(wait=False)
        received = time.time()
        try:
            return Answer(json.loads(text), "", self._sent, received)
        except ValueError:
            _, errors = self._process.communicate(timeout=_ANSWER_SECONDS)
            return Answer({}, _why_silent(self._process.returncode, errors), self._sent, received)

    def end(self) -> None:
        """Ends the query and closes the port of a listening host."""
        try:
            self._process.communicate(timeout=_CONNECT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def _first_object(lines: Iterable[str]) -> str:
    """The first line that begins an object of JSON; "" without one: the shell of a host may greet first."""
    return next((line for line in lines if line.startswith("{")), "")


def _why_silent(status: int, errors: str) -> str:
    """Why a host gave no answer, and the remedy."""
    last = (errors.strip().splitlines() or ["no message"])[-1]
    if status == _NO_SSH:
        return f"cannot be reached by ssh without a password ({last}); start it, or set up the key"
    if status == _NO_FOLDER:
        return f"has no directory {os.getcwd()}; put the checkout at the same place, or on shared storage"
    if status == _NO_PYTHON:
        return f"has no {sys.executable}; make the environment at the same place, or on shared storage"
    return f"cannot run {sys.executable} ({last}); make the environment there as it is here"


def ask_all(
    hosts: Sequence[str], environment: Mapping[str, str], question: Question, address: str, port: int
) -> list[Answer]:
    """Asks the first host, then all others at once. The first listens on `port`, and the others connect to it.

    Args:
        address: of rank 0's host; "" for the first address of the host, which DeepSpeed uses.
    """
    first = HostQuery(hosts[0], environment, Question(**{**asdict(question), "listen": port}))
    answer = first.answer()
    connect = None
    if answer.found and not answer.found["taken"]:
        first_address = " ".join(answer.found["addresses"]).partition(" ")[0]
        connect = (address or first_address or hosts[0], port)
    asked = Question(**{**asdict(question), "connect": connect})

    def ask(host: str) -> Answer:
        query = HostQuery(host, environment, asked)
        try:
            return query.answer()
        finally:
            query.end()

    with ThreadPoolExecutor(64) as pool:
        answers = [answer, *pool.map(ask, hosts[1:])]
    first.end()
    return answers


def ask_this_machine(question: Question, port: int) -> Answer:
    """This machine's own answer, its GPUs and the port of the rendezvous included."""
    now = time.time()
    server = probe.listen(port)
    if server is not None:
        server.close()
    return Answer(probe.examine(asdict(question)) | {"taken": server is None}, "", now, time.time())


def ask_here(question: Question) -> Answer:
    """This host's own answer, without ssh. Its GPUs are not tried: it may be a node without any."""
    now = time.time()
    return Answer(probe.examine(asdict(question) | {"gpus": False}), "", now, now)


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
