"""The benchmark of sentence boundaries: its page says what was measured, and its counts are right."""

import fcntl
import json
import shutil
from pathlib import Path

import pytest

from benchmarks import sentence_boundaries
from benchmarks.sentence_boundaries import Decided

TEXTS = Path(__file__).resolve().parents[2] / ".cache" / "sentences"
RESULT = Path(sentence_boundaries.__file__).parent / "results" / "sentence_boundaries.json"


def fetched(directory: Path) -> Path:
    """Fetches the texts once a checkout."""
    directory.parent.mkdir(exist_ok=True)
    with (directory.parent / "sentences.lock").open("w") as lock:  # the tests may run in several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        sentence_boundaries.fetch(directory)
    return directory


def test_the_page_says_what_was_measured() -> None:
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    page = RESULT.with_suffix(".md").read_text(encoding="utf-8")
    assert page.endswith(sentence_boundaries.markdown(result) + "\n")
    for split, least in (("used", 500), ("untouched", 125)):
        assert all(found["boundaries"] >= least for found in result["splits"][split].values())
    assert set(result["first_run"]) == set(result["splits"]["untouched"])


def test_counts() -> None:
    decided = [Decided("One. Two. Three", 2, [4, 9]), None, Decided("A. B", 1, [])]
    counts = sentence_boundaries.score(decided, lambda text: text.split(" ", 1))
    assert (counts.found, counts.missed, counts.wrong) == (1, 1, 1)
    assert (counts.precision(), counts.recall()) == (0.5, 0.5)
    with pytest.raises(ValueError, match="substring not found"):
        sentence_boundaries.score(decided, lambda text: ["lost"])


def test_no_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert sentence_boundaries.main(["--texts", str(tmp_path / "texts")]) == 2
    assert "npm is not installed" in capsys.readouterr().err
    assert not (tmp_path / "texts").exists()
