"""A run's directory, whatever is trained in it: one command at a time, the same settings again."""

import fcntl
import json
import os
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from data_prep import atomic
from data_prep.errors import UserError

if TYPE_CHECKING:
    from pipeline.control import Control

EXIT_STOPPED = 75  # EX_TEMPFAIL of sysexits.h: try again


def check_earlier(output: Path, identity: dict[str, Any]) -> None:
    """Raises UserError if `output` holds a run that would compute other numbers than settings of this `identity`."""
    path = output / "settings.json"
    if not path.exists():
        return
    earlier = read_settings(output)
    identity = json.loads(json.dumps(identity))
    changed = differences({key: earlier.get(key) for key in identity}, identity)
    if changed:
        raise UserError(
            f"{output} holds a run with other settings ({'; '.join(changed)}); "
            "give these again to resume it, or choose another --output"
        )


def write(output: Path, settings: Mapping[str, Any], vocabulary: Path) -> None:
    """Makes a run's directory: its settings, and the vocabulary, so that the run is whole without the data."""
    output.mkdir(parents=True, exist_ok=True)
    atomic.write_text(output / "settings.json", json.dumps(settings, indent=2) + "\n")
    with atomic.replacing(output / "spiece.model") as temporary:
        temporary.write_bytes(vocabulary.read_bytes())


def read_settings(run: Path) -> dict[str, Any]:
    """What `run`'s settings.json says.

    Raises:
        UserError: there is none, or it is damaged.
    """
    path = run / "settings.json"
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{run} holds no run (no settings.json); name the --output of pipeline.pretrain") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read ({error}); restore it, or choose another directory") from None
    if not isinstance(settings, dict):
        raise UserError(f"{path} is not a run's settings; restore it, or choose another directory")
    return settings


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The settings in which two identities differ, each as `name: old -> new`."""
    found = []
    for key in sorted(set(old) | set(new)):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found.append(f"{prefix}{key}: {before} -> {after}")
    return found


def take(output: Path, control: "Control") -> IO[str] | None:
    """Makes `output` and takes it for this command until rank 0 closes what it gets, or ends. Collective.

    Raises:
        UserError: on all ranks, where another process has it.
    """
    lock = _lock(output) if control.rank == 0 else None
    if control.first_problem("taken" if control.rank == 0 and lock is None else ""):
        raise UserError(f"another process is training in {output}; wait for it, or choose another --output")
    return lock


def _lock(output: Path) -> IO[str] | None:
    output.mkdir(parents=True, exist_ok=True)
    file = (output / ".lock").open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError:  # a file system without locks: then nobody can tell
        pass
    file.truncate(0)
    print(socket.gethostname(), os.getpid(), file=file, flush=True)  # whom to send a signal
    return file


def say_stopped(signal_number: int, step: int) -> None:
    """Tells the person who sent a signal what came of it."""
    name = signal.Signals(signal_number).name
    print(f"stopped by {name} and saved at step {step}; the same command goes on from there", flush=True)
