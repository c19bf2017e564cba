"""Asks every host of a hostfile, before any of them trains, whether it can: in seconds, and with a line a problem.

    python -m pipeline.preflight --hostfile hostfile --data shards/train --output runs/xxlarge

Run it where `deepspeed` will be run, from the same directory. The hosts are compared with this one: code, Python and
packages, data, folder of the run, clock; and with the hostfile: GPUs. Rank 0's host opens the port that the ranks meet
on, and the others try it. Exit status: 0 ready; 1 there are problems; 2 a mistake in what was asked for.
"""

import json
import os
import re
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from data_prep.command_line import Parser
from data_prep.errors import UserError
from pipeline import host_probe

SOURCES = ("data_prep", "model", "pipeline", "ds_configs", "requirements.txt")
CLOCK_SECONDS = 5.0  # two hosts' logs and files still tell what came first, to a person
_CONNECT_SECONDS, _ANSWER_SECONDS = 10, 60
_NO_FOLDER, _NO_PYTHON, _NO_SSH = 97, 98, 255  # statuses; the last one is ssh's own


@dataclass(frozen=True)
class Question:
    """What is asked of a host; `pipeline.host_probe.examine` says what the fields mean."""

    packages: list[str]
    sources: list[str]
    data: list[str]
    beacon: str | None
    interfaces: list[str]
    connect: tuple[str, int] | None = None
    listen: int = 0


@dataclass(frozen=True)
class Answer:
    """What came back from a host.

    Attributes:
        found: what `pipeline.host_probe` prints; empty where it could not.
        problem: why it could not.
        sent, received: seconds since the epoch, on this host's clock.
    """

    found: dict[str, Any]
    problem: str
    sent: float
    received: float


