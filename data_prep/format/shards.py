"""The shard format, which training reads.

A shard set is a directory of `shard-00000.arrow`, ... (Arrow IPC streams, which `datasets.Dataset.from_file` can map),
`spiece.model` (the vocabulary), `README.md` (the dataset card) and `manifest.json`, which is written last.

A row contains as many segment pairs as fit into `max_seq_length` positions, as tokens and lengths. It stores what does
not change: A and B in the order of the document, without special tokens, padding or masks. Training adds those, and
swaps A and B, when it reads a row. So one shard set serves every objective and every epoch.
"""

import bisect
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
from annotated_types import Interval
from numpy.typing import NDArray

from common.errors import UserError
from common.files.atomic import replacing, write_text
from common.files.checksums import content_checksum, file_checksum
from common.files.json_files import Count, Probability, check_as, read_object
from common.files.names import plain_name, refuse_link
from data_prep.format.columns import SCHEMA, ShardColumns, map_shard
from data_prep.format.pairs import Parts
from data_prep.text.languages import ENGLISH
from data_prep.text.vocabulary import Vocabulary

FORMAT_VERSION = 1
RULES_VERSION = 4
"""Version of the rules that split text into sentences and documents into spans. Rows made by others differ."""
MANIFEST, VOCABULARY, CARD, DUPLICATES = "manifest.json", "spiece.model", "README.md", "duplicates.jsonl"

LISTED = re.compile(rf"shard-\d{{5,}}\.arrow|{re.escape(VOCABULARY)}|{re.escape(DUPLICATES)}")
"""The names of the files that a manifest lists."""

Rows = Annotated[int, Interval(ge=0, lt=2**31)]
"""Rows of one shard: its offsets are int32."""
Length = Annotated[int, Interval(ge=0, le=2**16)]
"""Pieces of a vocabulary, or tokens of a row: both are stored as uint16."""


class ShardRow(NamedTuple):
    """One row of P pairs and T tokens.

    Attributes:
        tokens: uint16[T], lead, a, b and trail of each pair, pair after pair, without special tokens. It is a read-only
            view of the mapped file.
        parts: int64[P] each, numbers of tokens in each part (data_prep/format/pairs.py); b is 0 in a segment without a
            partner.
        documents: int64[P], ordinal in the corpus of each pair's document.
    """

    tokens: NDArray[np.uint16]
    parts: Parts
    documents: NDArray[np.int64]


class ShardRows(NamedTuple):
    """R rows one after another, copied: P pairs and T tokens in all.

    Attributes:
        tokens: uint16[T], as in `ShardRow`.
        parts, documents: int64[P] each, as in `ShardRow`.
        pairs: int64[R], the number of each row's pairs.
    """

    tokens: NDArray[np.uint16]
    parts: Parts
    documents: NDArray[np.int64]
    pairs: NDArray[np.int64]


@dataclass(frozen=True)
class ShardFile:
    """One file of a shard set: name, size in bytes, xxh3_128 of its content, and rows (0 if it is not a shard)."""

    name: str
    bytes: Count
    xxh3_128: str
    rows: Rows = 0


@dataclass
class ShardCounts:
    """Counts over a shard set.

    Attributes:
        documents, sentences: what was read, including what is left out.
        pairs, pairs_without_b: segment pairs, and those of them that are a single segment.
        tokens, unknown_tokens: tokens in all pairs without special tokens, and those of them that are <unk>.
        rows, max_pairs_in_row: rows, and the largest number of pairs in one.
        fill: fraction of the rows' positions that hold a token, special tokens included.
        documents_left_out, tokens_left_out: documents with fewer than `min_tokens` tokens, and their tokens.
        duplicates_left_out: duplicate documents; no other count but `documents` includes them.
        text_bytes: size of the documents in UTF-8.
        sentences_per_document: entry i counts the documents of 2**(i-1) to 2**i - 1 sentences.
    """

    documents: Count = 0
    sentences: Count = 0
    pairs: Count = 0
    tokens: Count = 0
    rows: Count = 0
    fill: Probability = 0.0
    max_pairs_in_row: Length = 0
    pairs_without_b: Count = 0
    documents_left_out: Count = 0
    tokens_left_out: Count = 0
    duplicates_left_out: Count = 0
    unknown_tokens: Count = 0
    text_bytes: Count = 0
    sentences_per_document: list[Count] = field(default_factory=list)


