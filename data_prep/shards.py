"""The shard format: what training reads.

A shard set is a directory: `shard-00000.arrow`, ... (Arrow IPC streams, as `datasets.Dataset.from_file` maps them),
`spiece.model` (the vocabulary), `README.md` (the dataset card) and `manifest.json`, which is written last.

A row is a pack: as many segment pairs as fit into `max_seq_length` positions, as tokens and boundaries. It stores
what does not change: no special tokens, no padding, no masks, A and B in the order of the document. Those are
drawn when a row is read, so one shard set serves every objective and every epoch.
"""

import bisect
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from data_prep.atomic import replacing, write_text
from data_prep.documents import content_checksum, file_checksum
from data_prep.errors import UserError
from data_prep.pairs import Parts

FORMAT_VERSION = 1
MANIFEST, VOCABULARY, CARD, DUPLICATES = "manifest.json", "spiece.model", "README.md", "duplicates.jsonl"

SCHEMA = pa.schema(
    [
        pa.field("tokens", pa.list_(pa.uint16()), nullable=False),
        pa.field("leads", pa.list_(pa.uint16()), nullable=False),
        pa.field("a_lengths", pa.list_(pa.uint16()), nullable=False),
        pa.field("b_lengths", pa.list_(pa.uint16()), nullable=False),
        pa.field("trails", pa.list_(pa.uint16()), nullable=False),
        pa.field("documents", pa.list_(pa.uint32()), nullable=False),
    ]
)


class Row(NamedTuple):
    """One pack of P pairs and T tokens.

    tokens: uint16[T], lead, a, b and trail of each pair, pair after pair, without special tokens; a view of the mapped
    file: do not write.
    parts: int64[P] each, tokens of each part (data_prep/pairs.py); b is 0 in a segment without a partner.
    documents: int64[P], ordinal of each pair's document in the corpus.
    """

    tokens: NDArray[np.uint16]
    parts: Parts
    documents: NDArray[np.int64]


@dataclass(frozen=True)
class ShardFile:
    """One file of the set: its name, size in bytes, xxh3_128 of its content, and rows (0 where it is no shard)."""

    name: str
    bytes: int
    xxh3_128: str
    rows: int = 0


@dataclass
class Counts:
    """What a shard set amounts to.

    documents, sentences: read, with those left out. documents_left_out, tokens_left_out: under `min_tokens`.
    duplicates_left_out: documents that have a twin; no other figure but `documents` counts them.
    pairs, pairs_without_b: segment pairs, and those that are one segment. tokens: in all pairs, without special ones.
    unknown_tokens: of these, <unk>. text_bytes: of the documents, in UTF-8. rows; max_pairs_in_row.
    fill: share of the rows' positions that hold a token, special ones included.
    sentences_per_document: documents by number of sentences; entry i counts those of 2**(i-1) to 2**i - 1.
    """

    documents: int = 0
    sentences: int = 0
    pairs: int = 0
    tokens: int = 0
    rows: int = 0
    fill: float = 0.0
    max_pairs_in_row: int = 0
    pairs_without_b: int = 0
    documents_left_out: int = 0
    tokens_left_out: int = 0
    duplicates_left_out: int = 0
    unknown_tokens: int = 0
    text_bytes: int = 0
    sentences_per_document: list[int] = field(default_factory=list)


@dataclass
class Manifest:
    """What `manifest.json` says.

    vocabulary_sha256, vocabulary_size: of `spiece.model`. normalization: of the text before it was encoded.
    max_seq_length: positions of a row. seed, short_seq_prob, min_tokens, pack, split: the options of the job.
    dedup: how duplicates were found. duplicates: the first of them (all are in `duplicates.jsonl`), "removed" and
    "kept", each [directory, id]. compared_digest: of the documents that were compared.
    documents_digest: of the corpus. sources: the directories it came from, with their counts. files: every other file.
    """

    vocabulary_sha256: str
    vocabulary_size: int
    normalization: str
    max_seq_length: int
    seed: int
    short_seq_prob: float
    min_tokens: int
    pack: bool
    split: str
    documents_digest: str
    sources: list[dict[str, Any]]
    counts: Counts
    files: list[ShardFile]
    dedup: str = "none"
    compared_digest: str = ""
    duplicates: list[dict[str, list[str]]] = field(default_factory=list)
    format_version: int = FORMAT_VERSION

    def shards(self) -> list[ShardFile]:
        """The files that hold rows, in order."""
        return [file for file in self.files if file.name.startswith("shard-")]


def shard_name(index: int) -> str:
    """File name of shard `index`."""
    return f"shard-{index:05d}.arrow"


def describe_file(path: Path, rows: int = 0) -> ShardFile:
    """The manifest's entry of a file that stands complete at `path`."""
    return ShardFile(path.name, path.stat().st_size, file_checksum(path), rows)


