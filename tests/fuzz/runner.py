"""Runs commands in child processes, after one change to what they read or to where they run, and judges their ends.

Allowed are: status 0; or status 2 with one line that begins with "error: ". So is status 1 with such a line of a
training whose loss is no number (the values of a checkpoint may be any), or whose last save finds no room. Nothing
outside of the output may change, and no file of a person inside of it. A command that does not end, or that takes more
than 2 GiB, has a fault.

The memory is the peak of the resident memory of the child. It includes what every module of the project and its
libraries take, because the child is a fork of a process that has them. The kernel lets a child map no more than 8 GiB
beyond that, so that the machine survives a bad case.
"""

import contextlib
import gc
import importlib
import os
import random
import re
import resource
import select
import shutil
import signal
import stat
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import datasets  # noqa: F401  # its import makes a directory for its cache, which must not happen inside of a case

from tests.fuzz import changes
from tests.fuzz.commands import Command

TIME_LIMIT = 900
"""Seconds after which a command counts as one that does not end."""
MEMORY_LIMIT = 2 << 30
"""Bytes."""
_MAPPED_LIMIT = 8 << 30
UMASK = 0o002
"""Of every command. A mode that a program chose instead of the umask differs under it."""
_FAILED = re.compile(
    r"error: the (.*(loss|norm) is (nan|-?inf) after \d+ steps; "
    r"|checkpoint of step \d+ failed: .*No space left on device.*$)"
)
"""The end of a training that has failed."""
_BUSY = re.compile(
    r"error: (another process is writing to \S+ \(process \d+ on host \S+\); wait for it, or choose .*"
    r"|another command has trained in \S+ meanwhile; give this command again)"
)


class Verdict(NamedTuple):
    """What came of a command: `fault` is "" if it did as it should. `printed`: its last lines on stderr."""

    case: str
    fault: str
    seconds: float = 0.0
    memory: int = 0
    status: int = 0
    printed: str = ""


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
    prepare: Callable[[], object] = lambda: None


def try_valid(command: Command, valid: Path, scratch: Path) -> Verdict:
    """Runs `command` on a copy of the inputs `valid` in `scratch`, and warms this process up for its later cases."""
    root = _copy(command, valid, scratch)
    output = root / command.output
    is_new = not output.exists()
    verdict = judge(command, root, scratch, Change("valid"), statuses=(0, 2) if command.refuses else (0,))
    for name in (scratch / "modules").read_text().split():  # later children need not import them
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # otherwise the children's collections would copy every page
    if is_new and output.exists() and not verdict.fault and (modes := _other_modes(output)):
        return verdict._replace(fault=f"modes that are not those of the umask: {modes[:3]}")
    return verdict


def try_read_only(command: Command, valid: Path, scratch: Path) -> Verdict:
    """Runs `command` where nothing can be written. That is one line and status 2 if it writes at all."""
    root = _copy(command, valid, scratch)
    verdict = judge(command, root, scratch, Change("read_only", prepare=lambda: changes.make_read_only(root)))
    is_explained = command.idle or command.refuses or "read-only file system" in verdict.printed.lower()
    if not verdict.fault and (verdict.status != (0 if command.idle else 2) or not is_explained):
        return verdict._replace(fault=f"status {verdict.status} where nothing can be written: {verdict.printed}")
    return verdict


def try_case(command: Command, valid: Path, scratch: Path, seed: int, wanted: str = "") -> Verdict:
    """Runs `command` on a copy of the inputs `valid` in `scratch`, after the change of this seed.

    Args:
        wanted: the name of the change; "" chooses one.
    """
    rng = random.Random(f"{command.name} {seed}")
    root = _copy(command, valid, scratch)
    change = _change(command, root, rng, wanted)
    return judge(command, root, scratch, change._replace(name=f"{seed}: {change.name}"))


def try_two(command: Command, valid: Path, scratch: Path) -> Verdict:
    """Starts `command` twice at the same moment, and then again.

    Either both end with whole results, or one works and the other says in one line who does. Which of these it is
    depends on the moment; that it is one of them does not.
    """
    root = _copy(command, valid, scratch)
    waits, begin = os.pipe()
    said = [scratch / "first", scratch / "second"]
    children = []
    for path in said:
        child = os.fork()
        if not child:
            os.close(begin)

            def run() -> int:
                os.read(waits, 1)  # the end of the pipe: all are there
                return command.run(root)

            _be_child(run, scratch, [Path(os.devnull), path], {})
        children.append(child)
    os.close(waits)
    os.close(begin)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    ends = [path.read_text() for path in said]
    faults = [end for status, end in zip(statuses, ends) if status and not (status == 2 and _is_busy(end))]
    if faults or 0 not in statuses:
        return Verdict(f"{command.name}: two at once", f"statuses {statuses}: {faults or ends}")
    if left := list(root.rglob("*.tmp")):
        return Verdict(f"{command.name}: two at once", f"left behind: {left[:3]}")
    return judge(command, root, scratch, Change("again, after two at once"), statuses=(0,))


def _is_busy(said: str) -> bool:
    return _BUSY.fullmatch((said.splitlines() or [""])[-1]) is not None


def _copy(command: Command, valid: Path, scratch: Path) -> Path:
    """Copies what `command` reads, and a person's directory, and returns their root."""
    root = scratch / "inputs"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for name in sorted({"victim", *command.inputs()}):
        if (valid / name).exists():
            shutil.copytree(valid / name, root / name, symlinks=True)
    return root


