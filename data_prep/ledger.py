"""What of a job is already done: one small record a unit of work, so that a killed job goes on where it was."""

import errno
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from data_prep.atomic import write_text
from data_prep.errors import UserError

Record = dict[str, Any]
"""The result of one unit of work, as JSON. Where it has "files", each {"name", "bytes", ...} is looked for again."""


def describe_differences(recorded: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """The options that differ, for a person: "seed is 0 there, 1 was asked for"."""
    return "; ".join(
        f"{name} is {recorded.get(name)!r} there, {wanted.get(name)!r} was asked for"
        for name in dict.fromkeys([*wanted, *recorded])
        if recorded.get(name) != wanted.get(name)
    )


class Ledger:
    """The records of one job, in the hidden directory `output/.units` until the job is complete.

    A unit is done when its record stands there and the files that the record names stand in `output` at the
    recorded sizes. Records are written after the files, both atomically.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.directory = output / ".units"

    def begin(self, options: Mapping[str, Any], *, discard_others: bool = False) -> None:
        """Creates the ledger, or takes up an unfinished one. For one rank only.

        A run that has finished no unit yet has nothing to lose: other options take its place.

        Args:
            options: everything that decides what the job writes, as JSON.
            discard_others: an unfinished run with other options is deleted; for directories no person asked for.

        Raises:
            UserError: `output` cannot be written, holds something else, or an unfinished run with other options.
        """
        recorded = self.directory / "options.json"
        wanted = json.loads(json.dumps(options))
        try:
            if recorded.exists():
                there = self._read(recorded)
                if there != wanted and (discard_others or self._is_untouched()):
                    shutil.rmtree(self.output)
                elif there != wanted:
                    raise UserError(
                        f"{self.output} holds an unfinished run of other options "
                        f"({describe_differences(there, wanted)}); "
                        f"use the same options to finish it, or another --out, or delete that directory"
                    )
            elif self.output.is_dir() and any(p.name != ".units" for p in self.output.iterdir()):
                raise UserError(
                    f"{self.output} is not empty and holds no run to continue; use another --out or empty it"
                )
            self.directory.mkdir(parents=True, exist_ok=True)
            for leftover in (*self.output.glob(".*.tmp"), *self.directory.glob(".*.tmp")):
                leftover.unlink()  # written by a process that was killed
            if not recorded.exists():
                write_text(recorded, json.dumps(options))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise  # the job says that in its own words
            raise UserError(f"cannot write to {self.output}: {error.strerror}; choose another --out") from error

    def finished(self, index: int) -> Record | None:
        """The record of unit `index`, or None where it has to be done (again)."""
        try:
            record = self._read(self._path(index))
            if record and all((self.output / f["name"]).stat().st_size == f["bytes"] for f in record.get("files", [])):
                return record
        except FileNotFoundError:
            pass
        return None

    def write(self, index: int, record: Record) -> None:
        """Records unit `index` as done."""
        write_text(self._path(index), json.dumps(record))

    def remove(self) -> None:
        """Forgets the records: the job is complete and its manifest written."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def abandon(self) -> None:
        """Takes a run away that failed before anything was done, and the directory made for it."""
        if self._is_untouched():
            shutil.rmtree(self.directory)
            if not any(self.output.iterdir()):
                self.output.rmdir()

    def _is_untouched(self) -> bool:
        """Whether a run was begun here that has left no file and finished no unit."""
        others = {*self.output.iterdir()} - {self.directory, *self.output.glob(".*.tmp")}
        return not others and not any(self.directory.glob("[0-9]*.json"))

    @staticmethod
    def _read(path: Path) -> Record:
        """A JSON object; {} where the file holds none, as after a power failure on some file systems."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            return {}
        return content if isinstance(content, dict) else {}

    def _path(self, index: int) -> Path:
        return self.directory / f"{index:06d}.json"