@dataclass
class ShardManifest:
    """The content of `manifest.json`.

    Attributes:
        vocabulary_sha256, vocabulary_size: hash and number of pieces of `spiece.model`.
        normalization: how the text was normalised before it was encoded.
        max_seq_length: positions in a row.
        seed, short_seq_prob, min_tokens, pack, split: the options of the job.
        documents_digest: hash of the corpus.
        sources: the directories that the documents came from, with their counts.
        files: all files but the manifest and the card.
        dedup: method by which duplicates were found.
        compared_digest: hash of the documents that were compared for duplicates.
        duplicates: the first duplicates: {"removed": [directory, id], "kept": [directory, id]}. All are in
            `duplicates.jsonl`.
        language: codes of the languages of the documents, separated by a comma. The file has it unless it is English.
        rules_version: version of the rules that made the rows; a file without it is of version 1.
    """

    vocabulary_sha256: str
    vocabulary_size: Length
    normalization: str
    max_seq_length: Length
    seed: Count
    short_seq_prob: Probability
    min_tokens: Count
    pack: bool
    split: str
    documents_digest: str
    sources: list[dict[str, Any]]
    counts: ShardCounts
    files: list[ShardFile]
    dedup: str = "none"
    compared_digest: str = ""
    duplicates: list[dict[str, list[str]]] = field(default_factory=list)
    language: str = ENGLISH
    rules_version: Count = 1
    format_version: int = FORMAT_VERSION

    def shards(self) -> list[ShardFile]:
        """Returns the files that contain rows, in order."""
        return [file for file in self.files if file.name.startswith("shard-")]


def shard_name(index: int) -> str:
    """Returns the file name of shard `index`."""
    return f"shard-{index:05d}.arrow"


def describe_file(path: Path, rows: int = 0) -> ShardFile:
    """Returns the manifest's entry of the complete file at `path`."""
    return ShardFile(path.name, path.stat().st_size, file_checksum(path), rows)


def write_shard(
    path: Path,
    tokens: NDArray[np.uint16],
    tokens_per_row: NDArray[np.int64],
    parts: Parts,
    documents: NDArray[np.int64],
    pairs_per_row: NDArray[np.int64],
) -> ShardFile:
    """Writes one shard of R rows atomically, as a single Arrow record batch. Equal rows always give equal bytes.

    Args:
        path: the file to write.
        tokens: tokens of all rows, one after the other.
        tokens_per_row: int64[R].
        parts, documents: parts and documents of all pairs of all rows.
        pairs_per_row: int64[R].
    """

    def array(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
        # `pa.array` would import pandas, which takes longer than a small job.
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])

    def offsets(lengths: NDArray[np.int64]) -> pa.Array:
        return array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), pa.int64()).cast(pa.int32())

    token_offsets, pair_offsets = offsets(tokens_per_row), offsets(pairs_per_row)
    columns = [
        pa.ListArray.from_arrays(token_offsets, array(tokens.astype(np.uint16, copy=False), pa.uint16())),
        *(pa.ListArray.from_arrays(pair_offsets, array(part.astype(np.uint16), pa.uint16())) for part in parts),
        pa.ListArray.from_arrays(pair_offsets, array(documents.astype(np.uint32), pa.uint32())),
    ]
    with replacing(path) as temporary:
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_stream(sink, SCHEMA) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        described = describe_file(temporary, len(tokens_per_row))
    return ShardFile(path.name, described.bytes, described.xxh3_128, described.rows)


