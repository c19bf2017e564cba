"""The shard format: writing, reading, and messages for damaged sets."""

import contextlib
import json
import os
import pickle
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from common.errors import UserError
from data_prep.corpus.documents import opened_part
from data_prep.format import shard_manifest as manifests
from data_prep.format import shards
from data_prep.format.pairs import Parts


def test_a_shard_is_an_arrow_stream_of_the_documented_columns(tmp_path: Path) -> None:
    # Row 0: pairs of document 7 (parts 1, 1, 1, 0) and 8 (0, 3, 0, 0); row 1: one of document 70,000 (0, 1, 1, 0).
    tokens = np.array([10, 11, 12, 20, 21, 22, 65535, 31], np.uint16)
    parts = Parts(np.array([1, 0, 0]), np.array([1, 3, 1]), np.array([1, 0, 1]), np.array([0, 0, 0]))
    rows = shards.ShardRows(tokens, parts, np.array([7, 8, 70_000]), np.array([2, 1]))
    file = shards.write_shard(tmp_path / "shard-00000.arrow", rows)
    assert (file.name, file.rows, file.bytes) == ("shard-00000.arrow", 2, (tmp_path / file.name).stat().st_size)
    assert pa.ipc.open_stream(tmp_path / file.name).read_all().to_pylist() == [
        {"tokens": [10, 11, 12, 20, 21, 22], "leads": [1, 0], "a_lengths": [1, 3], "b_lengths": [1, 0]}
        | {"trails": [0, 0], "documents": [7, 8]},
        {"tokens": [65535, 31], "leads": [0], "a_lengths": [1], "b_lengths": [1], "trails": [0], "documents": [70_000]},
    ]
    # A change of the stored schema would make all shards useless.
    assert file.xxh3_128 == "618d41ed51ad9c5b872092544fa188e8"


def test_rows_are_numbered_through_all_shards(shard_directory: Path) -> None:
    rows = shards.open_shards(shard_directory)
    expected = [
        row
        for file in rows.manifest.shards()
        for row in pa.ipc.open_stream(shard_directory / file.name).read_all().to_pylist()
    ]
    assert len(rows.manifest.shards()) >= 3
    assert len(rows) == len(expected) == rows.manifest.counts.rows
    for index in (*range(len(rows)), 0, len(rows) - 1):
        row = rows.row(index)
        found = [row.tokens, *row.parts, row.documents]
        assert dict(zip(shards.SCHEMA.names, (values.tolist() for values in found))) == expected[index]
        assert [values.dtype for values in found] == [np.uint16] + [np.int64] * 5
    assert [row.tokens.tolist() for row in rows] == [row["tokens"] for row in expected]


def test_a_copy_reads_the_same_in_a_directory_of_any_name_and_no_file_stays_open(tmp_path, shard_directory):
    place = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))  # in Latin-1, as on old file systems
    shutil.copytree(shard_directory, place)
    before = len(os.listdir("/proc/self/fd"))
    rows = shards.open_shards(place)
    copied = pickle.dumps(rows)
    kept = [list(one) for one in (rows, pickle.loads(copied), shards.open_shards(shard_directory))]
    assert len(os.listdir("/proc/self/fd")) == before
    sums = [[int(row.tokens.sum()) for row in one] for one in kept]  # the mappings are alive
    assert sums[0] == sums[1] == sums[2]
    assert len(copied) < 10_000  # not the rows themselves


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("shard-00001.arrow", lambda path: os.truncate(path, 100), "is missing or does not have [0-9]+ bytes"),
        ("shard-00001.arrow", Path.unlink, "is missing or does not have [0-9]+ bytes"),
        ("manifest.json", lambda path: change(path, max_seq_length=128), "is damaged"),
        ("manifest.json", lambda path: change(path, format_version=1), "has format version 1"),
        ("manifest.json", lambda path: path.write_text('{"xxh3_128": 1'), "is no valid JSON"),
        ("manifest.json", lambda path: path.write_text("{}"), "has format version None"),
    ],
)
def test_damage_is_named_when_a_set_is_opened(copy: Path, name: str, damage: Callable, message: str) -> None:
    damage(copy / name)
    with pytest.raises(UserError, match=rf"{re.escape(name)} {message}"):
        shards.open_shards(copy)


def change(manifest: Path, **fields: int) -> None:
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | fields))


def lists(*values: list[int], kind: pa.DataType | None = None) -> pa.Array:
    return pa.array(values, pa.list_(kind or pa.uint16()))


