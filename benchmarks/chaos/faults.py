"""The faults: how each is made, which line names it, what a person has to do, and the order in which they come."""

import os
import random
import re
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.chaos.rank import flip_of
from benchmarks.chaos.training import HOSTS, Training
from common.files import atomic
from pipeline.checkpoint.retention import find_latest

STORE = HOSTS[-1]
"""The host of the rendezvous. It is never lost: without it no agent can go on until it is back."""
_FILLER = "filler"


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes:
        name: for the table.
        inject: makes it on a host.
        sign: of the line that names it, where {host} stands for the host.
        change: of the number of hosts that train.
        remedy: what a person does then; None for nothing.
        told: the remedy, for the table.
        must_save: whether it is over only once a newer checkpoint is there.
        restarts: whether the ranks have to be started again.
    """

    name: str
    inject: Callable[[Training, str, random.Random], None]
    sign: str
    change: int = 0
    remedy: Callable[[Training], None] | None = None
    told: str = "nothing"
    must_save: bool = False
    restarts: bool = True


def _kill_rank(training: Training, host: str, draw: random.Random) -> None:
    training.rank(host).kill()


def _kill_all(training: Training, host: str, draw: random.Random) -> None:
    ranks = [training.rank(name) for name in training.present]
    for rank in ranks:
        rank.suspend()  # so that none can speak about another one
    for rank in ranks:
        rank.kill()


def _stop_rank(training: Training, host: str, draw: random.Random) -> None:
    training.rank(host).suspend()


def _kill_agent(training: Training, host: str, draw: random.Random) -> None:
    training.agent(host).kill()


def _lose_host(training: Training, host: str, draw: random.Random) -> None:
    training.host(host).inside.end()
    training.away.add(host)


def _cut_link(training: Training, host: str, draw: random.Random) -> None:
    training.unplug(host)
    training.away.add(host)


def _leave(training: Training, host: str, draw: random.Random) -> None:
    training.left(host).touch()
    training.agent(host).send_signal(signal.SIGTERM)
    training.away.add(host)


def _come(training: Training, host: str, draw: random.Random) -> None:
    training.away.discard(host)
    training.bring_back(host)


def _fill_disk(training: Training, host: str, draw: random.Random) -> None:
    with (training.places.disk / _FILLER).open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue


def free_disk(training: Training) -> None:
    """Undoes a full disk."""
    (training.places.disk / _FILLER).unlink(missing_ok=True)


def _flip_shard(training: Training, host: str, draw: random.Random) -> None:
    _kill_all(training, host, draw)
    flip(draw.choice(sorted(training.places.shards.glob("*.arrow"))), draw)


def repair_shards(training: Training) -> None:
    """Undoes a flipped bit in a shard, from the copy."""
    for spare in training.places.spare_shards.glob("*.arrow"):
        shutil.copyfile(spare, training.places.shards / spare.name)


def _flip_checkpoint(training: Training, host: str, draw: random.Random) -> None:
    _kill_all(training, host, draw)
    newest = find_latest(training.places.run / "checkpoints")
    assert newest is not None
    flip(draw.choice(sorted(newest.glob("*.safetensors"))), draw)


def flip(path: Path, draw: random.Random) -> None:
    """Flips one bit of a file."""
    with path.open("r+b") as file:
        place = draw.randrange(os.fstat(file.fileno()).st_size)
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1 << draw.randrange(8)]))


def _flip_weight(training: Training, host: str, draw: random.Random) -> None:
    # Bits of the exponent of a small weight would make it infinite; any of the mantissa is as wrong.
    atomic.write_text(flip_of(training.places.requests, host), str(draw.randrange(23)))


_LOST = r"error: lost rank \d+ on host {host}: "
_REPAIRED = "copied the file from its copy"
KINDS = {
    kind.name: kind
    for kind in (
        Kind("a rank killed", _kill_rank, _LOST),
        Kind("all ranks killed", _kill_all, r"failed \(exitcode: -9\)"),
        Kind("a rank stopped (SIGSTOP)", _stop_rank, r"error: rank \d+ on host {host} hangs: "),
        Kind("an agent killed", _kill_agent, r"the launcher .* has ended, so this run stops"),
        Kind("a host lost", _lose_host, _LOST, -1),
        Kind("a link cut", _cut_link, _LOST, -1),
        Kind("a rank fewer", _leave, r"stopped by SIGTERM and saved", -1),
        Kind("a rank more", _come, r"Detected \d+ new nodes", +1),
        Kind("a full disk", _fill_disk, r"No space left|disk is full", 0, free_disk, "made room", True, False),
        Kind("a flipped bit in a shard", _flip_shard, r"is damaged: the content of", 0, repair_shards, _REPAIRED),
        Kind("a flipped bit in a checkpoint", _flip_checkpoint, r"checkpoint step-\d+ is damaged"),
        Kind("a flipped bit in a rank's weights", _flip_weight, r"holds? wrong weights after step"),
    )
}


@dataclass(frozen=True)
class Fault:
    """A fault to come: its kind, and the host."""

    kind: str
    host: str


def plan(count: int, seed: int, kinds: list[str] | None = None) -> list[Fault]:
    """The faults in their order: random, each kind as often as the others where the hosts allow it.

    At least two hosts train at any time.

    Args:
        kinds: only these, as they come; None for a random order.
    """
    draw = random.Random(seed)
    away: list[str] = []
    faults: list[Fault] = []
    deck: list[str] = list(kinds or ())
    while len(faults) < count:
        possible = [name for name in deck if _is_possible(name, bool(away))]
        if not possible:
            deck += draw.sample([*KINDS, "a rank more", "a rank more"], len(KINDS) + 2)
            continue
        name = possible[0]
        deck.remove(name)
        change = KINDS[name].change
        here = [host for host in HOSTS if host not in away]
        host = away.pop() if change > 0 else draw.choice([one for one in here if change == 0 or one != STORE])
        away += [host] if change < 0 else []
        faults.append(Fault(name, host))
    return faults


def _is_possible(name: str, is_one_away: bool) -> bool:
    change = KINDS[name].change
    return not change or is_one_away == (change > 0)


def matches(kind: Kind, host: str, line: str) -> bool:
    """Whether the line names a fault of that kind on that host."""
    return re.search(kind.sign.replace("{host}", host), line) is not None
