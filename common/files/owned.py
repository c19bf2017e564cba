"""Replaces and removes earlier outputs, and never a file that this project did not write.

A directory whose files the project may replace or remove has a marker, `.albert-pretraining.json`. The marker lists
every file that the project wrote there, with the tool, the size and the hash. Only these files are ever removed, and
only if they are unchanged:

    replacing_directory   the whole directory is ours; one that holds anything else is refused (exports, ensembles)
    adding_files          our files stand beside others; a file that is not ours, or has changed, is refused (tables)
    take_workplace        a directory for intermediate results; files are removed by a pattern of their names

`places.open_directory` opens a directory that is ours by its name only, such as a checkpoint.

Two processes may write to one directory at the same moment: each moves its finished files under a lock.
"""

import contextlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from common.errors import UserError
from common.files.atomic import TEMPORARY, fsync_directory, fsync_file, replacing, write_text
from common.files.checksums import file_checksum
from common.files.json_files import Count, check_as, read_object
from common.files.locks import WAIT_SECONDS, beside, holding
from common.files.places import cannot_write, check_directory

MARKER = ".albert-pretraining.json"
FORMAT = 1
MAX_MARKER_BYTES = 16 << 20
_WORKPLACE = "workplace"
_ADDING_LOCK = ".adding.lock"


@dataclass(frozen=True)
class _Entry:
    """One of our files: the tool that wrote it, its size in bytes and the xxh3_128 of its content."""

    tool: str
    bytes: Count
    xxh3_128: str

    @classmethod
    def of(cls, path: Path, tool: str) -> "_Entry":
        return cls(tool, path.stat().st_size, file_checksum(path))

    def describes(self, path: Path) -> bool:
        """Whether `path` still is that file."""
        status = path.lstat()
        return stat.S_ISREG(status.st_mode) and status.st_size == self.bytes and file_checksum(path) == self.xxh3_128


def check_replaceable(directory: Path, tool: str) -> None:
    """Raises UserError unless `tool` may put a new directory in the place of `directory`.

    It may if nothing is there, if the directory is empty, or if `tool` wrote it and no file was added or changed since.
    Missing files do not matter. The directory's parent must be writable.
    """
    directory = Path(os.path.abspath(directory))
    check_directory(directory.parent)
    if not os.path.lexists(directory):
        return
    if directory.is_symlink() or not directory.is_dir():
        kind = "a link" if directory.is_symlink() else "a file"
        raise UserError(f"{directory} is {kind}, and {tool} would put a directory there; choose another place")
    entries = _read_marker(directory)
    if entries is None:
        if any(directory.iterdir()):
            raise _not_marked(directory, tool)
    elif others := _others(directory, _files_below(directory), entries, tool):
        raise UserError(
            f"{directory} holds files that {tool} did not write, or that have changed since: {_shown(others)}; "
            "move the directory away, or choose another place"
        )


def _not_marked(directory: Path, tool: str) -> UserError:
    return UserError(
        f"{directory} is not empty and has no {MARKER}, so {tool} did not write it; "
        "move it away, or choose another place"
    )


@contextlib.contextmanager
def replacing_directory(directory: Path, tool: str) -> Iterator[Path]:
    """Yields an empty directory; on success it is marked as written by `tool`, synced, and takes `directory`'s place.

    The old directory stays until the new one is complete. Then it is renamed, the new one takes its place, and the old
    files are removed. After a kill between the two renames, the old directory is beside its place, as .NAME.*.tmp.

    Raises:
        UserError: see `check_replaceable`; checked before anything is written, and again at the end.
    """
    directory = Path(os.path.abspath(directory))
    check_replaceable(directory, tool)
    old = None
    with _staging(_temporary(directory), directory) as new:
        yield new
        _write_marker(new, _finish(new, tool))
        with holding(beside(directory), directory, WAIT_SECONDS):
            check_replaceable(directory, tool)
            old = _put(new, directory)
        fsync_directory(directory.parent)
    if old is not None:
        for name in files_of(old, tool):
            (old / name).unlink()
        _remove_empty(old)


@contextlib.contextmanager
def _staging(place: Path, output: Path) -> Iterator[Path]:
    """Makes the empty directory `place` for the files of `output`. After the block it is gone, if it was not moved."""
    try:
        place.mkdir(parents=True)
    except OSError as error:
        raise cannot_write(output, error) from None
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)  # made above, under a name that nothing else has


def _finish(place: Path, tool: str) -> dict[str, _Entry]:
    """Syncs the files below `place`, and returns their entries by name."""
    names = _files_below(place)
    for name in names:
        fsync_file(place / name)
    return {name: _Entry.of(place / name, tool) for name in names}


def _put(new: Path, directory: Path) -> Path | None:
    """Moves `new` to `directory`. Returns the new place of the old directory; None if there was none."""
    old = _temporary(directory) if directory.exists() else None
    if old is not None:
        os.rename(directory, old)
    try:
        os.rename(new, directory)
    except OSError:
        if old is not None:
            os.rename(old, directory)
        raise
    return old


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


def files_of(directory: Path, tool: str) -> list[str]:
    """The files, relative to `directory`, that `tool` wrote there and that have not changed since."""
    entries = _read_marker(directory) or {}
    return [name for name in _files_below(directory) if not _others(directory, [name], entries, tool)]


def listed(directory: Path) -> dict[str, str]:
    """The xxh3_128 of each file that the marker of `directory` lists. Raises UserError for a damaged marker."""
    return {name: entry.xxh3_128 for name, entry in (_read_marker(directory) or {}).items()}


