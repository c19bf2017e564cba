"""Reads tables of any task: CSV, TSV, JSON Lines, Parquet, CoNLL, and data sets of the library `datasets`.

    .csv, .tsv               a header, then a row for each example; cells may be quoted as spreadsheet programs do, and
                             the cells of a .csv may be separated by semicolons, tabs or "|"
    .jsonl, .ndjson, .json   an object in each line, or one list of objects
    .parquet                 any columns
    .conll                   a token and its tag in each line, an empty line between sentences: columns tokens and tags

A missing value is None; CSV and TSV have none. Each mistake in a file is a UserError with file and line.
"""

import collections
import csv
import functools
import io
import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import UserError, one_line
from common.files.json_files import read_bytes
from common.text import encodable
from data_prep.sources.opening import DAMAGE, compression, open_input

Row = Mapping[str, Any]

MAX_FILE_BYTES = 512 << 20  # the largest task of the paper has 80 MB
MAX_DECODED_BYTES = 2 << 30
MAX_ROWS = 50_000_000
_MAX_CELL = 1 << 30
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class Table:
    """Rows of one split, by column; a row of JSON may lack columns.

    Attributes:
        source: the file or data set, for messages.
        numbers: of each row in its source: the line of a file, the row of a data set from 0, or the id of a question.
        unit: what `numbers` are: "line", "row" or "question".
        class_names: by column, the names of its classes in their order, where the source gives them.
        ids: of the examples; None for the numbers of the rows, from 0.
        is_official: whether the rows are of a published task, in which a text may be empty.
    """

    source: str
    columns: tuple[str, ...]
    rows: Sequence[Row]
    numbers: Sequence[int | str]
    unit: str = "line"
    class_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ids: Sequence[str] | None = None
    is_official: bool = False

    def place(self, index: int) -> str:
        """The place of a row, for messages."""
        return f"{self.source}, {self.unit} {self.numbers[index]}"


def read_table(path: Path, named: Sequence[str | None] = (), only_these: bool = False) -> Table:
    """Reads a file by the ending of its name. `named` are columns that will be read; those of CoNLL may be numbers.

    `only_these`: the rows of Parquet need no other columns. Raises UserError: another ending, a broken or empty file,
    or a row with more or fewer cells than the header.
    """
    ending = path.suffix.lower()
    if ending not in READERS:
        raise UserError(f"{path} has none of the endings {', '.join(READERS)}; convert it, or rename it")
    if ending == ".parquet":
        table = _parquet(path, named if only_these else None)
    elif ending == ".conll":
        by_number = any(name is not None and name.isdecimal() for name in named)
        table = _conll(read_text(path), path, by_number)
    else:
        table = READERS[ending](read_text(path), path)
    if not table.rows:
        raise UserError(f"{path} holds no row; name another file")
    return table


def parse_json_lines(text: str, source: Path) -> Table:
    """The table in `text`: an object in each line, or one list of objects. Raises UserError for anything else."""
    if text.lstrip().startswith("["):
        unit, numbered = "entry", dict(enumerate(load_json(text, source)))
    else:
        lines = enumerate(text.split("\n"), start=1)
        unit, numbered = "line", {number: load_json(line, source, number) for number, line in lines if line.strip()}
    for number, row in numbered.items():
        if not isinstance(row, dict):
            raise UserError(f"{source}, {unit} {number}: no JSON object; write one for each example")
    rows = list(numbered.values())
    return Table(str(source), tuple(dict.fromkeys(itertools.chain.from_iterable(rows))), rows, list(numbered), unit)


