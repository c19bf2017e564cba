"""Records which work units of a job are finished, so that a killed job can continue.

A job writes into the hidden directory `.units` of its output the options that decide its result, and a done-file for
each unit. Intermediate results are in directories below it. All of it goes when the job is complete.
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
from common.files.atomic import TEMPORARY, write_text
from common.files.checksums import FileEntry
from common.files.json_files import read_as, read_object
from common.files.locks import LOCK


@dataclass(frozen=True, kw_only=True)
class UnitRecord:
    """The result of one work unit: the files that it wrote. Each job has a subclass with more."""

    files: Sequence[FileEntry]


Record = TypeVar("Record", bound=UnitRecord)
UNITS, OPTIONS, WRITER = ".units", "options.json", "python -m data_prep"


def describe_differences(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """Describes the options that differ, shortened: "seed is 0 there, 1 was asked for"."""
    return "; ".join(
        f"{name} is {reprlib.repr(recorded.get(name))} there, {reprlib.repr(wanted.get(name))} was asked for"
        for name in dict.fromkeys([*wanted, *recorded])
        if recorded.get(name) != wanted.get(name)
    )


def check_same(output: Path, holds: str, recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raises UserError if the options of what a complete `output` holds are not those that are wanted."""
    if differences := describe_differences(recorded, wanted):
        raise UserError(f"{output} holds {holds} ({differences}); give another --out or delete that directory")


class Ledger(Generic[Record]):
    """The done-files of units, in `directory`; the files that the units write are in `output`, by default the same.

    A unit is finished if its record exists, and the files that the record names exist in `output` with the recorded
    sizes. Records are written after the files, both atomically. A record that cannot be read, or does not fit `kind`,
    does not count: its unit is done again.
    """

    def __init__(self, output: Path, kind: type[Record], directory: Path | None = None) -> None:
        self.output, self._kind, self._directory = output, kind, directory or output

    def read_finished(self, units: int) -> dict[int, Record]:
        """Returns the records of the finished ones of so many units, by their indices."""
        finished = {}
        for index in range(units):
            with contextlib.suppress(UserError):
                record = read_as(self._path(index), self._kind, "", extra="ignore")
                if all(file.is_in(self.output) for file in record.files):
                    finished[index] = record
        return finished

    def write(self, index: int, record: Record) -> None:
        """Records unit `index` as done."""
        write_text(self._path(index), json.dumps(asdict(record)))

    def _path(self, index: int) -> Path:
        return self._directory / f"{index:06d}.json"


def begin_job(output: Path, options: Mapping[str, Any]) -> None:
    """Prepares `output` for a job, or for going on with an unfinished one. For one rank only.

    `options` are all that decides what it writes. A run that has not finished any unit is replaced by one with others,
    because nothing is lost. UserError: `output` holds something else, or an unfinished run with other options.
    """
    options = json.loads(json.dumps(options))
    directory = output / UNITS
    recorded = _read_options(directory)
    if recorded is None and not {path.name for path in output.iterdir()} <= {LOCK}:
        raise UserError(f"{output} is not empty and holds no run to continue; use another --out or empty it")
    if recorded is not None and recorded != options:
        if any(directory.glob("[0-9]*.json")):
            fault = f"holds an unfinished run of other options ({describe_differences(recorded, options)})"
            remedy = "use the same options to finish it, or another --out, or delete that directory"
            raise UserError(f"{output} {fault}; {remedy}")
        end_job(output)
    directory.mkdir(exist_ok=True)
    write_text(directory / OPTIONS, json.dumps({"writer": WRITER, "options": options}))
    for leftover in output.glob(".*.tmp"):
        if TEMPORARY.fullmatch(leftover.name) and leftover.is_file():
            leftover.unlink()  # written by a process that was killed


def end_job(output: Path, useless: Iterable[FileEntry] = ()) -> None:
    """Deletes the records of a job, and those of its files that are of no use."""
    directory = output / UNITS
    if not directory.is_symlink() and _read_options(directory) is not None:
        for file in useless:
            (output / file.name).unlink()
        shutil.rmtree(directory)


def _read_options(directory: Path) -> dict[str, Any] | None:
    """The options of the job that made `directory`; None if no job did, or they are damaged."""
    with contextlib.suppress(UserError):
        content = read_object(directory / OPTIONS, "")
        if content.get("writer") == WRITER and isinstance(options := content.get("options"), dict):
            return options
    return None
