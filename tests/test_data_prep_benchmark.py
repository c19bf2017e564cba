"""The benchmark of data preparation: its figures belong together, and its projections are arithmetic."""

import json
from pathlib import Path

import pytest

from benchmarks import data_prep as benchmark


def test_it_measures_and_writes_down(
    sample_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    books = tmp_path / "books"
    books.mkdir()
    for play in sorted((sample_corpus / "books").iterdir())[:3]:
        (books / play.name).write_bytes(play.read_bytes())
    monkeypatch.setattr(benchmark, "VERIFIED_BYTES", 1 << 20)
    documents, vocabulary = tmp_path / "documents", tmp_path / "small.model"
    benchmark.job("extract", "--source", "books", "--input", books, "--out", documents)
    benchmark.job("vocab", "--documents", documents, "--out", vocabulary, "--size", 500)
    words = ["--books", books, "--wikipedia", sample_corpus / "wikipedia", "--vocab", vocabulary, "--rounds", 1]
    assert benchmark.main([*map(str, words), "--out", str(tmp_path / "results" / "small")]) == 0
    result = json.loads((tmp_path / "results" / "small.json").read_text(encoding="utf-8"))
    page = (tmp_path / "results" / "small.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out.strip() in page
    assert result["format"] == "data_prep 1"
    assert result["prose"]["documents"] == 3
    assert 100e6 < result["peak_bytes"]["shards"] < 1e9
    assert result["fill"]["packed"] > 0.99 > result["fill"]["one pair a row"]
    assert result["rows"]["packed"] < result["rows"]["one pair a row"]
    assert {"sentencepiece", "rensa", "python"} <= result["versions"].keys()


def test_projections() -> None:
    found = {
        "two_ranks_to_one": 1.9,
        "wikitext": {"bytes": 500, "text_bytes": 250},
        "extract_wikipedia": 4e6,
        "extract_books": 5e6,
        "dedup": {"near": 20e6},
        "shards": 10e6,
    }
    # 16 GB on 64 ranks that are worth 60.8: 12 GB of text out of 24 GB of XML, 4 GB of books.
    hours = benchmark.projected_hours(found, 16e9)
    assert hours["shards"] == pytest.approx(16e9 / (60.8 * 10e6) / 3600)
    assert hours["dedup"] == pytest.approx(hours["shards"] / 2)
    assert hours["extract"] == pytest.approx((24e9 / 4e6 + 4e9 / 5e6) / 60.8 / 3600)


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--books", str(tmp_path / "nowhere"), "--wikipedia", str(tmp_path), "--vocab", str(tmp_path / "v.model")]
    assert benchmark.main([*words, "--rounds", "0"]) == 2
    assert benchmark.main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error: --rounds is 0")
    assert "nowhere" in lines[1]
    assert len(lines) == 2
