"""The training of the benchmark: its data, its command line, its hosts with torchrun's agents, and what it has done."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks.chaos.rank import STEPS
from benchmarks.shared import texts
from benchmarks.shared.namespaces import SEARCHED, Host, Switch, descendants

HOSTS = ("first", "second", "third")
"""Their ranks have this order. The rendezvous is on the last one."""
PORT = 29400
_TAIL = 16 << 10
LENGTH = 64
"""Tokens of a row."""
AGENT = "torch.distributed.run"
RANK = "benchmarks.chaos.rank"
CONFIG = {
    "train_batch_size": 12,
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "Lamb", "params": {"lr": 0.0001}},
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 1, "reduce_bucket_size": 100000},
}
"""12 rows a step go to 3, 2 or 1 ranks. The learning rate is small: rounding differs with the number of ranks, and a
large one would let these differences grow from step to step."""
MODEL = ("num_hidden_layers=1", "hidden_size=32", "num_attention_heads=4", "intermediate_size=64", "embedding_size=16")
FIRST_STEPS = 200
"""Of the run whose model is trained further, at `FIRST_RATE`: the loss must be low before it can rise."""
FIRST_RATE = 0.005
"""At four times this rate the pooler's tanh saturates, and its gradients are rounding noise."""
SAVE_INTERVAL = 10


class Limits(NamedTuple):
    """How long what is silent is waited for: seconds of `--hang-timeout` and `--host-timeout`, torchrun's
    `--rdzv-conf`, and the steps of the run for each fault: others train while a host comes back."""

    hang: int
    host: int
    rendezvous: str
    steps: int


SHORT = Limits(5, 3, "keep_alive_interval=1,keep_alive_max_attempt=5,last_call_timeout=3,read_timeout=10", 29)
"""An agent counts as dead after 5 s, and a start waits 3 s for more hosts."""
DEFAULT = Limits(60, 30, "keep_alive_interval=5,keep_alive_max_attempt=3,last_call_timeout=30,read_timeout=60", 180)


class Places:
    """The files of the benchmark below the directory `root`.

    Attributes:
        text: made-up text, and the shards of it.
        shards: what is trained on.
        first: the run whose model is trained further.
        run: the run that suffers the faults.
        undisturbed: the run that does not.
        record: see `benchmarks.chaos.rank`.
        logs: what the hosts print.
        limits: of the runs.
    """

    def __init__(self, root: Path, limits: Limits = SHORT) -> None:
        self.root, self.limits = root, limits
        self.text, self.first, self.undisturbed = root / "text", root / "first", root / "undisturbed"
        self.run, self.record, self.logs = root / "run", root / "record", root / "logs"
        self.shards = self.text / f"train-{LENGTH}"


def make_data(places: Places) -> None:
    """Makes shards of made-up text, and the model that is trained further."""
    texts.make_shards(places.text, LENGTH, 60)
    places.record.mkdir()
    words = flags(places, places.first, FIRST_STEPS, rate=FIRST_RATE)
    texts.call("pipeline.pretrain", "--model", "albert-tiny", "--model-args", *MODEL, *words)


def flags(places: Places, output: Path, steps: int, rate: float | None = None) -> list[str]:
    """The command line of a run, without its model. Writes the DeepSpeed JSON.

    Args:
        rate: the learning rate; None for that of `CONFIG`.
    """
    config = dict(CONFIG)
    if rate is not None:
        config["optimizer"] = {"type": "Lamb", "params": {"lr": rate}}
    file = places.root / ("config.json" if rate is None else "config.first.json")
    file.write_text(json.dumps(config), encoding="utf-8")
    words = ["--data", places.shards, "--deepspeed_config", file, "--output", output, "--precision", "fp32"]
    words += ["--steps", steps, "--log-interval", 1 if rate is None else 100, "--save-interval", SAVE_INTERVAL]
    words += ["--hang-timeout", places.limits.hang, "--host-timeout", places.limits.host]
    return [str(word) for word in words]


def command(places: Places, output: Path, steps: int) -> list[str]:
    """The words after `-m` of a rank: the run goes on from the model of the first steps."""
    words = flags(places, output, steps)
    return [RANK, str(places.record), "--init", str(places.first / "export"), *words]


def environment() -> dict[str, str]:
    """Of all processes of a host."""
    own = {"PATH": f"{Path(sys.executable).parent}:{SEARCHED}", "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"}
    own |= {"GLOO_SOCKET_IFNAME": "eth0", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "LOGLEVEL": "INFO"}
    return {**os.environ, **own}


