"""Small inputs that would take much time or memory: each has a bound, and is one line or a skipped part."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import UserError
from data_prep.__main__ import main
from data_prep.sources import Skipped, wikipedia
from tests.data_prep import corpora


@pytest.mark.parametrize("mark", ["{{a|", "[[a|", "{{a|[[b|"])
def test_a_page_that_is_nested_without_end_is_skipped(mark: str) -> None:
    def page(count: int) -> ElementTree.Element:
        text = f"<title>A</title><revision><text>{mark * count}It is one.</text></revision>"
        return wikipedia.parse_page(f"<page>{text}</page>".encode())

    deep = wikipedia.MAX_NESTING // len(re.findall(r"\{\{|\[\[", mark))
    assert wikipedia.article(page(deep + 1)) == Skipped("A", "nested too deeply")
    assert wikipedia.article(page(deep)) != Skipped("A", "nested too deeply")


@pytest.mark.parametrize("source", ["jsonl", "hub"])
def test_a_column_that_is_there_twice_is_one_line(tmp_path: Path, source: str) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table([["It is one."]] * 2, names=["text", "text"]), tmp_path / "in" / "a.parquet")
    with pytest.raises(UserError, match=r"2 columns called 'text'|Multiple matches for FieldRef"):
        main(["extract", "--source", source, "--input", str(tmp_path / "in"), "--out", str(tmp_path / "out")])
    assert source == "hub" or not (tmp_path / "out").exists()


@pytest.mark.slow
def test_too_little_address_space_is_one_line(documents_directory: Path, vocabulary_file: Path, tmp_path: Path) -> None:
    words = ["--documents", documents_directory, "--vocab", vocabulary_file, "--out", tmp_path / "set"]
    command = ["bash", "-c", f'ulimit -v {400 << 10} && exec "$@"', "-", sys.executable, "-m", "data_prep", "shards"]
    done = subprocess.run([*command, *map(str, words)], cwd=corpora.ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: ")
