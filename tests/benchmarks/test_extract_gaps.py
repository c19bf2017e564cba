"""The measurement of what extraction loses reads damaged exports too, as extraction does."""

import bz2
import random
from pathlib import Path

import pytest

from benchmarks import extract_gaps
from data_prep.corpus.documents import Document
from tests.data_prep.sources.test_wikipedia import export, page, read


def test_damage_costs_the_pages_in_it_and_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = random.Random(0)
    pages = [
        page(i, f"T{i}", " ".join(f"It is {words.getrandbits(60)}." for _ in range(1500))) for i in range(12)
    ]  # about 40 kB each, in blocks of 100 kB
    path = tmp_path / "wiki.xml.bz2"
    content = bytearray(bz2.compress(export(*pages).encode(), 1))
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
