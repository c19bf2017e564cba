"""Small inputs that would take much time or memory: each has a bound, and is one line or a skipped part."""

import bz2
import gzip
import html
import io
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import UserError
from data_prep.__main__ import main
from data_prep.sources import Skipped, opening, wikipedia
from data_prep.sources.opening import lines
from data_prep.sources.records import Fields, Records
from tests.data_prep import corpora
from tests.data_prep.sources.test_records import zstd

PACKERS: dict[str, Callable[[bytes], bytes]] = {"bz2": bz2.compress, "gz": gzip.compress, "zst": zstd}


@pytest.mark.parametrize("ending", [*PACKERS, ""])
def test_empty_lines_without_end_are_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str) -> None:
    monkeypatch.setattr(opening, "MAX_BLANK_LINES", 1000)
    path = tmp_path / f"a.jsonl{'.' * bool(ending)}{ending}"
    pack = PACKERS.get(ending, bytes)
    path.write_bytes(pack(b'{"text": "It is one."}\n' + b"\n" * 1000 + b'{"text": "It is two."}\n'))
    source = Records([path], Fields(), 1 << 20)
    assert len(list(source.read(source.units[0]))) == 2
    path.write_bytes(pack((b'{"text": "It is one."}\n' + b"\n" * 600) * 3))
    assert len(list(source.read(Records([path], Fields(), 1 << 20).units[0]))) == 3
    path.write_bytes(pack(b'{"text": "It is one."}\n' + b"\n" * 1001 + b'{"text": "It is two."}\n'))
    source = Records([path], Fields(), 1 << 20)
    _, skipped = source.read(source.units[0])
    assert isinstance(skipped, Skipped)
    path.write_bytes(pack(b"\n" * 5000))
    with pytest.raises(UserError, match="line 1001: damaged"):
        Records([path], Fields(), 1 << 20)


@pytest.mark.parametrize("ending", ["bz2", "zst"])
def test_a_compressed_file_gives_no_more_than_text_could(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr(opening, "MAX_TEXT_BYTES", 100_000)
    monkeypatch.setattr(opening, "MAX_RATIO", 100)
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(PACKERS[ending](b'{"text": "It is one."}\n' + b"x" * (8 << 20)))
    found = list(lines(path))
    assert [line.content is None for line in found] == [False, False, True]
    assert found[-1].offset < 100_000 + 100 * path.stat().st_size + (2 << 20), "the rest was not read"


def test_a_line_that_goes_on_behind_its_unit_is_not_read_by_each_unit(tmp_path: Path) -> None:
    """A file of 100 GB without a line end would otherwise be read from each unit to its end."""
    reads = []

    class Counted(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            reads.append(size or 0)
            return super().readline(size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opening, "open_input", lambda path: Counted(b"x" * (8 << 20)))
        assert list(lines(tmp_path / "a.jsonl", 1 << 20, 2 << 20)) == []
    assert sum(reads) <= 2 << 20


@pytest.mark.parametrize("job", ["jsonl", "books", "wikipedia"])
def test_a_file_that_is_a_hole_is_refused_before_work(tmp_path: Path, job: str) -> None:
    path = tmp_path / {"jsonl": "a.jsonl", "books": "a.txt", "wikipedia": "a.xml"}[job]
    path.write_text('{"text": "It is one."}\n')
    with path.open("r+b") as file:
        file.truncate(100 << 30)
    with pytest.raises(UserError, match=r"a\.\w+ claims 107,374,182,400 bytes and has [\d,]+ on its disk"):
        main(["extract", "--source", job, "--input", str(path), "--out", str(tmp_path / "out")])


@pytest.mark.parametrize("mark", ["{{a|", "[[a|", "{{a|[[b|"])
def test_a_page_that_is_nested_without_end_is_skipped(mark: str) -> None:
    def page(count: int) -> ElementTree.Element:
        text = f"<title>A</title><revision><text>{mark * count}It is one.</text></revision>"
        return wikipedia.parse_page(f"<page>{text}</page>".encode())

    deep = wikipedia.MAX_NESTING // len(re.findall(r"\{\{|\[\[", mark))
    assert wikipedia.article(page(deep + 1)) == Skipped("A", "nested too deeply")
    assert wikipedia.article(page(deep)) != Skipped("A", "nested too deeply")


@pytest.mark.parametrize("mark", ["<b>", "<ref>", "<!--", "[http://a "])
def test_a_hundred_thousand_open_tags_take_no_time_to_speak_of(mark: str) -> None:
    """With a square of their number it would be a day."""
    text = html.escape(f"{mark * 100_000}It is one.")
    page = wikipedia.parse_page(f"<page><title>A</title><revision><text>{text}</text></revision></page>".encode())
    assert wikipedia.article(page) is not None


@pytest.mark.parametrize("source", ["jsonl", "hub"])
def test_a_column_that_is_there_twice_is_one_line(tmp_path: Path, source: str) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table([["It is one."]] * 2, names=["text", "text"]), tmp_path / "in" / "a.parquet")
    with pytest.raises(UserError, match=r"2 columns called 'text'|Multiple matches for FieldRef"):
        main(["extract", "--source", source, "--input", str(tmp_path / "in"), "--out", str(tmp_path / "out")])
    assert source == "hub" or not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("job", ["vocab", "shards"])
def test_too_little_address_space_is_one_line(
    documents_directory: Path, vocabulary_file: Path, tmp_path: Path, job: str
) -> None:
    words = {
        "vocab": ["--documents", documents_directory, "--out", tmp_path / "a.model", "--size", "300"],
        "shards": ["--documents", documents_directory, "--vocab", vocabulary_file, "--out", tmp_path / "set"],
    }[job]
    command = ["bash", "-c", f'ulimit -v {400 << 10} && exec "$@"', "-", sys.executable, "-m", "data_prep", job]
    done = subprocess.run([*command, *map(str, words)], cwd=corpora.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")
