"""Small inputs that would take much time or memory: each has a bound, and is one line or a skipped part."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import UserError
from data_prep.__main__ import main
from data_prep.sources import Skipped, wikipedia


@pytest.mark.parametrize("mark", ["{{a|", "[[a|", "{{a|[[b|"])
def test_a_page_that_is_nested_without_end_is_skipped(mark: str) -> None:
    def page(count: int) -> ElementTree.Element:
        text = f"<title>A</title><revision><text>{mark * count}It is one.</text></revision>"
        return wikipedia.parse_page(f"<page>{text}</page>".encode())

    deep = wikipedia.MAX_NESTING // len(re.findall(r"\{\{|\[\[", mark))
    assert [*wikipedia.article(page(deep + 1))] == [Skipped("A", "nested too deeply")]
    assert Skipped("A", "nested too deeply") not in wikipedia.article(page(deep))


@pytest.mark.parametrize("source", ["jsonl", "hub"])
def test_a_column_that_is_there_twice_is_one_line(tmp_path: Path, source: str) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table([["It is one."]] * 2, names=["text", "text"]), tmp_path / "in" / "a.parquet")
    with pytest.raises(UserError, match=r"2 columns called 'text'|Multiple matches for FieldRef"):
        main(["extract", "--source", source, "--input", str(tmp_path / "in"), "--out", str(tmp_path / "out")])
    assert source == "hub" or not (tmp_path / "out").exists()