class Conversation:
    """A question on its way to a host, over ssh, and back."""

    def __init__(self, host: str, environment: Mapping[str, str], question: Question) -> None:
        words = [sys.executable, "-c", Path(host_probe.__file__).read_text(), json.dumps(asdict(question))]
        remote = (
            f"cd {shlex.quote(os.getcwd())} || exit {_NO_FOLDER}; [ -x {shlex.quote(sys.executable)} ] || exit "
            f"{_NO_PYTHON}; exec env {shlex.join([*(f'{k}={v}' for k, v in environment.items()), *words])}"
        )
        command = ["ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SECONDS}", "--", host, remote]
        self._sent = time.time()
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    def answer(self) -> Answer:
        """Waits for the answer. A host that listens goes on listening."""
        assert self._process.stdout is not None
        timer = ThreadPoolExecutor(1)
        line = timer.submit(self._process.stdout.readline)
        try:
            text = line.result(timeout=_ANSWER_SECONDS)
        except TimeoutError:
            self._process.kill()
            return Answer({}, f"does not answer within {_ANSWER_SECONDS} s; see what it is busy with", self._sent, 0.0)
        finally:
            timer.shutdown(wait=False)
        received = time.time()
        try:
            return Answer(json.loads(text), "", self._sent, received)
        except ValueError:
            _, errors = self._process.communicate(timeout=_ANSWER_SECONDS)
            return Answer({}, _why_silent(self._process.returncode, errors), self._sent, received)

    def end(self) -> None:
        """Ends the conversation, and the listening."""
        try:
            self._process.communicate(timeout=_CONNECT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def _why_silent(status: int, errors: str) -> str:
    """Why a host gave no answer, and what to do."""
    last = (errors.strip().splitlines() or ["no message"])[-1]
    if status == _NO_SSH:
        return f"cannot be reached by ssh without a password ({last}); start it, or set up the key"
    if status == _NO_FOLDER:
        return f"has no directory {os.getcwd()}; put the checkout at the same place, or on shared storage"
    if status == _NO_PYTHON:
        return f"has no {sys.executable}; make the environment at the same place, or on shared storage"
    return f"cannot run {sys.executable} ({last}); make the environment there as it is here"


def read_hostfile(path: Path) -> dict[str, int]:
    """Slots by host, in order. Raises UserError where DeepSpeed could not read the file, naming the line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(
            f"--hostfile {path}: {error.strerror}; write a line for each host, as in `node1 slots=8`"
        ) from None
    hosts: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        match = re.match(r"(\S+)\s+slots=(\d+)", line.strip())
        if match is None:
            raise UserError(f"{path}, line {number}: {line!r} is not a host and its slots, as in `node1 slots=8`")
        if match[1] in hosts:
            raise UserError(f"{path}, line {number}: {match[1]} stands there twice; give each host one line")
        hosts[match[1]] = int(match[2])
    if not hosts:
        raise UserError(f"{path} names no host; write a line for each, as in `node1 slots=8`")
    return hosts


def read_environment(home: Path, here: Path) -> dict[str, str]:
    """What DeepSpeed will export on the hosts: `.deepspeed_env` of the home directory, then of this one.

    Raises:
        UserError: a line without "=", at which DeepSpeed would stop.
    """
    found: dict[str, str] = {}
    for path in (home / ".deepspeed_env", here / ".deepspeed_env"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.is_file() else [], 1):
            name, equals, value = line.partition("=")
            if not equals:
                raise UserError(
                    f"{path}, line {number}: {line!r} is no NAME=value; DeepSpeed stops at anything else, also at a "
                    "blank line or a comment"
                )
            found[name.strip()] = value.strip()
    return found


def problems(name: str, slots: int, answer: Answer, here: Answer, environment: Mapping[str, str]) -> list[str]:
    """What keeps a host from training, each as one line that names it and says what to do.

    Args:
        name, slots: of the host, from the hostfile.
        answer: its answer.
        here: this host's own.
        environment: what DeepSpeed will export there.
    """
    if answer.problem:
        return [f"{name} {answer.problem}"]
    there, mine = answer.found, here.found
    lines = _of_code(there, mine) + _of_data(there, mine)
    if there["output"]:
        lines.append(f"--output {there['output']}; it must be one folder that all hosts share")
    early, late = answer.sent - there["time"], there["time"] - answer.received
    if max(early, late) > CLOCK_SECONDS:
        fault = f"{early:.0f} s slow" if early > late else f"{late:.0f} s fast"
        lines.append(f"its clock is {fault}; set it by NTP (chronyc tracking)")
    on_cpu = environment.get("DS_ACCELERATOR") == "cpu"
    units, unit = (there["cores"], "cores") if on_cpu else (there["gpus"], "GPUs")
    if units < slots:
        lines.append(f"has {units} {unit}, and {slots} slots in the hostfile; correct the hostfile, or see nvidia-smi")
    lines += [
        f"has no network interface {interface}, which .deepspeed_env names; see `ip -brief address` there"
        for interface in there["interfaces"]
    ]
    if there["port"]:
        lines.append(f"cannot reach rank 0's host ({there['port']}); open the port, or give another --master_addr")
    if there["taken"]:
        lines.append("the port is taken; end what listens there, or give another --master_port")
    return [f"{name}: {line}" for line in lines]


def _of_code(there: Mapping[str, Any], mine: Mapping[str, Any]) -> list[str]:
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


def _of_launcher(hosts: Sequence[str]) -> list[str]:
    """What is wrong with this host's ssh: without keepalives, DeepSpeed's launcher waits for ever for a lost host."""
    if len(hosts) < 2 or "ServerAliveInterval" in os.environ.get("PDSH_SSH_ARGS_APPEND", ""):
        return []
    result = subprocess.run(["ssh", "-G", "--", hosts[-1]], capture_output=True, text=True, check=False)
    if "serveraliveinterval 0" not in result.stdout.splitlines():
        return []
    return [
        "this host: ssh does not notice that a host is lost; "
        "export PDSH_SSH_ARGS_APPEND='-o ServerAliveInterval=10 -o ServerAliveCountMax=3'"
    ]


def ask_all(
    hosts: Sequence[str], environment: Mapping[str, str], question: Question, address: str, port: int
) -> list[Answer]:
    """Asks the first host, then all others at once while the first listens on `port`, which they try to reach.

    Args:
        address: of rank 0's host; "" for the first that the host says it has, as DeepSpeed takes it.
    """
    first = Conversation(hosts[0], environment, Question(**{**asdict(question), "listen": port}))
    answer = first.answer()
    connect = None
    if answer.found and not answer.found["taken"]:
        connect = (address or " ".join(answer.found["addresses"]).partition(" ")[0] or hosts[0], port)
    asked = Question(**{**asdict(question), "connect": connect})

    def ask(host: str) -> Answer:
        conversation = Conversation(host, environment, asked)
        try:
            return conversation.answer()
        finally:
            conversation.end()

    with ThreadPoolExecutor(64) as pool:
        answers = [answer, *pool.map(ask, hosts[1:])]
    first.end()
    return answers


def ask_here(question: Question) -> Answer:
    """This host's own answer."""
    now = time.time()
    return Answer(host_probe.examine(asdict(question)), "", now, now)


def packages(requirements: Path) -> list[str]:
    """The names in requirements.txt."""
    lines = requirements.read_text(encoding="utf-8").splitlines()
    return [line.partition("==")[0].strip() for line in lines if "==" in line and not line.startswith("#")]


def main(argv: Sequence[str]) -> int:
    """Runs the command line and returns the exit status."""
    parser = Parser(prog="python -m pipeline.preflight", description="Whether the hosts of a hostfile can train.")
    parser.add_argument("--hostfile", type=Path, required=True, metavar="FILE", help="as for deepspeed")
    parser.add_argument("--data", nargs="+", default=[], metavar="DIR[:WEIGHT]", help="as for pipeline.pretrain")
    parser.add_argument("--eval-data", nargs="+", type=Path, default=[], metavar="DIR", help="as for pipeline.pretrain")
    parser.add_argument("--output", type=Path, metavar="RUN", help="as for pipeline.pretrain")
    parser.add_argument("--master_addr", default="", metavar="ADDRESS", help="as for deepspeed")
    parser.add_argument("--master_port", type=int, default=29500, metavar="PORT", help="as for deepspeed (29500)")
    args = parser.parse_all(argv)
    hosts = read_hostfile(args.hostfile)
    environment = read_environment(Path.home(), Path.cwd())
    data = [*map(_directory, args.data), *args.eval_data]
    for directory in data:
        if not (directory / "manifest.json").is_file():
            raise UserError(f"{directory} holds no shards on this host; run the preflight where deepspeed is run")
    interfaces = [environment[name] for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") if name in environment]
    exact = [name for name in dict.fromkeys(interfaces) if re.fullmatch(r"[\w.-]+", name)]  # NCCL takes patterns, too
    beacon = None if args.output is None else _light(args.output)
    began = time.monotonic()
    try:
        question = Question(
            packages=packages(Path("requirements.txt")),
            sources=list(SOURCES),
            data=[str(directory.absolute()) for directory in data],
            beacon=None if beacon is None else str(beacon),
            interfaces=exact,
        )
        here = ask_here(question)
        answers = ask_all(list(hosts), environment, question, args.master_addr, args.master_port)
    finally:
        if beacon is not None:
            beacon.unlink(missing_ok=True)
    lines = _of_launcher(list(hosts))
    for (name, slots), answer in zip(hosts.items(), answers):
        lines += problems(name, slots, answer, here, environment)
    for line in lines:
        print(line)
    verdict = "ready" if not lines else f"{len(lines)} problem{'s' if len(lines) > 1 else ''}"
    print(f"{len(hosts)} hosts, {sum(hosts.values())} slots: {verdict} ({time.monotonic() - began:.1f} s)")
    return 1 if lines else 0


def _directory(argument: str) -> Path:
    """The directory of a `--data` argument, without the weight."""
    return Path(argument) if Path(argument).is_dir() else Path(argument.rpartition(":")[0] or argument)


def _light(output: Path) -> Path:
    """A file beside or in the folder of the run, by which the hosts know it. Raises UserError if none can be made."""
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


def entry() -> int:
    """`main` for a shell: a user's mistake is one line, and status 2."""
    try:
        return main(sys.argv[1:])
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(entry())
