"""The shard format: writing, reading, and messages for damaged sets."""

import base64
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml

from common.errors import UserError
from data_prep.format import manifest as manifests
from data_prep.format import shards
from data_prep.format.manifest import dataset_card
from data_prep.format.pairs import Parts

SECOND_ROW = {"tokens": [65535, 31], "leads": [0], "a_lengths": [1], "b_lengths": [1], "trails": [0]}
SECOND_ROW |= {"documents": [70_000]}


GOLDEN_SHARD = """
    eNrNU71SwkAQ3oQQIqaIM+hQMJrSwnEoKSgsKSx4A0HJCCM/jkSHksJxLFNYUFhQ+hg+g09gYWnhE3h+d7kEZgVJ6c7c7e193363d9kIIURkEn
    kkrUgu2ZQnByuYYSEmRA5mS88EBtGnQTTF8DFeEXc0Vv8WAs4tYfL1HihUxtiSvNHF7SAYhmOsq+AeKb5heppjUWzS98JgINf74Eit2ZJ2ZUm7
    pGsKb9q9PoQfwbvPoHsHjsS/NtR8ftYPhpdhV9b8Ae57Bu03rX0q/tZuL2mfgFsXm7WPRaz9Ita/Rx6jH7Q7UncG3lMG3Qet60FBfuuC+vqe7o
    3fdzhM3n10FQzHct9SWJxvs/z47MrKs23wLaWlzyKUImZmfBd1OO3pznSVKuUsdY85JVZE7Koulb37bMRaJi2sTOvN1d5j+x7zPsN9ll9leBLb
    2tcYXmP5DYY3WH6T4U2W32J4i+V3Gd5l+ROGT1j+lOFTlh8xPGJ4sjYZz2Exx3P/DE/exEm7bxv3KtEu+lSIg1QjyTOY9mI/l2Kcv2qf1ugUdC
    3XO0b6/0j/A1dChC4=
"""
"""The shard of `write_two_rows` as version 0.2 wrote it: an Arrow stream, compressed, in base64."""


def write_two_rows(path: Path) -> manifests.ShardFile:
    """Row 0: pairs of document 7 (parts 1, 1, 1, 0) and 8 (0, 3, 0, 0); row 1: one of document 70000 (0, 1, 1, 0)."""
    return shards.write_shard(
        path,
        tokens=np.array([10, 11, 12, 20, 21, 22, 65535, 31], np.uint16),
        tokens_per_row=np.array([6, 2]),
        parts=Parts(np.array([1, 0, 0]), np.array([1, 3, 1]), np.array([1, 0, 1]), np.array([0, 0, 0])),
        documents=np.array([7, 8, 70_000]),
        pairs_per_row=np.array([2, 1]),
    )


def test_a_shard_is_an_arrow_stream_of_the_documented_columns(tmp_path: Path) -> None:
    file = write_two_rows(tmp_path / "shard-00000.arrow")
    assert (file.name, file.rows, file.bytes) == ("shard-00000.arrow", 2, (tmp_path / file.name).stat().st_size)
    table = pa.ipc.open_stream(tmp_path / file.name).read_all()
    assert {field.name: str(field.type.value_type) for field in table.schema} == {
        "tokens": "uint16",
        "leads": "uint16",
        "a_lengths": "uint16",
        "b_lengths": "uint16",
        "trails": "uint16",
        "documents": "uint32",
    }
    assert table.to_pylist() == [
        {"tokens": [10, 11, 12, 20, 21, 22], "leads": [1, 0], "a_lengths": [1, 3], "b_lengths": [1, 0]}
        | {"trails": [0, 0], "documents": [7, 8]},
        SECOND_ROW,
    ]
    again = write_two_rows(tmp_path / "again.arrow")
    assert again.xxh3_128 == file.xxh3_128