def write_manifest(directory: Path, manifest: ShardManifest) -> None:
    """Writes `manifest.json`, which completes the shard set."""
    content = asdict(manifest)
    if manifest.language == ENGLISH:
        del content["language"]  # the same bytes as from versions that knew no other language
    content["xxh3_128"] = content_checksum(content)
    write_text(directory / MANIFEST, json.dumps(content, indent=1) + "\n")


def read_vocabulary(directory: Path, manifest: ShardManifest) -> Vocabulary:
    """The vocabulary of the shard set in `directory`. UserError: it is damaged, or another one than its manifest's."""
    vocabulary = Vocabulary.load(directory / VOCABULARY)
    if vocabulary.sha256 != manifest.vocabulary_sha256:
        raise UserError(
            f"{directory / VOCABULARY} is not the vocabulary that the shards were made with; "
            f"run `python -m data_prep verify {directory}`"
        )
    return vocabulary


def read_manifest(directory: Path) -> ShardManifest:
    """Reads `manifest.json`.

    Raises:
        UserError: `directory` is not a complete shard set, or the manifest is damaged or of another version.
    """
    path = directory / MANIFEST
    if not directory.is_dir():
        raise UserError(f"{directory} is not a directory; name one that `python -m data_prep shards` wrote")
    if not path.is_file():
        remedy = "run the same `shards` command again to finish it"
        if not (directory / ".units").exists():
            remedy = "name a directory that `python -m data_prep shards` wrote"
        raise UserError(f"{directory} has no {MANIFEST}; {remedy}")
    remedy = "copy it again or make the shards again"
    content = read_object(path, remedy)
    version = content.get("format_version")
    if version != FORMAT_VERSION:
        raise UserError(
            f"{path} has format version {version!r:.40}, this program reads {FORMAT_VERSION}; make the shards again"
        )
    if content.pop("xxh3_128", None) != content_checksum(content):
        raise UserError(f"{path} is damaged (its checksum does not fit its content); {remedy}")
    manifest = check_as(content, ShardManifest, path, remedy)
    for file in manifest.files:
        refuse_link(directory / plain_name(file.name, path, LISTED), path)
    names = [file.name for file in manifest.files]
    if len(set(names)) < len(names):
        raise UserError(f"{path} lists a file twice; {remedy}")
    if (rows := sum(file.rows for file in manifest.shards())) != manifest.counts.rows:
        raise UserError(f"{path} counts {manifest.counts.rows} rows, but its shards have {rows}; {remedy}")
    return manifest