def check_addable(directory: Path, names: Iterable[str]) -> None:
    """Raises UserError if a file of one of these names in `directory` was not written by us, or has changed.

    The directory must be writable.

    Args:
        names: relative to `directory`.
    """
    check_directory(directory)
    present = [name for name in names if os.path.lexists(directory / name)]
    if others := _others(directory, present, _read_marker(directory) or {}):
        raise UserError(
            f"{directory} holds files that would be overwritten, and this command did not write them, or they have "
            f"changed since: {_shown(others)}; move them away, or choose another place"
        )


@contextlib.contextmanager
def adding_files(directory: Path, tool: str) -> Iterator[Path]:
    """Yields an empty directory; on success its files are moved into `directory`, where they replace only our own.

    Raises:
        UserError: see `check_addable`; nothing is touched then.
    """
    with _staging(directory / f".{secrets.token_hex(8)}.tmp", directory) as staged:
        yield staged
        written = _finish(staged, tool)
        with holding(directory / _ADDING_LOCK, directory, WAIT_SECONDS):
            check_addable(directory, written)
            # First: new files that a full disk or a kill leaves without an entry would be refused from then on.
            _write_marker(directory, (_read_marker(directory) or {}) | written)
            for name in written:
                (directory / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(staged / name, directory / name)


def take_workplace(directory: Path, tool: str) -> None:
    """Makes `directory` for intermediate results of `tool`; an existing one of ours is used again.

    Raises:
        UserError: it holds files and no marker of this project.
    """
    if is_workplace(directory):
        return
    # After a kill before the marker was complete, only the marker's temporary file is there.
    if os.path.lexists(directory) and (
        not directory.is_dir()
        or directory.is_symlink()
        or any(not path.name.startswith(f".{MARKER}.") for path in directory.iterdir())
    ):
        raise _not_marked(directory, tool)
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / MARKER, json.dumps({"format": FORMAT, _WORKPLACE: tool}) + "\n")


def is_workplace(directory: Path) -> bool:
    """Whether `take_workplace` made `directory`."""
    content = {} if directory.is_symlink() else _read_json(directory / MARKER)
    return content.get("format") == FORMAT and isinstance(content.get(_WORKPLACE), str)


def remove_workplace(directory: Path, own: re.Pattern[str]) -> None:
    """Removes from a workplace the files whose names match `own`, and the directories that are empty then.

    Everything else stays. A directory that is not a workplace is not changed.
    """
    if is_workplace(directory):
        remove_own(directory, own)
        _remove_empty(directory)


def remove_own(directory: Path, own: re.Pattern[str]) -> None:
    """Removes the files below `directory` whose names match `own`, or are temporary ones of such names."""
    for name in _files_below(directory):
        path = directory / name
        if path.name != MARKER and is_own(path, own):
            path.unlink()
    for place in directory.iterdir():
        if place.is_dir() and not place.is_symlink():
            _remove_empty(place)


def is_own(path: Path, own: re.Pattern[str]) -> bool:
    """Whether `path` is a regular file whose name matches `own`, or the temporary file of such a name."""
    temporary = TEMPORARY.fullmatch(path.name)
    name = path.name if temporary is None else temporary[1]
    return own.fullmatch(name) is not None and not path.is_symlink() and path.is_file()


def write_unless_other(path: Path, content: bytes) -> None:
    """Writes `content` to `path`. Raises UserError if `path` exists with other content."""
    if os.path.lexists(path):
        if not path.is_symlink() and path.is_file() and path.read_bytes() == content:
            return
        raise UserError(f"{path} is there already and this job did not write it; move it away and run this again")
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def _files_below(directory: Path) -> list[str]:
    """All files below `directory` except its marker, as relative paths; links count as files."""

    def fail(error: OSError) -> None:
        raise error

    paths = []
    for root, folders, names in os.walk(directory, onerror=fail):
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        paths += [(Path(root) / name).relative_to(directory).as_posix() for name in [*names, *links]]
    return sorted(name for name in paths if name != MARKER)


def _remove_empty(directory: Path) -> None:
    """Removes `directory` and those below it, if there is nothing in them but markers."""
    if all(Path(name).name == MARKER for name in _files_below(directory)):
        for root, _, names in os.walk(directory, topdown=False):
            for name in names:
                (Path(root) / name).unlink()
            os.rmdir(root)


def _others(directory: Path, names: Iterable[str], entries: dict[str, _Entry], tool: str | None = None) -> list[str]:
    """Those of the files `names` that have no entry, or have changed since; with `tool`, also those of other tools."""
    return [
        name
        for name in names
        if name not in entries
        or tool not in (None, entries[name].tool)
        or not entries[name].describes(directory / name)
    ]


def _shown(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _write_marker(directory: Path, entries: dict[str, _Entry]) -> None:
    content = {"format": FORMAT, "files": {name: asdict(entries[name]) for name in sorted(entries)}}
    write_text(directory / MARKER, json.dumps(content, indent=1) + "\n")


def _read_marker(directory: Path) -> dict[str, _Entry] | None:
    """The files that we wrote into `directory`; None without a marker.

    Raises:
        UserError: a file of this name is there that is no marker, and so not ours.
    """
    if not os.path.lexists(directory / MARKER):
        return None
    content = _read_json(directory / MARKER)
    files = content.get("files")
    if content.get("format") == FORMAT and isinstance(files, dict):
        with contextlib.suppress(UserError):
            return check_as(files, dict[str, _Entry], directory / MARKER, "")
    raise UserError(f"{directory / MARKER} is not the list of files that this project writes; move it away")


def _read_json(path: Path) -> dict[str, object]:
    """The JSON object in `path`; {} if there is none, or if `path` is a link."""
    try:
        return {} if path.is_symlink() else read_object(path, "", MAX_MARKER_BYTES)
    except UserError:
        return {}
