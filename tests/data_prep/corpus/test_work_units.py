"""Work units: how a corpus is cut into them."""

import shutil
from pathlib import Path

import pytest

from common.errors import UserError
from data_prep.corpus import work_units
from data_prep.corpus.documents import Document
from tests.data_prep import corpora


@pytest.mark.parametrize("least", [10_000, 1 << 30])
def test_units_hold_every_document_once_in_order(documents_directory, tmp_path, monkeypatch, least):
    monkeypatch.setattr(work_units, "MIN_UNIT_BYTES", least)
    copy = shutil.copytree(documents_directory, tmp_path / "copy")
    corpus = work_units.open_corpus([documents_directory, copy], "train")
    texts = [document.text for document in corpora.read_documents([documents_directory])]
    assert [text for unit in corpus.units for text in work_units.read_column(unit, "text")] == texts + texts
    first = 0
    for unit in corpus.units:
        assert unit.first_document == first
        first += unit.documents
    assert first == 240
    assert [source["documents"] for source in corpus.sources] == [120, 120]


def test_units_are_about_equal(documents_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_units, "MIN_UNIT_BYTES", 40_000)
    corpus = work_units.open_corpus([documents_directory], "train")
    sizes = [sum(len(text.encode()) for text in work_units.read_column(unit, "text")) for unit in corpus.units]
    assert len(sizes) > 5
    assert max(sizes) < 2 * 40_000
    assert min(sizes[:-1]) > 40_000 / 2  # the last one is what was left


def test_the_digest_follows_the_content_not_the_place(tmp_path: Path) -> None:
    documents = corpora.make_documents(5)
    one, same = (corpora.write_documents(tmp_path / name, documents) for name in ("one", "same"))
    other = corpora.write_documents(tmp_path / "other", documents[:4])
    digests = [work_units.open_corpus([place], "train").digest for place in (one, same, other)]
    assert digests[0] == digests[1] != digests[2]


def test_missing_empty_and_damaged_corpora(tmp_path: Path) -> None:
    documents = corpora.write_documents(tmp_path / "documents", corpora.make_documents(3))
    (tmp_path / "linked").symlink_to(documents)
    with pytest.raises(UserError, match="is given twice, and its documents would count double"):
        work_units.open_corpus([documents, tmp_path / "linked"], "train")
    nothing = corpora.write_documents(tmp_path / "nothing", [], parts=1)
    with pytest.raises(UserError, match="no documents in the train split"):
        work_units.open_corpus([nothing], "train")
    damaged = corpora.write_documents(tmp_path / "damaged", [Document("1", "", "Text. " * 500)], parts=1)
    part = damaged / "train-00000.parquet"
    content = bytearray(part.read_bytes())
    corpus = work_units.open_corpus([damaged], "train")
    content[4:200] = b"\xff" * 196  # damaged while the job runs; the footer stays readable
    part.write_bytes(content)
    with pytest.raises(UserError, match=r"train-00000\.parquet cannot be read"):
        list(work_units.read_column(corpus.units[0], "text"))


def test_texts_that_repeat_count_as_often_as_they_stand_there(tmp_path: Path) -> None:
    """Dictionary encoding would hide repeated texts, and units would be a hundred times too large."""
    documents = [Document(str(number), "Same", "It is one text. " * 100) for number in range(100)]
    corpus = work_units.open_corpus([corpora.write_documents(tmp_path / "same", documents)], "train")
    assert abs(sum(unit.text_bytes for unit in corpus.units) - 160_000) < 0.1 * 160_000