@dataclass
class Training:
    """The run on three hosts, each with an agent that a supervisor starts again when it fails.

    Attributes:
        words: see `command`.
        away: the hosts that do not train.
    """

    places: Places
    words: list[str]
    away: set[str] = field(default_factory=set)
    _switch: Switch = field(init=False)
    _marks: dict[str, int] = field(default_factory=dict)
    _supervisors: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places.logs.mkdir(exist_ok=True)
        folder = self.places.root / "hosts"
        folder.mkdir(exist_ok=True)
        self._switch = Switch(folder)
        for name in HOSTS:
            self.log(name).touch()
        self.mark()
        for name in self.present:
            self.start_host(name)
            self.start_agent(name)

    @property
    def present(self) -> list[str]:
        """The hosts that train, in the order of their ranks."""
        return [name for name in HOSTS if name not in self.away]

    def host(self, name: str) -> Host:
        """The host of that name."""
        return self._switch.hosts[name]

    def log(self, name: str) -> Path:
        """What the agent and the rank of a host print."""
        return self.places.logs / f"{name}.log"

    def start_host(self, name: str) -> None:
        """Switches a host on."""
        self._switch.connect(name, HOSTS.index(name) + 1, f"hostname {name}\nexec sleep infinity")

    def start_agent(self, name: str) -> None:
        """Starts torchrun on a host. It is started again when it fails, as a scheduler does, until the host leaves."""
        self.left(name).unlink(missing_ok=True)
        host = self.host(name)
        store = f"10.64.0.{len(HOSTS)}"
        torchrun = [
            *[sys.executable, "-m", AGENT, "--nnodes", f"1:{len(HOSTS)}", "--nproc-per-node", "1"],
            *["--max-restarts", "1000", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{store}:{PORT}"],
            *["--rdzv-id", "chaos"],
            *["--rdzv-conf", f"{self.places.limits.rendezvous},is_host={int(host.address == store)}"],
            *["--local-addr", host.address, "-m", *self.words],
        ]
        script = 'log=$1; left=$2; shift 2; until "$@" >>"$log" 2>&1 || [ -e "$left" ]; do sleep 1; done'
        self._supervisors[name] = subprocess.Popen(
            host.inside.enter("sh", "-c", script, "sh", self.log(name), self.left(name), *torchrun),
            env=environment(),
            stdin=subprocess.DEVNULL,
        )

    def left(self, name: str) -> Path:
        """The file that says that a host's agent should not be started again."""
        return self.places.root / "hosts" / f"{name}.left"

    def agent(self, name: str) -> psutil.Process:
        """The process of torchrun on a host."""
        return self._processes(name, AGENT)[0]

    def rank(self, name: str) -> psutil.Process:
        """The process of the rank on a host."""
        (found,) = (one for one in self._processes(name, RANK) if AGENT not in one.cmdline())
        return found

    def _processes(self, name: str, word: str) -> list[psutil.Process]:
        """The Python processes of a host that have `word` in their command line; its supervisor has it as well."""
        if name not in self._supervisors:
            return []
        found = descendants(psutil.Process(self._supervisors[name].pid), word)
        return [one for one in found if one.cmdline()[0] == sys.executable]

    def unplug(self, name: str) -> None:
        """Cuts a host's link."""
        self._switch.unplug(self.host(name))

    def bring_back(self, name: str) -> None:
        """Lets a host train again that was cut off, was lost or has left."""
        if name not in self._switch.hosts or self.host(name).inside.outer.poll() is not None:
            self.start_host(name)
        self._switch.plug_in(self.host(name))
        if not self._processes(name, AGENT):
            self.start_agent(name)

    def mark(self) -> None:
        """Passes all that has been printed."""
        self._marks = {name: self.log(name).stat().st_size for name in HOSTS}

    def said(self) -> list[tuple[str, str]]:
        """The lines that were printed since the last `mark`, each after the name of its host."""
        found = []
        for name in HOSTS:
            with self.log(name).open("rb") as file:
                file.seek(self._marks[name])
                found += [(name, line) for line in file.read().decode(errors="replace").splitlines()]
        return found

    def end(self) -> None:
        """Ends all hosts."""
        self._switch.end()


@dataclass(frozen=True)
class Made:
    """A step that the ranks have made.

    Attributes:
        time, started: when it was made, and when its ranks were started, in seconds since the epoch.
        step: its number, from 1.
        ranks: how many there were.
    """

    time: float
    step: int
    ranks: int
    started: float


def steps_made(places: Places) -> list[Made]:
    """The last few hundred steps that were made, in their order."""
    path = places.record / STEPS
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        lines = file.read().decode().splitlines(keepends=True)
    words = [line.split() for line in lines[1:] if line.endswith("\n")]
    return [Made(float(time), int(step), int(ranks), float(start)) for time, step, ranks, start in words]
