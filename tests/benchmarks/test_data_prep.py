"""The benchmark of data preparation: projections by hand, pages that say what was measured, mistakes in a line."""

import json
import statistics
from pathlib import Path

import pytest

from benchmarks import data_prep as benchmark
from benchmarks.shared import wikipedia_size
from tests.data_prep import corpora

RESULTS = sorted((Path(benchmark.__file__).parent / "results").glob("data_prep_[!s]*.json"))
SERIAL = Path(benchmark.__file__).parent / "results" / "data_prep_serial.json"


def test_projections() -> None:
    found = {
        "two_ranks_to_one_long_cpu": 1.9,
        "wikitext": {"bytes": 500, "text_bytes": 250},
        "extract_wikipedia": 4e6,
        "extract_books": 5e6,
        "dedup": {"near": 20e6},
        "shards_long": 10e6,
    }
    # 16 GB on 64 ranks that are worth 60.8: 12 GB of text out of 24 GB of XML, 4 GB of books.
    hours = benchmark.projected_hours(found, 16e9)
    assert hours["shards"] == pytest.approx(16e9 / (60.8 * 10e6) / 3600)
    assert hours["dedup"] == pytest.approx(hours["shards"] / 2)
    assert hours["extract"] == pytest.approx((24e9 / 4e6 + 4e9 / 5e6) / 60.8 / 3600)


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_a_page_of_results_says_what_was_measured(path: Path) -> None:
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["format"] == "data_prep 3"
    assert path.with_suffix(".md").read_text(encoding="utf-8").endswith(benchmark.markdown(result) + "\n")
    assert result["shards_to_bare"] == pytest.approx(statistics.median(r["bare"] / r["one"] for r in result["rounds"]))


def test_the_page_of_the_serial_parts_says_what_was_measured() -> None:
    result = json.loads(SERIAL.read_text(encoding="utf-8"))
    assert result["documents"] >= 6_500_000
    page = SERIAL.with_suffix(".md").read_text(encoding="utf-8")
    assert page.endswith(wikipedia_size.markdown(result) + "\n")


@pytest.mark.slow
def test_a_small_simulation(tmp_path: Path) -> None:
    vocabulary = corpora.train_pieces(tmp_path / "v", ["one two three", "four five six."], 24, "identity", list("()"))
    words = ["--simulate", "3000", "--vocab", str(vocabulary), "--out", str(tmp_path / "page")]
    assert benchmark.main(words) == 0
    result = json.loads((tmp_path / "page.json").read_text(encoding="utf-8"))
    assert len(result["parts"]) == 8
    assert all(part["peak_bytes"] > 0 for part in result["parts"])
    assert 0 < result["duplicates"] < 100  # 0.006 of the second file's documents


def test_the_sentences_of_sentencex_alone() -> None:
    text = '"Stop! It is late," he said. He ran.\nSo\u00a0did I.'
    assert list(benchmark.sentencex_sentences(text, "en")) == ['"Stop! It is late," he said.', "He ran.", "So did I."]


def test_a_job_that_fails_is_a_mistake_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--books", str(tmp_path / "nowhere"), "--wikipedia", str(tmp_path), "--vocab", str(tmp_path / "v.model")]
    assert benchmark.main([*words, "--rounds", "0"]) == 2
    assert benchmark.main(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error: --rounds is 0")
    assert "nowhere" in lines[1]
    assert len(lines) == 2
    assert benchmark.main(["--vocab", str(tmp_path / "v.model")]) == 2
    assert "--books or --wikipedia is missing" in capsys.readouterr().err
