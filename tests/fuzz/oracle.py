"""Runs one command in a child process on damaged files, and judges what happened.

Allowed are: status 0; or status 2 with one line that begins with "error: ". So is status 1 of a training whose loss is
no number: the values of a checkpoint may be any. Nothing outside of the output may change, and no file of a person
inside of it. A command that does not end, or that takes more than 2 GiB, has a fault.

The memory is the peak of the resident memory of the child. It includes what every module of the project and its
libraries take, because the child is a fork of a process that has them. The kernel lets a child map no more than 8 GiB
beyond that, so that the machine survives a bad case.
"""

import os
import re
import resource
import select
import signal
import stat
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import datasets  # noqa: F401  # its import makes a directory for its cache, which must not happen inside of a case

TIME_LIMIT = 300
"""Seconds after which a command counts as one that does not end."""
MEMORY_LIMIT = 2 << 30
"""Bytes."""
_MAPPED_LIMIT = 8 << 30
UMASK = 0o002
"""Of every command. A mode that a program chose instead of the umask differs under it."""
_NO_NUMBER = re.compile(r"error: the .*(loss|norm) is (nan|-?inf) after \d+ steps; ")


@dataclass(frozen=True)
class Place:
    """Where a command runs.

    Attributes:
        root: directory of all inputs.
        output: the only place below `root` that may change.
        scratch: for what the command prints, and its home, current directory and temporary files.
        persons: files in `output` that a person has put there.
    """

    root: Path
    output: Path
    scratch: Path
    persons: Iterable[Path] = ()


@dataclass(frozen=True)
class Verdict:
    """What came of a command: `fault` is "" if it did as it should."""

    fault: str
    seconds: float = 0.0
    memory: int = 0
    status: int = 0
    printed: str = field(default="", repr=False)


def judge(
    work: Callable[[], int | None], place: Place, variables: Mapping[str, str] | None = None, refusal: bool = True
) -> Verdict:
    """Calls `work` in a child process and returns what is wrong with its end.

    Args:
        variables: added to the environment.
        refusal: whether status 2 with one line is right as well as status 0.
    """
    home = place.scratch / "home"
    for directory in (home, place.scratch / "tmp"):
        directory.mkdir(exist_ok=True)
    before = snapshot(place) | {str(path): content_of(path) for path in home.rglob("*")}
    said = [place.scratch / "stdout", place.scratch / "stderr"]
    child = os.fork()
    if not child:
        _be_child(work, place, said, variables or {})
    status, usage, ended = _wait(child)
    lines = [line for line in said[1].read_text(errors="replace").splitlines() if line.strip()]
    faults = []
    if not ended:
        faults.append(f"took more than {TIME_LIMIT} s")
    elif status < 0:
        faults.append(f"ended by {signal.Signals(-status).name}: {lines[-3:]}")
    elif status == 2 and [line for line in lines if line.startswith("error: ")] != lines[-1:]:
        faults.append(f"status 2 with {len(lines)} lines: {lines[:3]}")
    elif status == 1 and lines and _NO_NUMBER.match(lines[-1]):
        pass
    elif status not in ((0, 2) if refusal else (0,)):
        faults.append(f"status {status}: " + "\n".join(lines[-40:]))
    memory = usage.ru_maxrss << 10
    if memory > MEMORY_LIMIT:
        faults.append(f"took {memory / 2**30:.1f} GiB")
    after = snapshot(place) | {str(path): content_of(path) for path in home.rglob("*")}
    if changed := sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)):
        faults.append(f"changed outside of the output: {changed[:3]}")
    printed = "\n".join(lines[-3:])
    return Verdict("; ".join(faults), usage.ru_utime + usage.ru_stime, memory, status, printed)


def _wait(child: int) -> tuple[int, resource.struct_rusage, bool]:
    """Waits for a child; its status, negative for a signal, its resources, and whether it ended in time."""
    descriptor = os.pidfd_open(child)
    ready, _, _ = select.select([descriptor], [], [], TIME_LIMIT)
    os.close(descriptor)
    if not ready:
        os.killpg(child, signal.SIGKILL)
    _, wait_status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(wait_status), usage, bool(ready)


def imported(scratch: Path) -> list[str]:
    """The modules that the last command has imported beyond those of this process."""
    found = scratch / "modules"
    return found.read_text().splitlines() if found.exists() else []


def _be_child(work: Callable[[], int | None], place: Place, said: list[Path], variables: Mapping[str, str]) -> None:
    """What the child does; it never returns."""
    status: int | None = 1
    (place.scratch / "modules").unlink(missing_ok=True)
    try:
        os.setsid()
        os.chdir(place.scratch / "home")
        for number, path in enumerate(said, 1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        os.environ.update({"HOME": str(place.scratch / "home"), "TMPDIR": str(place.scratch / "tmp"), **variables})
        os.umask(UMASK)
        limit = _mapped() + _MAPPED_LIMIT
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        loaded = set(sys.modules)
        status = work() or 0
        (place.scratch / "modules").write_text("\n".join(sys.modules.keys() - loaded))
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if status is not None else 0)


def _mapped() -> int:
    """Bytes that this process has mapped."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")


def snapshot(place: Place) -> dict[str, object]:
    """Every file and directory below the root but not below the output, and a person's files, with their content."""
    found: dict[str, object] = {str(path): content_of(path) for path in place.persons}
    for directory, folders, names in os.walk(place.root):
        folders[:] = [name for name in folders if Path(directory, name) != place.output]
        for name in [*names, *folders]:
            path = Path(directory, name)
            if path != place.output:
                found[str(path)] = content_of(path)
    return found


def other_modes(output: Path) -> list[str]:
    """Each file and directory at and below `output` whose mode is not that of the umask, with its mode."""
    found = []
    for path in [output, *sorted(output.rglob("*"))]:
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode != (0o777 if path.is_dir() else 0o666) & ~UMASK:
            found.append(f"{path.name} has mode {mode:o}")
    return found


def content_of(path: Path) -> object:
    """The bytes of a file, the target of a link, and the kind of anything else; None for nothing."""
    if path.is_symlink():
        return os.readlink(path)
    if path.is_file():
        return path.read_bytes()
    return path.lstat().st_mode if path.exists() else None
