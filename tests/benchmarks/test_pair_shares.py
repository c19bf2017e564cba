"""The benchmark of pairs without a partner: its counts are right, and its page says what was measured."""

import json
from pathlib import Path

import pytest

from benchmarks import pair_shares
from data_prep.corpus.documents import Document
from data_prep.text.vocabulary import Vocabulary
from tests.data_prep import corpora

RESULT = Path(pair_shares.__file__).parent / "results" / "pair_shares.json"


def test_the_page_says_what_was_measured() -> None:
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    assert RESULT.with_suffix(".md").read_text(encoding="utf-8").endswith(pair_shares.markdown(result) + "\n")


def test_chunks_of_the_paper() -> None:
    # 6 + 7 fill 10 and drop 3; 25 stands alone and drops 15; 2 is the rest of its document; then 5 + 5 of another.
    counts = pair_shares.paper_chunks([[6, 7, 25, 2], [5, 5]], 10, 0.0, seed=0)
    assert counts == {"pairs": 4, "alone": 2, "tokens": 50, "dropped": 18}


def test_drawn_lengths_cut_a_document_earlier() -> None:
    counts = pair_shares.paper_chunks([[1] * 100] * 50, 10, 1.0, seed=0)
    assert counts["alone"] < counts["pairs"]
    assert 50 * 10 < counts["pairs"] < 50 * 50  # lengths from 2 to 10
    assert counts["dropped"] == 0


def test_a_small_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    documents = corpora.write_documents(
        tmp_path / "documents", [Document(str(n), "", "One two three. " * n) for n in range(1, 60)]
    )
    vocabulary = corpora.train_pieces(
        tmp_path / "small", ["one two three", "four five six."], 24, "identity", list("()")
    )
    command = ["--vocab", str(vocabulary), "--documents", str(documents), "--max-seq-length", "32"]
    assert pair_shares.main([*command, "--out", str(tmp_path / "page")]) == 0
    result = json.loads((tmp_path / "page.json").read_text(encoding="utf-8"))
    found = result["corpora"]["documents"]["lengths"]["32"]
    assert result["vocabulary_size"] == len(Vocabulary.load(vocabulary))
    assert 0 < found["here"]["alone"] < found["here"]["pairs"]
    assert found["here"]["begin_inside_a_word"] == 0
    assert found["paper"]["without_drawn_lengths"] < found["paper"]["most"]
    assert "| documents |" in capsys.readouterr().out
    assert pair_shares.main([*command, "--documents", str(documents), str(tmp_path / "x" / "documents")]) == 2
    assert "have the same name" in capsys.readouterr().err
    assert pair_shares.main([*command[:-1], "4"]) == 2
    assert capsys.readouterr().err == "error: --max-seq-length is 4; give 16 or more\n"
