"""Blocks from the middle of a .bz2 file equal the bytes that the standard library decompresses."""

import bz2
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common.errors import UserError
from data_prep.sources.wikipedia import Bzip2File


def noise(count: int, seed: int = 0) -> bytes:
    """Returns text that compresses badly, so that a few hundred kB make several blocks."""
    return bytes(random.Random(seed).choices(b"abcdefghij klmnop\n", k=count))


@pytest.mark.parametrize("level", [1, 9])
def test_blocks_are_the_file(tmp_path: Path, level: int) -> None:
    content = noise(1_200_000)
    path = tmp_path / "a.bz2"
    path.write_bytes(bz2.compress(content, level))
    blocks = list(Bzip2File(path).blocks(0))
    assert b"".join(text for _, text in blocks) == content
    assert len(blocks) >= (12 if level == 1 else 2)
    for start in (1, blocks[1][0], blocks[1][0] + 1, path.stat().st_size - 20):
        assert list(Bzip2File(path).blocks(start)) == [block for block in blocks if block[0] >= start]


def test_several_streams_are_one_file(tmp_path: Path) -> None:
    parts = [noise(250_000, seed) for seed in range(3)] + [b"", b"end"]
    path = tmp_path / "multistream.bz2"
    path.write_bytes(b"".join(bz2.compress(part, 1) for part in parts))
    assert b"".join(text for _, text in Bzip2File(path).blocks(0)) == b"".join(parts)


def test_what_is_not_whole_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.bz2"
    whole = bz2.compress(noise(300_000), 1)
    path.write_bytes(whole[:-30])
    with pytest.raises(UserError, match="cut off"):
        Bzip2File(path)
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    with pytest.raises(UserError, match="not a bzip2 file"):
        Bzip2File(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "a.bz2"
    path.write_bytes(bz2.compress(noise(500_000), 1))
    return path


@pytest.mark.parametrize("stretch", [1, 120_000])
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0.05, 0.95), start=st.floats(0, 1))
def test_a_damaged_stretch_costs_the_blocks_that_it_touches(
    whole: Path, tmp_path: Path, stretch: int, place: float, start: float
) -> None:
    content = bytearray(whole.read_bytes())
    blocks = list(Bzip2File(whole).blocks(0))
    first = int(place * (len(content) - stretch))
    stop = first + stretch
    content[first:stop] = bytes(byte ^ 0x5A for byte in content[first:stop])
    path = tmp_path / "a.bz2"
    path.write_bytes(content)
    found = list(Bzip2File(path).blocks(0))
    read = {block for block in found if block[1] is not None}
    # A block ends with the mark of the next one, at any bit, and is lost with it.
    ends = [position for position, _ in blocks[1:]] + [len(content)]
    assert {block for block, end in zip(blocks, ends) if end + 7 < first or block[0] > stop} <= read
    assert read <= {block for block, end in zip(blocks, ends) if end < first or block[0] >= stop - 1}
    assert len(found) > len(read)  # the damage is told
    begin = int(start * len(content))
    assert list(Bzip2File(path).blocks(begin)) == [block for block in found if block[0] >= begin]