def write_columns(path: Path, columns: list[pa.Array]) -> None:
    fields = zip(shards.SCHEMA.names, columns)
    schema = pa.schema([pa.field(name, column.type, nullable=False) for name, column in fields])
    with pa.ipc.new_stream(str(path), schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def test_a_file_that_is_no_shard_is_refused(copy: Path) -> None:
    path = copy / "shard-00001.arrow"
    path.write_bytes(b"\0" * path.stat().st_size)
    rows = shards.open_shards(copy)
    rows.row(0)
    with pytest.raises(UserError, match=r"shard-00001\.arrow cannot be read as a shard .*verify"):
        rows.row(rows.manifest.shards()[0].rows)
    right = [lists([5, 6], [7]), *[lists([1], [1])] * 4, lists([0], [1], kind=pa.uint32())]
    write_columns(path, right)
    with pytest.raises(UserError, match="has 2 impossible rows, the first is row 0"):  # whose parts have four tokens
        shards.check_rows(path, 2, rows.manifest)
    for columns, count, message in (
        (right, 2, None),
        (right, 3, "other columns than a shard, or not 3 rows"),
        ([*right[:5], lists([0], [1])], 2, "other columns"),
        ([right[0], lists([1, 1], []), *right[2:]], 2, "offsets that do not fit its columns"),
        ([lists([5, None], [7]), *right[1:]], 2, "offsets that do not fit its columns"),
    ):
        write_columns(path, columns)
        with pytest.raises(UserError, match=message) if message else contextlib.nullcontext():
            shards.map_shard(path, count)


def test_many_rows_are_read_as_one_by_one(shard_directory: Path) -> None:
    rows = shards.open_shards(shard_directory)
    drawn = np.random.default_rng(0).integers(0, len(rows), 30)
    # Neighbours, across the ends of shards as well; repeated rows; none at all.
    neighbours = (drawn[:, None] + np.arange(4)).ravel() % len(rows)
    for indices in (drawn, np.arange(len(rows)), np.repeat(drawn, 2), neighbours, drawn[:0]):
        found = rows.rows(indices)
        wanted = [rows.row(index) for index in indices.tolist()]
        assert found.tokens.tolist() == [token for row in wanted for token in row.tokens.tolist()]
        for column, part in enumerate(found.parts):
            assert part.tolist() == [length for row in wanted for length in row.parts[column].tolist()]
        assert found.documents.tolist() == [document for row in wanted for document in row.documents.tolist()]
        assert found.pairs.tolist() == [len(row.documents) for row in wanted]
    for outside in (-1, len(rows)):
        with pytest.raises(IndexError, match=f"of a shard set of {len(rows)} rows"):
            rows.rows(np.array([0, outside]))


def limited(manifest: manifests.ShardManifest, name: str, limit: int) -> manifests.ShardManifest:
    holder = manifest if hasattr(manifest, name) else manifest.counts
    changed = replace(holder, **{name: limit})
    return changed if holder is manifest else replace(manifest, counts=changed)


@pytest.mark.parametrize(
    ("limit", "measure"),
    [
        ("vocabulary_size", lambda row: int(row.tokens.max()) + 1),
        ("max_seq_length", lambda row: int(row.parts.positions().sum())),
        ("max_pairs_in_row", lambda row: len(row.documents)),
        ("documents", lambda row: int(row.documents.max()) + 1),
    ],
)
def test_rows_beyond_a_limit_of_the_manifest_are_named(shard_directory, limit, measure):
    rows = shards.open_shards(shard_directory)
    file = rows.manifest.shards()[0]
    sizes = [measure(row) for row in rows]
    wrong = [index for index, size in enumerate(sizes[: file.rows]) if size > max(sizes[: file.rows]) - 1]
    rows.manifest = limited(rows.manifest, limit, max(sizes[: file.rows]) - 1)
    with pytest.raises(UserError, match=f"row {wrong[0]} of .* has impossible lengths or tokens; run .* verify"):
        rows.rows(np.arange(file.rows))
    path = shard_directory / file.name
    with pytest.raises(UserError, match=f"has {len(wrong)} impossible rows, the first is row {wrong[0]}$"):
        shards.check_rows(path, file.rows, rows.manifest)
    shards.check_rows(path, file.rows, limited(rows.manifest, limit, max(sizes)))


def test_a_fifo_is_no_shard_and_no_file_of_documents(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(UserError, match=r"a cannot be read as a shard .*is no regular file"):
        shards.map_shard(tmp_path / "a", 1)
    with pytest.raises(UserError, match="is no regular file"), opened_part(tmp_path / "a"):
        pass
