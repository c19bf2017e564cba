"""Records with a field of text: JSON lines, Parquet, and datasets of the hub. Files of lines may be compressed.

The first record of each file (of Parquet and the hub, the columns) is checked before anything is written. If it has no
text, --text-field is wrong. Later, what is damaged is skipped: a record, a whole compressed file, or the rest of a row
group of Parquet.
"""

import contextlib
import itertools
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from common.errors import UserError, one_line
from common.text import encodable
from data_prep.corpus.documents import Document, parquet_file
from data_prep.sources import FileRange, Skipped, Source, find_files, opening

_FILE = re.compile(rf"\.(?:(?:jsonl|json|ndjson){opening.COMPRESSED}|parquet$)", re.IGNORECASE)
_PARQUET = re.compile(r"\.parquet$", re.IGNORECASE)
_ROWS_PER_READ = 256
EMPTY, NOT_TEXT, NOT_WANTED = "no text", "no field of text", "left out by --where"
MAX_NAMES_SHOWN = 20


class Condition(NamedTuple):
    """What --where asks of a record: FIELD>=X, FIELD<=X or FIELD==X. Two numbers are compared as such, else text."""

    field: str
    relation: str
    value: str

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Reads an argument of --where. Raises ValueError, or UserError for one that compares nothing."""
        if (match := re.fullmatch(r"([^<>=]+)(>=|<=|==)(.+)", text)) is None:
            raise UserError(f"--where {text} is no condition; give FIELD>=X, FIELD<=X or FIELD==X in quotation marks")
        if re.search(r"^=|[<>=]=[^=]", match[3]):
            raise UserError(f"--where {text} holds two conditions; give each in quotation marks: --where A B")
        return cls(*map(str.strip, match.groups()))

    def holds(self, record: dict[str, Any]) -> bool:
        """Whether a record satisfies it. One without the field does not."""
        value, relation = record.get(self.field), _RELATIONS[self.relation]
        if not math.isnan(wanted := _number(self.value)):
            return not isinstance(value, bool) and relation(_number(value), wanted)
        shown = str(value).lower() if isinstance(value, bool) else str(value)  # true and false are those of JSON
        return value is not None and relation(shown, self.value)


def _number(value: object) -> float:
    """The finite number of a value or of its text; NaN, to which no relation holds, if it is none."""
    try:
        return number if math.isfinite(number := float(value)) else math.nan  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {">=": operator.ge, "<=": operator.le, "==": operator.eq}


@dataclass(frozen=True)
class Fields:
    """How records become documents: names of fields (or columns); id and title may be missing in a record."""

    text: str = "text"
    id: str | None = None
    title: str | None = None
    per_document: int = 1  # consecutive records in one document, for records that are sentences or paragraphs
    where: tuple[Condition, ...] = ()  # what is asked of each record

    @property
    def flags(self) -> list[tuple[str, str | None]]:
        """Each flag that names a field, and the name."""
        own = [("--text-field", self.text), ("--id-field", self.id), ("--title-field", self.title)]
        return [*own, *(("--where", condition.field) for condition in self.where)]

    @property
    def columns(self) -> list[str]:
        """The names that are read."""
        return list(dict.fromkeys(name for _, name in self.flags if name is not None))

    def check_columns(self, place: str, columns: Sequence[str]) -> None:
        """Raises UserError unless the columns of a file or dataset have all names."""
        for flag, column in self.flags:
            if column is not None and (times := columns.count(column)) != 1:
                raise UserError(f"{place} has {times} columns called {column!r}; {choice(flag, columns)}")


def choice(flag: str, names: Iterable[str]) -> str:
    """What to do if a flag names no field or column, with the first ones that there are."""
    return f"choose {flag} among {', '.join(map(str, itertools.islice(names, MAX_NAMES_SHOWN))) or 'other data'}"


class Records(Source):
    """A `Source`: files of records. A work unit is a list of `FileRange`, so that small files share one."""

    def __init__(self, paths: Sequence[Path], fields: Fields, unit_bytes: int) -> None:
        """UserError: a path is missing or contains no such file, or a Parquet file lacks a column."""
        super().__init__()
        self.fields, self._unit_bytes = fields, unit_bytes
        kind = ".jsonl, .jsonl.gz, .jsonl.zst or .parquet file"
        self.plan([file for path in paths for file in find_files(path, _FILE.search, kind)])

    def plan_file(self, path: Path, name: str, size: int) -> None:
        """Cuts a file into ranges of lines or of row groups."""
        if _PARQUET.search(name):
            self._plan_parquet(path, name)
            return
        check_first(path, self.fields)
        step = max(size, 1) if opening.compression(path) else self._unit_bytes
        for begin in range(0, size, step):
            part = FileRange(path, name, begin, min(begin + step, size))
            self.add_part(part, min(step, size - begin), self._unit_bytes)

    def _plan_parquet(self, path: Path, name: str) -> None:
        try:
            with parquet_file(path) as parquet:
                metadata, schema = parquet.metadata, parquet.schema_arrow
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{path} is not a Parquet file ({one_line(error)}); check --input") from error
        self.fields.check_columns(str(path), schema.names)
        kind = schema.field(self.fields.text).type
        if not re.search("string", str(kind)):
            raise UserError(f"{path}: column {self.fields.text!r} holds {kind}, not text; choose another --text-field")
        begin = size = 0
        for group in range(metadata.num_row_groups):
            size += metadata.row_group(group).total_byte_size
            if size >= self._unit_bytes or group == metadata.num_row_groups - 1:
                self.add_part(FileRange(path, name, begin, group + 1), size, self._unit_bytes)
                begin, size = group + 1, 0

    def read(self, unit: Sequence[FileRange]) -> Iterator[Document | Skipped]:
        """Yields the documents of a work unit. The last one of a range may consist of fewer records."""
        for part in unit:
            read = self._read_parquet if _PARQUET.search(part.name) else self._read_lines
            yield from joined(read(part), self.fields.per_document)

    def _read_lines(self, part: FileRange) -> Iterator[Document | Skipped]:
        if opening.compression(part.path) and not opening.is_whole(part.path):
            yield Skipped(part.name, "damaged")
            return
        for line in opening.lines(part.path, part.begin, part.end):
            self.consumed += line.size
            if line.content is None or not line.content.isspace():
                yield parse_line(line.content, self.fields, f"{part.name}:{line.offset}")

    def _read_parquet(self, part: FileRange) -> Iterator[Document | Skipped]:
        with parquet_file(part.path) as parquet:
            for group in range(part.begin, part.end):
                row = 0
                try:
                    for batch in parquet.iter_batches(_ROWS_PER_READ, row_groups=[group], columns=self.fields.columns):
                        for record in batch.to_pylist():
                            self.consumed += text_bytes(record, self.fields)
                            yield to_document(record, self.fields, f"{part.name}:{group}:{row}")
                            row += 1
                except opening.DAMAGE as error:
                    if opening.is_of_the_system(error):
                        raise
                    yield Skipped(f"{part.name}:{group}:{row}", "damaged")


class Hub(Source):
    """A `Source`: a split of datasets that `datasets.load_dataset` reads, by name or from a local directory, streamed.

    A work unit is (name of the dataset, one of its shards).
    """

    def __init__(self, names: Sequence[str], subset: str | None, split: str, fields: Fields) -> None:
        """UserError: a dataset cannot be opened (with the library's reason), or has no such split or field."""
        super().__init__()
        self.subset, self.split, self.fields = subset, split, fields
        for name in names:
            if _FILE.search(name) and Path(name).is_file():
                raise UserError(f"{name} is a file, not a dataset; read it by --source jsonl")
            opening.check_regular(Path(name))
            dataset = self._open(name)
            with _explaining(name):
                columns = dataset.column_names or list(next(iter(dataset), {}))
            fields.check_columns(name, columns)
            info = dataset.info.splits.get(split) if dataset.info.splits else None
            local = [file.stat().st_size for file in Path(name).rglob("*") if file.is_file()]  # none of the hub's
            total, shards = (info.num_bytes if info else 0) or sum(local), dataset.num_shards
            self.inputs.append({"name": name, "subset": subset, "split": split, "shards": shards, "bytes": total})
            for shard in range(shards):
                self.add((name, shard), max(1, total // shards))

    def _open(self, name: str) -> Any:
        from datasets import load_dataset, load_from_disk  # takes seconds to import, and only this source needs it
        from datasets.utils.logging import disable_progress_bar

        disable_progress_bar()
        with _explaining(name):
            if (Path(name) / "state.json").exists():  # `save_to_disk` of one split, which `load_dataset` refuses
                return load_from_disk(name).to_iterable_dataset()
            return load_dataset(name, self.subset, split=self.split, streaming=True)

    def read(self, unit: tuple[str, int]) -> Iterator[Document | Skipped]:
        """Yields the documents of one shard."""
        return joined(self._read_rows(unit), self.fields.per_document)

    def _read_rows(self, unit: tuple[str, int]) -> Iterator[Document | Skipped]:
        name, shard = unit
        dataset = self._open(name)
        # The ids of a local dataset do not depend on the way its path is written.
        short = Path(name).resolve().name if Path(name).exists() else name
        rows = enumerate(dataset.shard(num_shards=dataset.num_shards, index=shard))
        while True:
            with _explaining(name):
                row, record = next(rows, (0, None))
            if record is None:
                return
            self.consumed += text_bytes(record, self.fields)
            yield to_document(record, self.fields, f"{short}:{shard}:{row}")


@contextlib.contextmanager
def _explaining(name: str) -> Iterator[None]:
    """Raises UserError for any error: the library passes on those of its readers and of the network."""
    try:
        yield
    except Exception as error:
        remedy = "check --input, --subset, --hub-split, its files and the network, and give the same command to go on"
        raise UserError(f"cannot read the dataset {name!r}: {one_line(error)}; {remedy}") from error


def check_first(path: Path, fields: Fields) -> None:
    """Raises UserError unless the first record of a file of JSON lines has the fields. A title may be missing."""
    for number, line in enumerate(opening.lines(path), 1):
        if line.content is None or not line.content.isspace():
            item = parse_line(line.content, fields, path.name)
            reason = item.reason if isinstance(item, Skipped) else None
            record = json.loads(line.content or b"null") if reason in (None, EMPTY, NOT_TEXT, NOT_WANTED) else None
            if isinstance(record, dict):
                for flag, name in fields.flags:
                    if flag != "--title-field" and name is not None and name not in record:
                        raise UserError(f"{path}, line {number}: no field {name!r}; {choice(flag, record)}")
                if reason == NOT_TEXT:
                    fault = f"field {fields.text!r} holds no text"
                    raise UserError(f"{path}, line {number}: {fault}; {choice('--text-field', record)}")
            if reason not in (None, EMPTY, NOT_WANTED):
                raise UserError(f"{path}, line {number}: {reason}; check --input, --source and --text-field")
            return


def text_bytes(record: dict[str, Any], fields: Fields) -> int:
    """Returns the size of a record's text in bytes of UTF-8; 0 if it has none."""
    text = record.get(fields.text)
    return len(text.encode(errors="replace")) if isinstance(text, str) else 0


def parse_line(line: bytes | None, fields: Fields, place: str) -> Document | Skipped:
    """Returns the document of one line of JSON; None: of damaged content."""
    if line is None or len(line) > opening.MAX_TEXT_BYTES:
        return Skipped(place, "damaged" if line is None else "too long")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return Skipped(place, "not JSON")
    return to_document(record, fields, place)


def to_document(record: Any, fields: Fields, place: str) -> Document | Skipped:
    """Returns a record as a document, with the id `place` if it has none."""
    text = record.get(fields.text, record) if isinstance(record, dict) else record
    if isinstance(record, dict) and not all(condition.holds(record) for condition in fields.where):
        return Skipped(place, NOT_WANTED)
    if text is None:
        return Skipped(place, EMPTY)
    if not isinstance(text, str) or text is record:
        return Skipped(place, NOT_TEXT)
    if len(text) > opening.MAX_TEXT_BYTES:  # a record of Parquet or of the hub
        return Skipped(place, "too long")
    paragraphs = (" ".join(line.split()) for line in encodable(text).splitlines())
    prose = "\n".join(filter(None, paragraphs))
    if not prose:
        return Skipped(place, EMPTY)
    identity, title = (record.get(name) if name else None for name in (fields.id, fields.title))
    name = place if identity is None else encodable(str(identity))
    return Document(name, "" if title is None else encodable(str(title)), prose)


def joined(records: Iterator[Document | Skipped], count: int) -> Iterator[Document | Skipped]:
    """Joins each `count` consecutive records, one paragraph each, to a document with the first one's id and title."""
    waiting: list[Document] = []
    for record in itertools.chain(records, [None]):
        if isinstance(record, Skipped):
            yield record
        elif record is not None:
            waiting.append(record)
        if waiting and (record is None or len(waiting) == count):
            yield replace(waiting[0], text="\n".join(part.text for part in waiting))
            waiting = []