def test_a_shard_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """A change of the stored schema, also of names and of what may be null, would make all shards useless."""
    path = tmp_path / "shard-00000.arrow"
    path.write_bytes(zlib.decompress(base64.b64decode("".join(GOLDEN_SHARD.split()))))
    columns = shards.map_shard(path, rows=2)
    write_two_rows(tmp_path / "now.arrow")
    for stored, now in zip(columns, shards.map_shard(tmp_path / "now.arrow", rows=2), strict=True):
        np.testing.assert_array_equal(stored, now)
    assert columns.tokens.tolist() == [10, 11, 12, 20, 21, 22, 65535, 31]
    assert [part.tolist() for part in columns.parts] == [[1, 0, 0], [1, 3, 1], [1, 0, 1], [0, 0, 0]]
    assert (columns.pair_offsets.tolist(), columns.documents.tolist()) == ([0, 2, 3], [7, 8, 70_000])


@pytest.mark.parametrize(("codes", "languages"), [("en", "en"), ("no", "no"), ("de,no", ["de", "no"])])
def test_the_card_names_the_languages(codes: str, languages: str | list[str]) -> None:
    files = [manifests.ShardFile("spiece.model", 1, "")]
    manifest = manifests.ShardManifest(
        *("", 9, "", 64, 0, 0.1, 16, True, "train", "", [], manifests.ShardCounts(), files), language=codes
    )
    assert yaml.safe_load(dataset_card(manifest).split("---\n")[1])["language"] == languages


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
    for outside in (-1, len(rows)):
        with pytest.raises(IndexError):
            rows.row(outside)
    assert rows[-1].tokens.tolist() == expected[-1]["tokens"]
    assert [row.tokens.tolist() for row in rows[1:3]] == [row["tokens"] for row in expected[1:3]]