def write_shard(
    path: Path,
    tokens: NDArray[np.uint16],
    tokens_per_row: NDArray[np.int64],
    parts: Parts,
    documents: NDArray[np.int64],
    pairs_per_row: NDArray[np.int64],
) -> ShardFile:
    """Writes one shard as a single record batch, atomically; the same rows always give the same bytes.

    Args:
        tokens: of all rows, one after the other. tokens_per_row: int64[R].
        parts, documents: of all pairs of all rows. pairs_per_row: int64[R].
    """

    def offsets(lengths: NDArray[np.int64]) -> pa.Array:
        return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())

    token_offsets, pair_offsets = offsets(tokens_per_row), offsets(pairs_per_row)
    columns = [
        pa.ListArray.from_arrays(token_offsets, pa.array(tokens, pa.uint16())),
        *(pa.ListArray.from_arrays(pair_offsets, pa.array(part.astype(np.uint16))) for part in parts),
        pa.ListArray.from_arrays(pair_offsets, pa.array(documents.astype(np.uint32))),
    ]
    with replacing(path) as temporary:
        with pa.OSFile(str(temporary), "wb") as sink, pa.ipc.new_stream(sink, SCHEMA) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        described = describe_file(temporary, len(tokens_per_row))
    return ShardFile(path.name, described.bytes, described.xxh3_128, described.rows)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Writes `manifest.json`: the shard set is complete from then on."""
    content = asdict(manifest)
    content["xxh3_128"] = content_checksum(content)
    write_text(directory / MANIFEST, json.dumps(content, indent=1) + "\n")


def read_manifest(directory: Path) -> Manifest:
    """Reads `manifest.json`.

    Raises:
        UserError: no shard set, an unfinished one, a damaged manifest, or one of another format version.
    """
    path = directory / MANIFEST
    if not directory.is_dir():
        raise UserError(f"{directory} is not a directory; name one that `python -m data_prep shards` wrote")
    if not path.is_file():
        remedy = "run the same `shards` command again to finish it"
        if not (directory / ".units").exists():
            remedy = "name a directory that `python -m data_prep shards` wrote"
        raise UserError(f"{directory} has no {MANIFEST}; {remedy}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        checksum = content.pop("xxh3_128")
        version = content["format_version"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error}); make the shards again") from error
    if version != FORMAT_VERSION:
        raise UserError(
            f"{path} has format version {version}, this program reads {FORMAT_VERSION}; make the shards again"
        )
    if checksum != content_checksum(content):
        raise UserError(f"{path} is damaged (its checksum does not fit its content); make the shards again")
    content["counts"] = Counts(**content["counts"])
    content["files"] = [ShardFile(**file) for file in content["files"]]
    return Manifest(**content)


class _Columns(NamedTuple):
    """One mapped shard: offsets and values of each list column, as views of the file."""

    token_offsets: NDArray[np.int32]
    tokens: NDArray[np.uint16]
    pair_offsets: NDArray[np.int32]
    parts: tuple[NDArray[np.uint16], ...]
    documents: NDArray[np.uint32]


def map_shard(path: Path) -> _Columns:
    """Maps one shard into memory; nothing is read before it is looked at, and no file stays open.

    Raises:
        UserError: the file is not a shard.
    """
    try:
        # The arrays keep the mapping alive; closing the file here gives its descriptor back, of which a set of
        # thousands of shards would use up all.
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
            if reader.schema != SCHEMA:
                raise UserError(f"{path} has other columns than a shard; make the shards again")
            batch = reader.read_next_batch()
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise UserError(
            f"{path} cannot be read as a shard ({error}); run `python -m data_prep verify {path.parent}`"
        ) from error
    tokens, *parts, documents = batch.columns
    return _Columns(
        tokens.offsets.to_numpy(),
        tokens.values.to_numpy(),
        documents.offsets.to_numpy(),
        tuple(part.values.to_numpy() for part in parts),
        documents.values.to_numpy(),
    )


class ShardSet(Sequence[Row]):
    """The rows of a shard set, numbered through all of its shards; `open_shards` makes one.

    Any row is found in O(log shards) and read without a copy of its tokens. Threads may read at the same time, and
    a copy in another process (by fork or pickle) maps the files anew.
    """

    def __init__(self, directory: Path, manifest: Manifest) -> None:
        self.directory, self.manifest = directory, manifest
        self._files = manifest.shards()
        self._first_rows = np.cumsum([0, *(file.rows for file in self._files)]).tolist()
        self._mapped: list[_Columns | None] = [None] * len(self._files)

    def __len__(self) -> int:
        return self._first_rows[-1]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_mapped": [None] * len(self._files)}

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self.row(i) for i in range(*index.indices(len(self)))]
        return self.row(index + len(self) if index < 0 else index)

    def row(self, index: int) -> Row:
        """Row `index`, 0 to len - 1. IndexError outside; UserError where its shard cannot be read."""
        if not 0 <= index < len(self):
            raise IndexError(f"row {index} of a shard set of {len(self)} rows")
        shard = bisect.bisect_right(self._first_rows, index) - 1
        columns = self._mapped[shard]
        if columns is None:  # two threads may both map it: the same content, and one of them stays
            columns = self._mapped[shard] = map_shard(self.directory / self._files[shard].name)
        row = index - self._first_rows[shard]
        first_token, last_token = columns.token_offsets[row], columns.token_offsets[row + 1]
        first_pair, last_pair = columns.pair_offsets[row], columns.pair_offsets[row + 1]
        return Row(
            columns.tokens[first_token:last_token],
            Parts(*(part[first_pair:last_pair].astype(np.int64) for part in columns.parts)),
            columns.documents[first_pair:last_pair].astype(np.int64),
        )


def open_shards(path: Path) -> ShardSet:
    """Opens the shard set in directory `path`; checks its manifest and the sizes of its files, not their contents.

    Raises:
        UserError: see `read_manifest`; or a file is missing or has another size than recorded.
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
