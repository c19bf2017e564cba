"""The measurement of what extraction loses reads damaged exports too, as extraction does."""

import bz2
from pathlib import Path

import pytest

from benchmarks import extract_gaps
from data_prep.corpus.documents import Document
from tests.data_prep.sources.test_wikipedia import export, long_pages, read


def test_damage_costs_the_pages_in_it_and_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "wiki.xml.bz2"
    content = bytearray(bz2.compress(export(*long_pages(12)).encode(), 1))
    path.write_bytes(content)
    whole = extract_gaps.measure(path)
    assert (whole.articles, whole.skipped) == (12, 0)

    content[len(content) // 2] ^= 0x5A
    path.write_bytes(content)
    items = read(path)
    report = extract_gaps.measure(path)
    assert report.articles == sum(isinstance(item, Document) for item in items) < 12
    assert report.skipped == len(items) - report.articles >= 2  # a page that is cut, and the block that cuts it
    assert extract_gaps.main(["--export", str(path)]) == 0
    assert f"\n{report.skipped} damaged blocks and broken pages were skipped\n" in capsys.readouterr().out
