"""Records which work units of a job are finished, so that a killed job can continue."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from common.errors import UserError
from common.files import owned
from common.files.atomic import TEMPORARY, write_text
from common.files.checksums import FileEntry, file_checksum
from common.files.json_files import Count, read_as, read_object
from common.files.locks import LOCK
from common.files.places import FULL, is_plain_name


@dataclass(frozen=True, kw_only=True)
class UnitRecord:
    """The result of one work unit. Each job has a subclass with what it adds up of its units.

    Attributes:
        documents: documents in the unit, for the progress line.
        files: files that the unit wrote into the output.
    """

    documents: Count = 0
    files: Sequence[FileEntry]


Record = TypeVar("Record", bound=UnitRecord)

RECORD_FILE = re.compile(r"options\.json|\d{6,}\.json")
UNIT_FILE = re.compile(
    r"(?:train|held_out|shard)-\d{5,}\.(?:parquet|arrow)|\d{6,}(?:\.(?:keys|values|sizes))?\.(?:npy|txt)"
)
"""The names of the files that units of any job leave."""
WORK_FILE = re.compile(f"{RECORD_FILE.pattern}|{UNIT_FILE.pattern}")
LAST_FILE = re.compile(r"documents\.json|manifest\.json|README\.md|spiece\.model|tokenizer\.json|duplicates\.jsonl")
"""The names of what a job writes after its last unit; only their temporary files may be removed."""
_TOOL = "data_prep"


def discard_work(directory: Path) -> None:
    """Deletes the records and intermediate results in `directory`, and no other files."""
    owned.remove_workplace(directory, WORK_FILE)


def describe_differences(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Describes the options that differ: "seed is 0 there, 1 was asked for"."""
    return "; ".join(
        f"{name} is {recorded.get(name)!r} there, {wanted.get(name)!r} was asked for"
        for name in dict.fromkeys([*wanted, *recorded])
        if recorded.get(name) != wanted.get(name)
    )


class Ledger(Generic[Record]):
    """The records of one job, in the hidden directory `output/.units` until the job is complete.

    A unit is finished if its record exists, and the files that the record names exist in `output` with the recorded
    sizes. Records are written after the files, both atomically. A record that cannot be read, or does not fit `kind`,
    does not count: its unit is done again.

    Args:
        output: of the job.
        kind: dataclass of the records.
        content: whether a file must also have the content that its record says. It is for files that only this job
            reads; the others are in a manifest, and `verify` compares them.
    """

    def __init__(self, output: Path, kind: type[Record], content: bool = False) -> None:
        self.output, self._kind, self._content = output, kind, content
        self.directory = output / ".units"
        self._own_names = (".units", LOCK)

    def begin(self, options: Mapping[str, Any], *, discard_others: bool = False) -> None:
        """Creates the ledger, or continues an unfinished one. For one rank only.

        A run that has not finished any unit is replaced by one with other options, because nothing is lost.

        Args:
            options: everything that decides what the job writes, as JSON.
            discard_others: an unfinished run with other options is deleted; for directories that no user named.

        Raises:
            UserError: `output` cannot be written, holds something else, or an unfinished run with other options.
        """
        recorded_file = self.directory / "options.json"
        wanted = json.loads(json.dumps(options))
        try:
            if recorded_file.exists():
                recorded = _read_options(recorded_file)
                if not owned.is_workplace(self.directory):
                    owned.take_workplace(self.directory, _TOOL)  # raises: it is not ours
                if recorded != wanted and (discard_others or self._is_untouched()):
                    owned.remove_own(self.directory, RECORD_FILE)
                    owned.remove_own(self.output, UNIT_FILE)
                elif recorded != wanted:
                    raise UserError(
                        f"{self.output} holds an unfinished run of other options "
                        f"({describe_differences(recorded, wanted)}); "
                        f"use the same options to finish it, or another --out, or delete that directory"
                    )
            elif discard_others and self.output.is_dir():
                owned.remove_own(self.output, UNIT_FILE)  # left by a start that was killed while it discarded them
            elif self.output.is_dir() and any(path.name not in self._own_names for path in self.output.iterdir()):
                raise UserError(
                    f"{self.output} is not empty and holds no run to continue; use another --out or empty it"
                )
            owned.take_workplace(self.directory, _TOOL)
            for leftover in (*self.output.glob(".*.tmp"), *self.directory.glob(".*.tmp")):
                if _is_leftover(leftover):
                    leftover.unlink()  # written by a process that was killed
            if not recorded_file.exists():
                write_text(recorded_file, json.dumps(options))
        except OSError as error:
            if error.errno in FULL:
                raise  # the job says that in its own words
            raise UserError(f"cannot write to {self.output}: {error.strerror}; choose another --out") from error

    def finished(self, index: int) -> Record | None:
        """Returns the record of unit `index`; None if the unit must be done, or done again."""
        try:
            record = read_as(self._path(index), self._kind, "", extra="ignore")
        except UserError:
            return None
        return record if all(map(self._is_there, record.files)) else None

    def _is_there(self, file: FileEntry) -> bool:
        """Whether a file of a record is in `output`. Links, and names that are paths, do not count."""
        path = self.output / (file.name if is_plain_name(file.name) else ".")
        if path.is_symlink() or not path.is_file() or path.stat().st_size != file.bytes:
            return False
        return not self._content or file_checksum(path) == file.xxh3_128

    def write(self, index: int, record: Record) -> None:
        """Records unit `index` as done."""
        write_text(self._path(index), json.dumps(asdict(record)))

    def remove(self) -> None:
        """Forgets the records: the job is complete and its manifest written."""
        owned.remove_workplace(self.directory, RECORD_FILE)

    def discard_files(self, names: Iterable[str]) -> None:
        """Removes files of units that are of no use, and the directory if nothing else is in it."""
        for name in names:
            if UNIT_FILE.fullmatch(name):
                (self.output / name).unlink()
        self.remove()
        if not any(self.output.iterdir()):
            self.output.rmdir()

    def _is_untouched(self) -> bool:
        """Whether a run was begun here that has left no file and finished no unit."""
        others = [path for path in self.output.iterdir() if path.name not in self._own_names]
        return all(map(_is_leftover, others)) and not any(self.directory.glob("[0-9]*.json"))

    def _path(self, index: int) -> Path:
        return self.directory / f"{index:06d}.json"


def _is_leftover(path: Path) -> bool:
    """Whether it is the temporary file of a name that jobs write."""
    is_ours = any(owned.is_own(path, names) for names in (UNIT_FILE, LAST_FILE, RECORD_FILE))
    return is_ours and TEMPORARY.fullmatch(path.name) is not None


def _read_options(path: Path) -> dict[str, Any]:
    """The JSON object in a file; {} if there is none, as after a power failure on some file systems."""
    try:
        return read_object(path, "")
    except UserError:
        return {}
