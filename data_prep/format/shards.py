"""The shard format, which training reads.

A shard set is a directory of `shard-00000.arrow`, ... (Arrow IPC streams, which `datasets.Dataset.from_file` can map),
the vocabulary (`spiece.model` or `tokenizer.json`) and `manifest.json`, which is written last.

A row contains as many segment pairs as fit into `max_seq_length` positions, as tokens and lengths. It stores what does
not change: A and B in the order of the document, without special tokens, padding or masks. Training adds those, and
swaps A and B, when it reads a row. So one shard set serves every objective and every epoch.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from common.errors import UserError, one_line
from common.files.atomic import replacing
from common.files.checksums import problem_of_file
from common.files.places import open_regular
from data_prep.format.pairs import Parts
from data_prep.format.shard_manifest import ShardFile, ShardManifest, describe_file, read_manifest
from data_prep.text.load_vocabulary import load_vocabulary
from data_prep.text.vocabulary import VOCABULARY_FILES, Vocabulary, find_vocabulary

_UINT16_COLUMNS = ("tokens", "leads", "a_lengths", "b_lengths", "trails")
_TYPES = {name: pa.uint16() for name in _UINT16_COLUMNS} | {"documents": pa.uint32()}
SCHEMA = pa.schema([pa.field(name, pa.list_(kind), nullable=False) for name, kind in _TYPES.items()])
MAX_DOCUMENTS = 1 << 32  # in a shard set: the number of a document is stored as uint32


def _view(array: pa.Array) -> NDArray[Any]:
    """The numbers of an array without nulls, not copied. `array.to_numpy()` would import pandas, which takes long."""
    return np.from_dlpack(array)


class ShardColumns(NamedTuple):
    """One mapped shard: offsets and values of the list columns, as views of the file."""

    token_offsets: NDArray[np.int32]
    tokens: NDArray[np.uint16]
    pair_offsets: NDArray[np.int32]
    parts: tuple[NDArray[np.uint16], ...]
    documents: NDArray[np.uint32]

    def between(self, first: int, end: int) -> tuple[NDArray[Any], ...]:
        """What is stored of the rows `first` to `end` - 1: offsets of tokens, of pairs, tokens, parts, documents."""
        of_tokens, of_pairs = self.token_offsets[first : end + 1], self.pair_offsets[first : end + 1]
        pairs = slice(of_pairs[0], of_pairs[-1])
        tokens = self.tokens[of_tokens[0] : of_tokens[-1]]
        return of_tokens, of_pairs, tokens, *(part[pairs] for part in self.parts), self.documents[pairs]


def map_shard(path: Path, rows: int) -> ShardColumns:
    """Maps one shard, of so many `rows`, into memory. Pages are read when they are accessed; no file stays open.

    UserError: the file is not a shard, or its counts and offsets do not fit `rows`, its buffers or each other.
    """
    remedy = f"run `python -m data_prep verify {path.parent}`"
    try:
        # The arrays keep the mapping alive. The file is closed: thousands of shards would use up the file descriptors.
        # Python opens it, because Arrow takes no name that is not UTF-8; Python's own mapping would keep it open.
        with (
            open_regular(path) as file,
            pa.memory_map(f"/dev/fd/{file.fileno()}") as source,
            pa.ipc.open_stream(source) as reader,
        ):
            batch = reader.read_next_batch()
            batch.validate()
    except (pa.ArrowException, OSError, StopIteration, ValueError) as error:
        raise UserError(f"{path} cannot be read as a shard ({one_line(error)}); {remedy}") from error
    if batch.schema != SCHEMA or batch.num_rows != rows:
        raise UserError(f"{path} has other columns than a shard, or not {rows} rows; {remedy}")
    tokens, *parts, documents = batch.columns
    offsets = [_view(column.offsets) for column in batch.columns]
    for column, own, expected in zip(batch.columns, offsets, [offsets[0], *[offsets[-1]] * 5]):
        nulls = column.null_count or column.values.null_count
        ordered = own[0] == 0 and own[-1] == len(column.values) and (np.diff(own) >= 0).all()
        if nulls or not ordered or not np.array_equal(own, expected):
            raise UserError(f"{path} has offsets that do not fit its columns; {remedy}")
    lengths = tuple(_view(part.values) for part in parts)
    return ShardColumns(offsets[0], _view(tokens.values), offsets[-1], lengths, _view(documents.values))


def check_rows(path: Path, rows: int, manifest: ShardManifest) -> None:
    """Checks all rows of a shard. UserError: see `map_shard`; or a row is impossible, see `_wrong_rows`."""
    stored, lengths = _join([map_shard(path, rows).between(0, rows)])
    if (wrong := np.flatnonzero(_wrong_rows(stored, lengths, manifest))).size:
        raise UserError(f"{path.name} has {len(wrong)} impossible rows, the first is row {wrong[0]}")


class ShardRows(NamedTuple):
    """R rows one after another, copied: P pairs and T tokens in all."""

    tokens: NDArray[np.uint16]  # (T,) lead, a, b and trail of each pair, pair after pair, without special tokens
    parts: Parts  # of each pair; b is 0 in a segment without a partner
    documents: NDArray[np.int64]  # (P,) ordinal in the corpus of each pair's document
    pairs: NDArray[np.int64]  # (R,) the number of each row's pairs

    def add_up(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns int64[R], the sum of `values`, int64[P], over the pairs of each row."""
        sums, ends = np.append(0, np.cumsum(values)), np.cumsum(self.pairs)  # (P + 1,), (R,)
        return sums[ends] - sums[ends - self.pairs]


