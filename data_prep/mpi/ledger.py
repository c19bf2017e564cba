"""Records which work units of a job are finished, so that a killed job can continue."""

import contextlib
import json
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from common.errors import UserError
from common.files import owned
from common.files.atomic import TEMPORARY, write_text
from common.files.checksums import FileEntry, file_checksum
from common.files.json_files import read_as, read_object
from common.files.locks import LOCK
from common.files.places import FULL, is_plain_name


@dataclass(frozen=True, kw_only=True)
class UnitRecord:
    """The result of one work unit: the files that it wrote into the output. Each job has a subclass with more."""

    files: Sequence[FileEntry]


Record = TypeVar("Record", bound=UnitRecord)

RECORD_FILE = re.compile(r"options\.json|\d{6,}\.json")
UNIT_FILE = re.compile(
    r"(?:train|held_out|shard)-\d{5,}\.(?:parquet|arrow)|\d{6,}(?:\.(?:keys|values|sizes))?\.(?:npy|txt)"
)
"""The names of the files that units of any job leave."""
WORK_FILE = re.compile(f"{RECORD_FILE.pattern}|{UNIT_FILE.pattern}")
ANY_FILE = re.compile(
    rf"{WORK_FILE.pattern}|(?:documents|manifest|tokenizer)\.json|README\.md|spiece\.model|(?:duplicates|overlaps)\.jsonl"
)
"""The names of these, and of what a job writes after its last unit."""
_TOOL = "data_prep"


def discard_work(directory: Path) -> None:
    """Deletes the records and intermediate results in `directory`, and no other files."""
    owned.remove_workplace(directory, WORK_FILE)


def describe_differences(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Describes the options that differ, shortened: "seed is 0 there, 1 was asked for"."""
    return "; ".join(
        f"{name} is {reprlib.repr(recorded.get(name))} there, {reprlib.repr(wanted.get(name))} was asked for"
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
        is_scratch: whether the files are intermediate results in a directory that no user named. They must also have
            the content that their record says, and a run with other options discards them. The other files are in a
            manifest, and `verify` compares them.
    """

    def __init__(self, output: Path, kind: type[Record], is_scratch: bool = False) -> None:
        self.output, self._kind, self._is_scratch = output, kind, is_scratch
        self.directory = output / ".units"

    def begin(self, options: Mapping[str, Any]) -> None:
        """Creates the ledger, or continues an unfinished one. For one rank only.

        A run that has not finished any unit is replaced by one with other options, because nothing is lost.

        Args:
            options: everything that decides what the job writes, as JSON.

        Raises:
            UserError: `output` cannot be written, holds something else, or an unfinished run with other options.
        """
        try:
            self._begin(json.loads(json.dumps(options)))
        except OSError as error:
            if error.errno in FULL:
                raise  # the job says that in its own words
            raise UserError(f"cannot write to {self.output}: {error.strerror}; choose another --out") from error

    def _begin(self, options: dict[str, Any]) -> None:
        path = self.directory / "options.json"
        files = list(self.output.iterdir()) if self.output.exists() else []
        others = [file for file in files if file.name not in (self.directory.name, LOCK)]
        is_untouched = all(map(_is_temporary, others)) and not any(self.directory.glob("[0-9]*.json"))
        recorded = None
        if path.exists():
            recorded = {}  # as after a power failure on some file systems
            with contextlib.suppress(UserError):
                recorded = read_object(path, "")
        elif others and not self._is_scratch:
            raise UserError(f"{self.output} is not empty and holds no run to continue; use another --out or empty it")
        owned.take_workplace(self.directory, _TOOL)
        if recorded != options:
            if recorded is not None and not (self._is_scratch or is_untouched):
                raise UserError(
                    f"{self.output} holds an unfinished run of other options "
                    f"({describe_differences(recorded, options)}); "
                    f"use the same options to finish it, or another --out, or delete that directory"
                )
            owned.remove_own(self.directory, RECORD_FILE)
            owned.remove_own(self.output, UNIT_FILE)
            owned.take_workplace(self.directory, _TOOL)  # which is gone if it was empty
            write_text(path, json.dumps(options))
        for leftover in (*self.output.glob(".*.tmp"), *self.directory.glob(".*.tmp")):
            if _is_temporary(leftover):
                leftover.unlink()  # written by a process that was killed

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
        return not self._is_scratch or file_checksum(path) == file.xxh3_128

    def write(self, index: int, record: Record) -> None:
        """Records unit `index` as done."""
        write_text(self._path(index), json.dumps(asdict(record)))

    def discard(self, records: Iterable[Record]) -> None:
        """Removes records and files that are of no use, and the output if nothing else is in it."""
        for record in records:
            for file in filter(self._is_there, record.files):
                (self.output / file.name).unlink()
        discard_work(self.directory)
        if not any(self.output.iterdir()):
            self.output.rmdir()

    def _path(self, index: int) -> Path:
        return self.directory / f"{index:06d}.json"


def _is_temporary(path: Path) -> bool:
    """Whether it is the temporary file of a name that jobs write."""
    return TEMPORARY.fullmatch(path.name) is not None and owned.is_own(path, ANY_FILE)
