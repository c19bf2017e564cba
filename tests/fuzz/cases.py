"""Cases: a command, and what is done to one of its files or around it, all from one seed."""

import contextlib
import gc
import importlib
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tests.fuzz import surroundings
from tests.fuzz.commands import COMMANDS, Command
from tests.fuzz.mutations import mutate
from tests.fuzz.oracle import Place, Verdict, imported, judge, other_modes

SURROUNDINGS = ("variables", "read_only", "place", "full", "replaced", "")
"""What is done around a command; "" changes one of its files."""
ROUNDS = 5
"""A slow command is in one round of so many."""


class Result(NamedTuple):
    """What came of one case."""

    case: str
    verdict: Verdict


class Change(NamedTuple):
    """What was done.

    Attributes:
        name: for messages.
        persons: files that a person has put into the output.
        variables: for the environment.
        prepare: called in the process of the command before it.
    """

    name: str
    persons: Sequence[Path] = ()
    variables: Mapping[str, str] = {}
    prepare: Callable[[], None] = lambda: None


def change(command: Command, root: Path, rng: random.Random, wanted: str = "") -> Change:
    """Changes one file that `command` reads, its environment, or the place that it writes to.

    Args:
        wanted: the name of what to do; "" chooses.
    """
    output = root / command.output
    kind = wanted or rng.choices(SURROUNDINGS, (4, 3, 5, 3, 3, 82))[0]
    if kind == "variables":
        variables = surroundings.wrong_variables(rng)
        shown = {name: value[:20] for name, value in variables.items()}
        return Change(f"variables {shown}", variables=variables)
    if kind == "read_only" and surroundings.can_mount():
        return Change(kind, prepare=lambda: surroundings.make_read_only(root))
    if kind == "full" and surroundings.can_mount():
        free = rng.choice((0, 4 << 10, 64 << 10, 1 << 20))
        return Change(f"full, {free} bytes free", prepare=lambda: surroundings.make_full(root, free))
    if kind == "replaced" and not os.path.lexists(output):
        moment, aside, theirs = rng.choice((0.0, 0.01, 0.1, 0.5)), root.with_name("aside"), root.with_name("theirs")
        for place in (aside, theirs):
            shutil.rmtree(place, ignore_errors=True)
        theirs.mkdir()

        def prepare() -> None:
            surroundings.replace_during_the_run(output, theirs, aside, moment)

        return Change(f"replaced after {moment} s", surroundings.occupy(theirs, rng), prepare=prepare)
    if kind == "place" and not os.path.lexists(output):
        place = rng.choice(surroundings.PLACES)
        persons = place(output, rng)
        names = [path.name for path in persons]
        return Change(f"place: {place.__name__} {' '.join(names)[:100]}", persons=persons)
    there = sorted(path for pattern in command.reads for path in root.glob(pattern) if path.is_file())
    path = rng.choice(there)
    done = mutate(path, rng, "" if kind in SURROUNDINGS else kind)
    return Change(f"{done} of {path.relative_to(root)}")


def try_case(command: Command, valid: Path, scratch: Path, seed: int, wanted: str = "") -> Result:
    """Runs `command` on a copy of the inputs `valid` in `scratch`, after one change.

    Args:
        wanted: see `change`.
    """
    rng = random.Random(f"{command.name} {seed}")
    root = _copied(command, valid, scratch)
    done = change(command, root, rng, wanted)

    def run() -> int | None:
        done.prepare()
        return command.run(command.arguments(root))

    place = Place(root, root / command.output, scratch, done.persons)
    return Result(f"{command.name} {seed}: {done.name}", judge(run, place, done.variables))


def try_valid(command: Command, valid: Path, scratch: Path) -> Verdict:
    """Runs `command` on an unchanged copy of the inputs."""
    root = _copied(command, valid, scratch)
    place = Place(root, root / command.output, scratch)
    is_new = not place.output.exists()
    verdict = judge(lambda: command.run(command.arguments(root)), place, refusal=command.refuses)
    if is_new and place.output.exists() and not verdict.fault and (modes := other_modes(place.output)):
        return replace(verdict, fault=f"modes that are not those of the umask: {modes[:3]}")
    return verdict


def _copied(command: Command, valid: Path, scratch: Path) -> Path:
    """Copies what `command` reads, and a person's directory, and returns their root."""
    root = scratch / "inputs"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for name in sorted({"victim", *command.inputs()}):
        if (valid / name).exists():
            shutil.copytree(valid / name, root / name, symlinks=True)
    return root


def try_many(
    commands: Sequence[Command], valid: Path, scratch: Path, cases: range, seed: int, wanted: str = ""
) -> Iterator[Result]:
    """Runs the cases of these numbers: round after round of all commands. Slow ones are in some rounds only."""
    quick = [command for command in commands if not command.slow]
    turns = [command for number in range(ROUNDS) for command in (quick if number and quick else commands)]
    for number in cases:
        command = turns[number % len(turns)]
        yield try_case(command, valid, scratch, seed * 1_000_000 + number, wanted)


def warm_up(scratch: Path) -> None:
    """Imports what the last command imported, so that later children need not."""
    for name in imported(scratch):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # otherwise the children's collections would copy every page


def find(names: Sequence[str]) -> list[Command]:
    """The commands of these names; all of them without names."""
    return [command for command in COMMANDS if not names or command.name in names]
