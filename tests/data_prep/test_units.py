"""A corpus cut into units of work."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from data_prep import units
from data_prep.documents import Document
from data_prep.errors import UserError

from . import corpora


@pytest.mark.parametrize("least", [10_000, 100_000, 1 << 30])
def test_units_hold_every_document_once_in_order(
    documents_directory: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr(units, "LEAST_BYTES", least)
    corpus = units.open_corpus([documents_directory, documents_directory], "train")
    texts = [document.text for document in corpora.make_documents(120)]
    assert [text for unit in corpus.units for text in units.read_texts(unit)] == texts + texts
    first = 0
    for unit in corpus.units:
        assert unit.first_document == first
        first += unit.documents
    assert first == 240
    assert [source["documents"] for source in corpus.sources] == [120, 120]


def test_units_are_about_equal(documents_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "LEAST_BYTES", 40_000)
    corpus = units.open_corpus([documents_directory], "train")
    sizes = [sum(len(text.encode()) for text in units.read_texts(unit)) for unit in corpus.units]
    assert len(sizes) > 5
    assert max(sizes) < 2 * 40_000
    assert min(sizes[:-1]) > 40_000 / 2  # the last one is what was left


def test_the_digest_follows_the_content_not_the_place(documents_directory: Path, tmp_path: Path) -> None:
    original = units.open_corpus([documents_directory], "train").digest
    same = corpora.write_documents(tmp_path / "same", corpora.make_documents(120))
    other = corpora.write_documents(tmp_path / "other", corpora.make_documents(119))
    assert units.open_corpus([same], "train").digest == original
    assert units.open_corpus([other], "train").digest != original


def test_missing_empty_and_damaged_corpora(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a directory"):
        units.open_corpus([tmp_path / "none"], "train")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no documents\.json"):
        units.open_corpus([tmp_path / "empty"], "train")
    nothing = corpora.write_documents(tmp_path / "nothing", [], parts=1)
    with pytest.raises(UserError, match="no documents in the train split"):
        units.open_corpus([nothing], "train")
    damaged = corpora.write_documents(tmp_path / "damaged", [Document("1", "", "Text. " * 500)], parts=1)
    part = damaged / "train-00000.parquet"
    content = bytearray(part.read_bytes())
    corpus = units.open_corpus([damaged], "train")
    content[4:200] = b"\xff" * 196  # damaged while the job runs; the footer stays readable
    part.write_bytes(content)
    with pytest.raises(UserError, match=r"train-00000\.parquet is missing or has changed"):
        units.open_corpus([damaged], "train")
    with pytest.raises(UserError, match=r"train-00000\.parquet cannot be read"):
        list(units.read_texts(corpus.units[0]))
    content[-8:] = b"\xff" * 8
    part.write_bytes(content)
    with pytest.raises(UserError, match=r"train-00000\.parquet"):
        units.open_corpus([damaged], "train")


def test_the_text_column_is_what_is_measured(documents_directory: Path) -> None:
    corpus = units.open_corpus([documents_directory], "train")
    parts = [pq.ParquetFile(path) for path in sorted(documents_directory.glob("*.parquet"))]
    text = sum(len(t.encode()) for part in parts for t in part.read(["text"]).column("text").to_pylist())
    assert abs(corpus.text_bytes - text) < 0.1 * text


def test_texts_that_repeat_count_as_often_as_they_stand_there(tmp_path: Path) -> None:
    """Units of a corpus full of copies would else hold a hundred times what a rank may."""
    documents = [Document(str(number), "Same", "It is one text. " * 100) for number in range(100)]
    corpus = units.open_corpus([corpora.write_documents(tmp_path / "same", documents)], "train")
    assert abs(corpus.text_bytes - 160_000) < 0.1 * 160_000
