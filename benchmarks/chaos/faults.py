"""The faults: how each is made, which line names it, and the order in which they come."""

import random
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.chaos.training import HOSTS, Training

STORE = HOSTS[-1]
"""The host of the rendezvous. It is never lost: without it no agent can go on until it is back."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes:
        name: for the table.
        inject: makes it on a host.
        sign: of the line that names it, where {host} stands for the host.
        change: of the number of hosts that train.
    """

    name: str
    inject: Callable[[Training, str], None]
    sign: str
    change: int = 0


def _kill_rank(training: Training, host: str) -> None:
    training.rank(host).kill()


def _kill_all(training: Training, host: str) -> None:
    ranks = [training.rank(name) for name in training.present]
    for rank in ranks:
        rank.suspend()  # so that none can speak about another one
    for rank in ranks:
        rank.kill()


def _stop_rank(training: Training, host: str) -> None:
    training.rank(host).suspend()


def _kill_agent(training: Training, host: str) -> None:
    training.agent(host).kill()


def _lose_host(training: Training, host: str) -> None:
    training.host(host).inside.end()
    training.away.add(host)


def _cut_link(training: Training, host: str) -> None:
    training.unplug(host)
    training.away.add(host)


def _leave(training: Training, host: str) -> None:
    training.left(host).touch()
    training.agent(host).send_signal(signal.SIGTERM)
    training.away.add(host)


def _come(training: Training, host: str) -> None:
    training.away.discard(host)
    training.bring_back(host)


_LOST = r"error: lost rank \d+ on host {host}: "
KINDS = {
    kind.name: kind
    for kind in (
        Kind("a rank killed", _kill_rank, _LOST),
        Kind("all ranks killed", _kill_all, r"failed \(exitcode: -9\)"),
        Kind("a rank stopped (SIGSTOP)", _stop_rank, _LOST),
        Kind("an agent killed", _kill_agent, r"the launcher .* has ended, so this run stops"),
        Kind("a host lost", _lose_host, _LOST, -1),
        Kind("a link cut", _cut_link, _LOST, -1),
        Kind("a rank fewer", _leave, r"stopped by SIGTERM and saved", -1),
        Kind("a rank more", _come, r"Detected \d+ new nodes", +1),
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