class ShardSet(Sequence[ShardRow]):
    """The rows of a shard set, numbered across its shards. `open_shards` makes it.

    A row is found in O(log shards) and read without copying its tokens. Threads may read at the same time. A copy in
    another process (by fork or pickle) maps the files again.
    """

    def __init__(self, directory: Path, manifest: ShardManifest) -> None:
        self.directory, self.manifest = directory, manifest
        self._files = manifest.shards()
        self._first_rows = np.cumsum([0, *(file.rows for file in self._files)]).tolist()
        self._mapped: list[ShardColumns | None] = [None] * len(self._files)

    def __len__(self) -> int:
        return self._first_rows[-1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_mapped": [None] * len(self._files)}

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self.row(i) for i in range(*index.indices(len(self)))]
        return self.row(index + len(self) if index < 0 else index)

    def _columns(self, shard: int) -> ShardColumns:
        columns = self._mapped[shard]
        if columns is None:  # two threads may both map it, which does no harm
            file = self._files[shard]
            columns = self._mapped[shard] = map_shard(self.directory / file.name, file.rows)
        return columns

    def row(self, index: int) -> ShardRow:
        """Returns row `index`, 0 to len - 1. IndexError: there is no such row. UserError: its shard is damaged."""
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of a shard set of {len(self)} rows")
        shard = bisect.bisect_right(self._first_rows, index) - 1
        columns = self._columns(shard)
        row = index - self._first_rows[shard]
        first_token, last_token = columns.token_offsets[row], columns.token_offsets[row + 1]
        first_pair, last_pair = columns.pair_offsets[row], columns.pair_offsets[row + 1]
        tokens = columns.tokens[first_token:last_token]
        parts = Parts(*(part[first_pair:last_pair].astype(np.int64) for part in columns.parts))
        fits = int(parts.total().sum()) == len(tokens) <= self.manifest.max_seq_length
        if not fits or (len(tokens) and int(tokens.max()) >= self.manifest.vocabulary_size):
            raise UserError(
                f"row {index} of {self.directory} has lengths or tokens that cannot be; "
                f"run `python -m data_prep verify {self.directory}`"
            )
        return ShardRow(tokens, parts, columns.documents[first_pair:last_pair].astype(np.int64))

    def rows(self, indices: NDArray[np.int64]) -> ShardRows:
        """Returns the rows `indices`, int64[R], one after another. Raises what `row` raises."""
        if not indices.size:
            none = np.empty(0, np.int64)
            return ShardRows(none.astype(np.uint16), Parts(none, none, none, none), none, none)
        if indices.min() < 0 or indices.max() >= len(self):
            raise IndexError(f"rows {indices.min()} to {indices.max()} of a shard set of {len(self)} rows")
        shards = np.searchsorted(self._first_rows, indices, side="right") - 1
        rows = indices - np.array(self._first_rows)[shards]
        # Rows that follow one another in a shard are read at once: a run adds a slice to each of these lists.
        begins = np.flatnonzero((np.diff(rows, prepend=-1) != 1) | (np.diff(shards, prepend=-1) != 0))
        last = np.append(begins[1:], len(rows)) - 1
        tokens, token_offsets, pair_offsets, leads, a_lengths, b_lengths, trails, documents = ([] for _ in range(8))
        for shard, row, end in zip(shards[begins].tolist(), rows[begins].tolist(), (rows[last] + 2).tolist()):
            columns = self._columns(shard)
            of_tokens, of_pairs = columns.token_offsets[row:end], columns.pair_offsets[row:end]
            here = slice(of_pairs[0], of_pairs[-1])
            lead, a, b, trail = columns.parts
            tokens.append(columns.tokens[of_tokens[0] : of_tokens[-1]])
            token_offsets.append(of_tokens)
            pair_offsets.append(of_pairs)
            leads.append(lead[here])
            a_lengths.append(a[here])
            b_lengths.append(b[here])
            trails.append(trail[here])
            documents.append(columns.documents[here])
        within = np.ones(len(rows) + len(begins), dtype=np.bool_)  # offsets that end a row, not those that begin a run
        within[begins + np.arange(len(begins))] = False
        lengths, pairs = (
            np.diff(np.concatenate(offsets), prepend=0)[within].astype(np.int64)  # (R,)
            for offsets in (token_offsets, pair_offsets)
        )
        flat = np.concatenate(tokens)
        parts = Parts(*(np.concatenate(part).astype(np.int64) for part in (leads, a_lengths, b_lengths, trails)))
        ends = np.cumsum(pairs)
        totals = np.concatenate([[0], np.cumsum(parts.total())])  # (P + 1,)
        fits = np.array_equal(totals[ends] - totals[ends - pairs], lengths)
        fits = fits and int(lengths.max()) <= self.manifest.max_seq_length
        if not fits or (len(flat) and int(flat.max()) >= self.manifest.vocabulary_size):
            for index in indices.tolist():
                self.row(index)  # names the row
        return ShardRows(flat, parts, np.concatenate(documents).astype(np.int64), pairs)


def open_shards(path: Path) -> ShardSet:
    """Opens the shard set in directory `path`. Checks its manifest and the sizes of its files, not their contents.

    Raises:
        UserError: see `read_manifest`; or a file is missing or has another size than the manifest records.
    """
    directory = Path(path)
    manifest = read_manifest(directory)
    for file in manifest.files:
        there = directory / file.name
        if not there.is_file():
            raise UserError(f"{there} is missing; copy it again or make the shards again")
        if (size := there.stat().st_size) != file.bytes:
            raise UserError(f"{there} has {size} bytes instead of {file.bytes}; copy it again or make the shards again")
    return ShardSet(directory, manifest)