def _change(command: Command, root: Path, rng: random.Random, wanted: str) -> Change:
    """Changes one file that `command` reads, its environment, or the place that it writes to."""
    output = root / command.output
    kind = wanted or rng.choices((*changes.AROUND, ""), (4, 3, 3, 5, 3, 82))[0]
    if kind == "variables":
        variables = changes.wrong_variables(rng)
        return Change(f"variables { ({name: value[:20] for name, value in variables.items()}) }", variables=variables)
    if kind == "read_only" and changes.can_mount():
        return Change(kind, prepare=lambda: changes.make_read_only(root))
    if kind == "full" and changes.can_mount():
        free = rng.choice((0, 4 << 10, 64 << 10, 1 << 20))
        return Change(f"full, {free} bytes free", prepare=lambda: changes.make_full(root, free))
    if kind in ("place", "replaced") and not os.path.lexists(output):
        if kind == "replaced":
            persons, prepare = changes.replace_later(output, rng)
            return Change(kind, persons, prepare=prepare)
        persons = changes.take_place(output, rng)
        return Change(f"place: {' '.join(path.name for path in persons)[:100]}", persons)
    files = sorted({path for pattern in command.reads.split() for path in root.glob(pattern) if path.is_file()})
    path = rng.choice(files)
    before = path.read_bytes()
    name = changes.change_file(path, rng, "" if kind in changes.AROUND else kind)
    is_persons = command.keeps and path.is_file() and not path.is_symlink() and path.read_bytes() != before
    return Change(f"{name} of {path.relative_to(root)}", [path] if is_persons else ())


def judge(command: Command, root: Path, scratch: Path, change: Change, statuses: Iterable[int] = (0, 2)) -> Verdict:
    """Runs `command` on the inputs below `root` in a child process, and returns what is wrong with its end.

    Args:
        command: only the output of it may change.
        root: of the inputs.
        scratch: for what the command prints, and its home, current directory and temporary files.
        change: what was done before.
        statuses: those that are right; 2 needs one line.
    """
    home, said = scratch / "home", [scratch / "stdout", scratch / "stderr"]
    for directory in (home, scratch / "tmp"):
        directory.mkdir(exist_ok=True)
    before = _snapshot(root, root / command.output, [home, *change.persons])

    def run() -> int:
        change.prepare()
        return command.run(root)

    child = os.fork()
    if not child:
        _be_child(run, scratch, said, change.variables)
    descriptor = os.pidfd_open(child)
    ready, _, _ = select.select([descriptor], [], [], TIME_LIMIT)
    os.close(descriptor)
    if not ready:
        os.killpg(child, signal.SIGKILL)
    _, wait_status, usage = os.wait4(child, 0)
    status, memory = os.waitstatus_to_exitcode(wait_status), usage.ru_maxrss << 10
    lines = [line for line in said[1].read_text(errors="replace").splitlines() if line.strip()]
    after = _snapshot(root, root / command.output, [home, *change.persons])
    faults = []
    if not ready:
        faults.append(f"took more than {TIME_LIMIT} s")
    elif status < 0:
        faults.append(f"ended by {signal.Signals(-status).name}: {lines[-3:]}")
    elif status == 2 and [line for line in lines if line.startswith("error: ")] != (lines[-1:] or [""]):
        faults.append(f"status 2 with {len(lines)} lines: {lines[:3]}")
    elif status not in statuses and not (status == 1 and lines and _FAILED.match(lines[-1])):
        faults.append(f"status {status}: " + "\n".join(lines[-40:]))
    if memory > MEMORY_LIMIT:
        faults.append(f"took {memory / 2**30:.1f} GiB")
    if changed := sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)):
        faults.append(f"changed outside of the output: {changed[:3]}")
    seconds, printed = usage.ru_utime + usage.ru_stime, "\n".join(lines[-3:])
    return Verdict(f"{command.name} {change.name}", "; ".join(faults), seconds, memory, status, printed)


def _be_child(run: Callable[[], int], scratch: Path, said: list[Path], variables: Mapping[str, str]) -> NoReturn:
    """What the child does; it never returns."""
    status: object = 1
    loaded = set(sys.modules)
    try:
        os.setsid()
        os.chdir(scratch / "home")
        for number, path in enumerate(said, 1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        places = {"HOME": scratch / "home", "TMPDIR": scratch / "tmp", "MPLCONFIGDIR": scratch / "tmp"}
        os.environ.update({**{name: str(path) for name, path in places.items()}, **variables})
        os.umask(UMASK)
        limit = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE") + _MAPPED_LIMIT
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        status = run()
    except SystemExit as error:
        status = error.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        (scratch / "modules").write_text("\n".join(sys.modules.keys() - loaded))
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)


def _snapshot(root: Path, output: Path, others: Iterable[Path]) -> dict[str, object]:
    """Every file and directory below `root` but not below `output`, and other files and directories, by content."""
    found = {str(path): _content_of(path) for path in others}
    for top in (root, *others):
        for directory, folders, names in os.walk(top):
            folders[:] = [name for name in folders if Path(directory, name) != output]
            paths = (Path(directory, name) for name in [*names, *folders])
            found |= {str(path): _content_of(path) for path in paths if path != output}
    return found


def _content_of(path: Path) -> object:
    """The bytes of a file, the target of a link, and the kind of anything else; None for nothing."""
    if path.is_symlink():
        return os.readlink(path)
    if path.is_file():
        status = path.stat()
        return path.read_bytes() if status.st_size < 1 << 30 else (status.st_size, status.st_mtime_ns)
    return path.lstat().st_mode if path.exists() else None


def _other_modes(output: Path) -> list[str]:
    """Each file and directory at and below `output` whose mode is not that of the umask, with its mode."""
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in [output, *sorted(output.rglob("*"))]}
    return [
        f"{path.name} has mode {mode:o}"
        for path, mode in modes.items()
        if mode != (0o777 if path.is_dir() else 0o666) & ~UMASK
    ]
