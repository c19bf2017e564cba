"""Records which work units of a job are finished, so that a killed job can continue.

A job writes into its hidden directory `.units` the options that decide its result, and a done-file for each unit.
"""

import contextlib
import json
import reprlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from common.errors import UserError
from common.files import outputs
from common.files.atomic import TEMPORARY, write_text
from common.files.checksums import FileEntry
from common.files.json_files import read_as, read_object
from common.files.locks import LOCK
from common.files.places import FULL, is_plain_name


@dataclass(frozen=True, kw_only=True)
class UnitRecord:
    """The result of one work unit: the files that it wrote into the output. Each job has a subclass with more."""

    files: Sequence[FileEntry]


Record = TypeVar("Record", bound=UnitRecord)
OPTIONS, WRITER = "options.json", "python -m data_prep"


def discard_work(directory: Path) -> None:
    """Deletes a hidden directory of records or intermediate results, if a job made it."""
    if not directory.is_symlink() and any(_read(path) is not None for path in directory.glob(f"**/{OPTIONS}")):
        shutil.rmtree(directory)


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
        is_scratch: whether `output` is a hidden directory of intermediate results, which a run with other options
            begins anew.
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
        path = self.directory / OPTIONS
        if self._is_scratch:
            outputs.take(self.output.parent, WRITER)  # all in it may be deleted
        files = list(self.output.iterdir()) if self.output.exists() else []
        recorded = _read(path)
        if recorded is None and not (self._is_scratch or {file.name for file in files} <= {LOCK}):
            raise UserError(f"{self.output} is not empty and holds no run to continue; use another --out or empty it")
        if recorded is not None and recorded != options:
            if not self._is_scratch and any(self.directory.glob("[0-9]*.json")):
                raise UserError(
                    f"{self.output} holds an unfinished run of other options "
                    f"({describe_differences(recorded, options)}); "
                    f"use the same options to finish it, or another --out, or delete that directory"
                )
            discard_work(self.output if self._is_scratch else self.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps({"writer": WRITER, "options": options}))
        for leftover in (*self.output.glob(".*.tmp"), *self.directory.glob(".*.tmp")):
            if TEMPORARY.fullmatch(leftover.name) and leftover.is_file():
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
        return not path.is_symlink() and path.is_file() and path.stat().st_size == file.bytes

    def write(self, index: int, record: Record) -> None:
        """Records unit `index` as done."""
        write_text(self._path(index), json.dumps(asdict(record)))

    def discard(self, records: Iterable[Record]) -> None:
        """Removes records and files that are of no use."""
        for record in records:
            for file in filter(self._is_there, record.files):
                (self.output / file.name).unlink()
        discard_work(self.directory)

    def _path(self, index: int) -> Path:
        return self.directory / f"{index:06d}.json"


def _read(path: Path) -> dict[str, Any] | None:
    """The options in `path`; None if no job wrote it, or it is damaged."""
    with contextlib.suppress(UserError):
        content = read_object(path, "")
        if content.get("writer") == WRITER and isinstance(options := content.get("options"), dict):
            return options
    return None