def write_shard(path: Path, rows: ShardRows) -> ShardFile:
    """Writes one shard atomically, as a single Arrow record batch. Equal rows always give equal bytes."""

    def array(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
        # `pa.array` would import pandas, which takes longer than a small job.
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])

    def offsets(lengths: NDArray[np.int64]) -> pa.Array:
        return array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), pa.int64()).cast(pa.int32())

    token_offsets, pair_offsets = offsets(rows.add_up(rows.parts.total())), offsets(rows.pairs)
    columns = [
        pa.ListArray.from_arrays(token_offsets, array(rows.tokens.astype(np.uint16, copy=False), pa.uint16())),
        *(pa.ListArray.from_arrays(pair_offsets, array(part.astype(np.uint16), pa.uint16())) for part in rows.parts),
        pa.ListArray.from_arrays(pair_offsets, array(rows.documents.astype(np.uint32), pa.uint32())),
    ]
    with replacing(path) as temporary, temporary.open("wb") as sink, pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
    return describe_file(path, len(rows.pairs))


def _join(slices: Sequence[tuple[NDArray[Any], ...]]) -> tuple[ShardRows, NDArray[np.int64]]:
    """Joins what `ShardColumns.between` returns. Also returns the tokens of each row by its offsets, int64[R]."""
    token_offsets, pair_offsets, *columns = zip(*slices)
    lengths, pairs = (
        np.concatenate([of_slice[1:] - of_slice[:-1] for of_slice in offsets]).astype(np.int64)
        for offsets in (token_offsets, pair_offsets)
    )
    tokens, *parts, documents = (np.concatenate(column) for column in columns)
    return ShardRows(tokens, Parts(*(p.astype(np.int64) for p in parts)), documents.astype(np.int64), pairs), lengths


def _wrong_rows(rows: ShardRows, lengths: NDArray[np.int64], manifest: ShardManifest) -> NDArray[np.bool_]:
    """Returns which rows are impossible, bool[R].

    Their tokens are not those of their parts; they have more positions or pairs than the manifest says, or none; or a
    token or document that does not exist.
    """
    wrong = (rows.add_up(rows.parts.total()) != lengths) | (rows.pairs < 1)
    wrong |= rows.add_up(rows.parts.positions()) > manifest.max_seq_length
    wrong |= rows.pairs > manifest.counts.max_pairs_in_row
    for ids, limit, per_row in (
        (rows.tokens, manifest.vocabulary_size, lengths),
        (rows.documents, manifest.counts.documents, rows.pairs),
    ):
        if ids.max(initial=0) >= max(1, limit):
            wrong[np.searchsorted(np.cumsum(per_row), np.flatnonzero(ids >= limit), side="right")] = True
    return wrong