def test_no_file_stays_open(shard_directory: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    rows = shards.open_shards(shard_directory)
    kept = [rows.row(index) for index in range(len(rows))]
    assert len(os.listdir("/proc/self/fd")) == before
    assert kept[-1].tokens.sum() > 0  # the mapping is alive


def test_threads_and_copies_read_the_same(shard_directory: Path) -> None:
    rows = shards.open_shards(shard_directory)
    some = range(0, len(rows), 9)
    expected = [rows.row(i).tokens.sum() for i in some]
    fresh = shards.open_shards(shard_directory)
    found: list[list[int]] = []
    threads = [
        threading.Thread(target=lambda: found.append([fresh.row(i).tokens.sum() for i in some])) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4
    copied = pickle.loads(pickle.dumps(rows))
    assert [copied.row(i).tokens.sum() for i in some] == expected
    assert len(pickle.dumps(rows)) < 10_000  # not the rows themselves


@pytest.fixture
def copy(shard_directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(shard_directory, tmp_path / "copy"))


def test_missing_and_truncated_files_are_named(copy: Path) -> None:
    with (copy / "shard-00001.arrow").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(UserError, match=r"shard-00001\.arrow has 100 bytes instead of \d+"):
        shards.open_shards(copy)
    (copy / "shard-00001.arrow").unlink()
    with pytest.raises(UserError, match=r"shard-00001\.arrow is missing"):
        shards.open_shards(copy)


def test_a_changed_manifest_is_found(copy: Path) -> None:
    path = copy / "manifest.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"max_seq_length": 128}))
    with pytest.raises(UserError, match=r"manifest\.json is damaged"):
        shards.open_shards(copy)
    path.write_text(json.dumps(content | {"format_version": 2}))
    with pytest.raises(UserError, match="format version 2"):
        shards.open_shards(copy)
    for damage, message in (
        ("", r"manifest\.json is no valid JSON"),
        ('{"xxh3_128": 1', r"manifest\.json is no valid JSON"),
        ("[]", r"manifest\.json holds no JSON object"),
        ("{}", "format version None"),
    ):
        path.write_text(damage)
        with pytest.raises(UserError, match=message):
            shards.open_shards(copy)


def test_a_file_of_the_right_size_that_is_no_shard(copy: Path) -> None:
    path = copy / "shard-00001.arrow"
    path.write_bytes(b"\0" * path.stat().st_size)
    rows = shards.open_shards(copy)
    first = rows.manifest.shards()[0].rows
    rows.row(0)
    with pytest.raises(UserError, match=r"shard-00001\.arrow cannot be read as a shard .*verify"):
        rows.row(first)


@pytest.mark.parametrize("seed", range(4))
def test_many_rows_are_read_as_one_by_one(shard_directory: Path, seed: int) -> None:
    rows = shards.open_shards(shard_directory)
    drawn = np.random.default_rng(seed).integers(0, len(rows), 30)
    # Neighbours, across the ends of shards as well; repeated rows; none at all.
    for indices in (
        drawn,
        np.arange(len(rows)),
        np.repeat(drawn, 2),
        (drawn[:, None] + np.arange(4)).ravel() % len(rows),
        drawn[:0],
    ):
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


@pytest.mark.parametrize("limit", ["vocabulary_size", "max_seq_length"])
def test_a_row_that_cannot_be_is_named(shard_directory: Path, limit: str) -> None:
    rows = shards.open_shards(shard_directory)
    sizes = [int(row.tokens.max()) if limit == "vocabulary_size" else len(row.tokens) - 1 for row in rows]
    worst = int(np.argmax(sizes))
    setattr(rows.manifest, limit, max(sizes))
    for read in (lambda: rows.row(worst), lambda: rows.rows(np.arange(len(rows)))):
        with pytest.raises(UserError, match=f"row {worst} of .* has lengths or tokens that cannot be; run .* verify"):
            read()


def test_a_stream_of_other_columns(copy: Path) -> None:
    table = pa.table({"text": ["a"]})
    with pa.ipc.new_stream(str(copy / "shard-00000.arrow"), table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(UserError, match="other columns"):
        shards.map_shard(copy / "shard-00000.arrow", 1)


def flip_in_place(path: Path, values: np.ndarray) -> None:
    """Flips the lowest bit of the first of `values`, which are stored in the file `path`. Its size stays."""
    with path.open("r+b") as file:
        place = file.read().index(values.tobytes())
        file.seek(place)
        file.write((values[:1] ^ 1).tobytes())


@pytest.mark.parametrize("column", ["tokens", "documents"])
def test_bytes_that_change_while_the_set_is_in_use_are_named_with_file_and_row(copy: Path, column: str) -> None:
    rows = shards.open_shards(copy)
    first, second = rows.manifest.shards()[:2]
    assert second.rows > 2 * shards.BLOCK_ROWS
    rows.expect({file.name: shards.block_checksums(copy / file.name, file.rows) for file in (first, second)})
    everything = np.arange(len(rows))
    rows.rows(everything)
    changed = first.rows + shards.BLOCK_ROWS + 3
    columns = shards.map_shard(copy / second.name, second.rows)
    offsets = columns.token_offsets if column == "tokens" else columns.pair_offsets
    flip_in_place(copy / second.name, getattr(columns, column)[offsets[shards.BLOCK_ROWS + 3] :][:60])
    message = rf"{second.name} has changed since .*: the 16 rows that include row \d+ of the set .*verify {copy}"
    for indices in (np.array([changed]), np.array([0, changed + 1]), everything):
        with pytest.raises(UserError, match=message):
            rows.rows(indices)
    rows.rows(everything[: first.rows + shards.BLOCK_ROWS])
    rows.rows(everything[first.rows + 2 * shards.BLOCK_ROWS :])


def test_a_shard_that_becomes_shorter_while_it_is_read_is_one_line(copy: Path) -> None:
    script = """
import os, sys
from pathlib import Path
import numpy as np
from data_prep.format.shards import open_shards
rows = open_shards(Path(sys.argv[1]))
rows.rows(np.arange(len(rows)))
for path in Path(sys.argv[1]).glob("*.arrow"):
    os.truncate(path, 100)
rows.rows(np.arange(len(rows)))
"""
    done = subprocess.run([sys.executable, "-c", script, copy], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.fullmatch(rf"error: {copy}\S* became shorter or unreadable while it was read; .*\n", done.stderr)