def parse_separated(text: str, source: Path, delimiter: str | None = None) -> Table:
    """The table in `text`: a header, then a row for each line; a quoted cell may have several lines.

    Without a delimiter it is a comma if the header has one, otherwise a semicolon, a tab or a "|". Raises UserError: a
    row with more or fewer cells than the header, a repeated column, or a broken quote.
    """
    if delimiter is None:
        header = _QUOTED.sub("", text.lstrip("\r\n").partition("\n")[0])
        delimiter = next((mark for mark in ",;\t|" if mark in header), ",")
    csv.field_size_limit(_MAX_CELL)
    read = functools.partial(csv.reader, io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    reader = read() if delimiter != "\t" or _has_quotes(text) else read(quoting=csv.QUOTE_NONE)
    numbered: dict[int, Row] = {}
    begins = 1  # the line in which a row begins; its cells may have several lines
    try:
        columns = next(filter(None, reader), [])  # an empty line has no cells
        _refuse_repeated(columns, f"{source}, line {reader.line_num}")
        begins = reader.line_num + 1
        for cells in reader:
            if cells and len(cells) != len(columns):
                raise UserError(
                    f"{source}, line {begins}: {len(cells)} cells instead of the {len(columns)} of the header "
                    f"({', '.join(columns)}); correct the line, or quote cells with separators in them"
                )
            if cells:
                numbered[begins] = dict(zip(columns, cells))
            begins = reader.line_num + 1
    except csv.Error as error:
        remedy = "write a quote inside a quoted cell twice, or convert to JSON Lines"
        raise UserError(f"{source}, line {begins}: {error}; {remedy}") from None
    return Table(str(source), tuple(columns), list(numbered.values()), list(numbered))


def _has_quotes(text: str) -> bool:
    """Whether the quotes in a TSV hold cells together, as spreadsheet programs write them, and are not plain text.

    Then a reader that follows the quotes comes to the end, and finds as many cells in each row. If it joins lines that
    have as many cells each without it, the quotes are those of a speech of several lines.
    """
    rows = csv.reader(io.StringIO(text, newline=""), delimiter="\t", strict=True)
    try:
        cells = [len(cells) for cells in rows if cells]
    except csv.Error:
        return False
    tabs = [line.count("\t") for line in re.split(r"\r\n?|\n", text) if line]
    joins_whole_rows = len(tabs) > len(cells) and set(tabs) == {tabs[0]} != {0}
    return len(set(cells)) <= 1 and not joins_whole_rows


def _parquet(path: Path, wanted: Sequence[str | None] | None = None) -> Table:
    """Reads the columns `wanted`, or all. The decoded size is bounded, because equal values need no space in a file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = read_bytes(path, "check the name", MAX_FILE_BYTES)
    rows: list[Row] = []
    size = 0
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        names = file.schema_arrow.names
        _refuse_repeated(names, str(path))
        columns = [name for name in names if wanted is None or name in wanted]
        for batch in file.iter_batches(256, columns=columns):
            size += batch.nbytes
            if size > MAX_DECODED_BYTES or len(rows) > MAX_ROWS:
                limits = f"{MAX_DECODED_BYTES:,} bytes of values or {MAX_ROWS:,} rows"
                raise UserError(f"{path} has more than {limits}; cut it")
            batch.validate(full=True)
            rows += batch.to_pylist()
    except UserError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, LookupError, TypeError) as error:
        raise UserError(f"{path} is no readable Parquet file ({one_line(error)}); write it again") from None
    return Table(str(path), tuple(names), rows, range(len(rows)), "row")


def _refuse_repeated(columns: Sequence[str], place: str) -> None:
    """Raises UserError if two columns have one name: a row has one value by that name."""
    name, times = collections.Counter(columns).most_common(1)[0] if columns else ("", 0)
    if times > 1:
        raise UserError(f"{place}: two columns are called {name!r:.80}; rename one")


CONLL_U = ("id", "tokens", "lemma", "tags", "xpos", "feats", "head", "deprel", "deps", "misc")
"""Our names of the columns of CoNLL-U; those of the form and of the universal part of speech are our defaults."""
_COUNT = re.compile(r"\d+(?:[-.]\d+)?(?=\t|$)")
_TAG = re.compile(r"[Oo]|[BIESLUMWbi][-_].+|.+[-_][BIESLUMW]")


def _conll(text: str, source: Path, by_number: bool) -> Table:
    """One token in each line. Comments and lines with -DOCSTART- are left out.

    The first word of a line is the token, and the last one its tag, unless this is not clear: see `_conll_columns`.
    """
    of_tokens = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    is_conll_u = len(of_tokens) > 0 and all(line.count("\t") == 9 and _COUNT.match(line) for line in of_tokens)
    # A token may have other blanks, such as one that does not break; one of CoNLL-U may have any.
    split = re.compile(r"[^\t\r]+" if is_conll_u else r"[^ \t\r]+").findall
    lines = [split(line) for line in text.split("\n")]
    lines = [[] if words[:1] == ["-DOCSTART-"] else words for words in lines]
    width = len(next((words for words in lines if words and not words[0].startswith("#")), []) or max(lines, key=len))
    tags = {words[-1] for words in lines if words and len(words) == width and not words[0].startswith("#")}
    sentences: list[list[list[str]]] = []
    numbers: list[int] = []
    for is_sentence, group in itertools.groupby(enumerate(lines, start=1), lambda line: bool(line[1])):
        sentence = itertools.dropwhile(lambda line: _is_comment(line[1], width, tags), group if is_sentence else ())
        rows: list[list[str]] = []
        for number, words in sentence:
            if len(words) != width:
                raise UserError(f"{source}, line {number}: {len(words)} columns instead of {width}; correct the line")
            if is_conll_u and not words[0].isdecimal():  # a range of words, or one that is not in the text
                continue
            numbers += [] if rows else [number]
            rows.append(words)
        sentences += [rows] if rows else []
    columns = {str(place + 1): place for place in range(width)}
    columns = columns if by_number else _conll_columns(sentences, width, is_conll_u) or columns
    by_column = [{name: [words[at] for words in sentence] for name, at in columns.items()} for sentence in sentences]
    return Table(str(source), tuple(columns), by_column, numbers)


def _is_comment(words: list[str], width: int, tags: Collection[str]) -> bool:
    """Whether a line at the beginning of a sentence is a comment, and not the token "#"."""
    looks_so = words[0] in ("#", "#begin", "#end") or " " in words[0] or words[1:2] == ["="]
    return words[0].startswith("#") and looks_so and not (len(words) == width and words[-1] in tags)


def _conll_columns(sentences: Sequence[Sequence[Sequence[str]]], width: int, is_conll_u: bool) -> dict[str, int]:
    """The columns of a CoNLL file by name; none if it is not clear which they are.

    It is not if the first column counts, if another column than the last one holds entities, or if the last one has
    more different words than the first one.
    """
    if is_conll_u and width == len(CONLL_U):
        return {name: place for place, name in enumerate(CONLL_U)}
    if width < 2:
        return {"tokens": 0}
    words = [{line[place] for sentence in sentences for line in sentence} for place in range(width)]
    marks = [all(map(_TAG.fullmatch, of_column)) for of_column in words]
    begins = all(re.fullmatch(r"[01]|[01][-.]\d+", sentence[0][0]) for sentence in sentences)
    counts = begins and len(words[0]) > 1 and all(map(_COUNT.fullmatch, words[0]))
    is_unclear = not marks[-1] and (any(marks) or len(words[-1]) > len(words[0]))
    return {} if counts or is_unclear else {"tokens": 0, "tags": width - 1}


READERS: dict[str, Callable[..., Table]] = {
    ".csv": parse_separated,
    ".tsv": functools.partial(parse_separated, delimiter="\t"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), parse_json_lines),
    ".parquet": _parquet,
    ".conll": _conll,
}
"""By the ending of a file's name."""


def from_dataset(rows: Any, source: str, named: Sequence[str | None]) -> Table:
    """The columns `named` of a `datasets.Dataset`, with the names of classes in the place of their numbers.

    Raises UserError for a file of it that is damaged.
    """
    class_names = {}
    for name, feature in rows.features.items():
        if names := getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None):
            class_names[name] = tuple(names)
    wanted = dataset_rows(rows.select_columns([name for name in rows.column_names if name in named]), source)
    values = [{name: _named(value, class_names.get(name)) for name, value in row.items()} for row in wanted]
    return Table(source, tuple(rows.column_names), values, range(len(values)), "row", class_names)