class ShardSet(Sequence[ShardRows]):
    """The rows of a shard set, numbered across its shards. `open_shards` makes it.

    Threads may read at the same time. A copy in another process (by fork or pickle) maps the files again.
    """

    def __init__(self, directory: Path, manifest: ShardManifest) -> None:
        self.directory, self.manifest = directory, manifest
        self._files = manifest.shards()
        self._paths = [directory / file.name for file in self._files]
        self._first_rows = np.cumsum([0, *(file.rows for file in self._files)]).tolist()
        self._mapped: list[ShardColumns | None] = [None] * len(self._files)

    def __len__(self) -> int:
        return self._first_rows[-1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_mapped": [None] * len(self._files)}

    def __getitem__(self, index: Any) -> Any:
        return self.row(index)

    def _columns(self, shard: int) -> ShardColumns:
        columns = self._mapped[shard]
        if columns is None:  # two threads may both map it, which does no harm
            columns = self._mapped[shard] = map_shard(self._paths[shard], self._files[shard].rows)
        return columns

    def row(self, index: int) -> ShardRows:
        """Returns row `index`, 0 to len - 1. IndexError: there is no such row. UserError: its shard is damaged."""
        return self.rows(np.array([index]))

    def rows(self, indices: NDArray[np.int64]) -> ShardRows:
        """Returns the rows `indices`, int64[R], one after another. IndexError: no such row. UserError: damage."""
        if indices.size and (indices.min() < 0 or indices.max() >= len(self)):
            raise IndexError(f"rows {indices.min()} to {indices.max()} of a shard set of {len(self)} rows")
        shards = np.searchsorted(self._first_rows, indices, side="right") - 1
        rows = indices - np.array(self._first_rows)[shards]
        # Rows that follow one another in a shard are read at once: a run adds a slice to the list.
        begins = np.flatnonzero((np.diff(rows, prepend=-1) != 1) | (np.diff(shards, prepend=-1) != 0))
        counts = np.append(begins[1:], len(rows)) - begins
        slices = [] if indices.size else [self._columns(0).between(0, 0)]
        for shard, row, count in zip(shards[begins].tolist(), rows[begins].tolist(), counts.tolist()):
            slices.append(self._columns(shard).between(row, row + count))
        stored, lengths = _join(slices)
        if (wrong := _wrong_rows(stored, lengths, self.manifest)).any():
            fault = f"row {indices[wrong][0]} of {self.directory} has impossible lengths or tokens"
            raise UserError(f"{fault}; run `python -m data_prep verify {self.directory}`")
        return stored


def open_shards(path: Path) -> ShardSet:
    """Opens the shard set in directory `path`. Checks its manifest and the sizes of its files, not their contents.

    UserError: see `read_manifest`; or a file is missing or has another size than the manifest records.
    """
    directory = Path(path)
    manifest = read_manifest(directory)
    for file in manifest.files:
        if not file.is_in(directory):
            fault = f"is missing or does not have {file.bytes} bytes"
            raise UserError(f"{directory / file.name} {fault}; copy it again or make the shards again")
    return ShardSet(directory, manifest)


def read_vocabulary(directory: Path, manifest: ShardManifest) -> Vocabulary:
    """The vocabulary of the shard set in `directory`. UserError: it is damaged, or another one than its manifest's."""
    vocabulary = load_vocabulary(directory)
    if vocabulary.sha256 != manifest.vocabulary_sha256 or len(vocabulary) != manifest.vocabulary_size:
        fault = f"{find_vocabulary(directory)} is not the vocabulary that the shards were made with"
        raise UserError(f"{fault}; copy it again or make the shards again")
    return vocabulary


def problem_of(directory: Path, file: ShardFile, manifest: ShardManifest) -> str:
    """Describes what is wrong with one file of the shard set in `directory`; "" if nothing is."""
    if problem := problem_of_file(directory / file.name, file):
        return problem
    try:
        if file in manifest.shards():
            check_rows(directory / file.name, file.rows, manifest)
        elif file.name in VOCABULARY_FILES:
            read_vocabulary(directory, manifest)
    except UserError as error:
        return str(error)
    return ""