def dataset_rows(rows: Any, source: str) -> Iterator[Row]:
    """The rows of a `datasets.Dataset`. Raises UserError for a file of it that is damaged."""
    import pyarrow as pa

    try:
        table = rows.data.table.select(rows.column_names)
        for batch in table.to_batches():  # a damaged offset would end the process
            batch.validate(full=True)
        yield from rows
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise UserError(f"{source} is damaged ({one_line(error)}); get or write it again") from None


def _named(value: Any, names: tuple[str, ...] | None) -> Any:
    """`value` with class numbers replaced; -1, by which data sets hide a label, becomes None."""
    if isinstance(value, list) and names:
        return [_named(item, names) for item in value]
    if names is None or not isinstance(value, int):
        return value
    return names[value] if 0 <= value < len(names) else None


def load_json(text: str, path: Path, first_line: int = 1) -> Any:
    """The JSON in `text`, which begins in line `first_line` of `path`. Raises UserError for broken JSON.

    A lone surrogate, which JSON can write but UTF-8 cannot, becomes U+FFFD.
    """
    try:
        value = json.loads(text)
        if _SURROGATE.search(text):
            value = json.loads(encodable(json.dumps(value, ensure_ascii=False)))
        return value
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise UserError(f"{path}, line {line}: broken JSON ({error.msg}); get the file again") from None
    except (ValueError, RecursionError) as error:  # an integer of too many digits; too many brackets
        raise UserError(f"{path}, line {first_line}: broken JSON ({one_line(error)}); get the file again") from None


def read_text(path: Path) -> str:
    """The text of a file, decompressed by its suffix, without its byte-order mark.

    Raises UserError if the file cannot be read as UTF-8, or is damaged.
    """
    content = read_bytes(path, "check the name", MAX_FILE_BYTES)
    if compression(path):
        try:
            with open_input(path) as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except DAMAGE as error:
            raise UserError(f"{path} is damaged ({one_line(error)}); get the file again") from None
        if len(content) > MAX_FILE_BYTES:
            raise UserError(f"{path} has more than {MAX_FILE_BYTES:,} bytes when decompressed; check the name")
    try:
        # Line ends are not translated: offsets into the text must not shift.
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise UserError(f"{path}, line {line}: not UTF-8 text; get the file again, or convert it") from None
