"""Documents on disk: read as written, with equal bytes; the split depends on ids alone; and how units are cut."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from common.files.checksums import content_checksum
from data_prep.corpus import documents as d
from data_prep.corpus import work_units
from data_prep.corpus.documents import Document, DocumentCounts
from data_prep.format import shard_manifest as manifests
from tests.data_prep import corpora
from tests.data_prep.corpora import write_part

TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=50)


@settings(max_examples=30)
@given(st.lists(st.builds(Document, TEXT, TEXT, TEXT), max_size=20))
def test_a_part_is_read_as_written(tmp_path_factory: pytest.TempPathFactory, written: list[Document]) -> None:
    path = tmp_path_factory.mktemp("docs-12:30") / "train-00000.parquet"  # looks like a URI
    info = write_part(path, written)
    assert documents_of(path) == written
    assert (info.documents, info.bytes) == (len(written), path.stat().st_size)
    assert write_part(path.with_name("again.parquet"), written).xxh3_128 == info.xxh3_128


def documents_of(path: Path) -> list[Document]:
    with d.opened_part(path) as file:
        return [Document(*row.values()) for row in file.read().to_pylist()]


def test_large_documents_make_several_row_groups(tmp_path: Path) -> None:
    big = [Document(str(i), "", "word " * 500_000) for i in range(4)]
    write_part(tmp_path / "p.parquet", iter(big))
    with d.opened_part(tmp_path / "p.parquet") as file:
        assert file.num_row_groups == 2  # 2.5 million characters each, 4 Mi a group
    assert documents_of(tmp_path / "p.parquet") == big


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    document = Document("a", "", "Some words.")
    directory = corpora.write_documents(tmp_path / "docs", [document], parts=1)
    manifest = d.read_manifest(directory)
    assert manifest.counts["train"] == DocumentCounts(documents=1, words=2, text_bytes=11)
    with pytest.raises(UserError, match="--held-out FRACTION"):
        d.list_parts(directory, manifest, "held_out")
    (part,) = d.list_parts(directory, manifest, "train")
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"train-00000\.parquet is missing or has changed"):
        d.list_parts(directory, manifest, "train")
    with pytest.raises(UserError, match="cannot be read as documents"):
        documents_of(part)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((path, f"names '{path}', which is no file name that belongs there") for path in ("../victim", "README.md")),
        (3, r"has files\.0\.name = 3, which should be a valid string"),
    ],
)
def test_manifests_that_name_other_files_are_refused(shard_directory, documents_directory, tmp_path, name, message):
    for source, manifest, read in (
        (shard_directory, manifests.MANIFEST, manifests.read_manifest),
        (documents_directory, d.MANIFEST, d.read_manifest),
    ):
        directory = tmp_path / source.name
        directory.mkdir()
        content = json.loads((source / manifest).read_text())
        content.pop("xxh3_128")
        content["files"][0]["name"] = name
        (directory / manifest).write_text(json.dumps(content | {"xxh3_128": content_checksum(content)}))
        with pytest.raises(UserError, match=message):
            read(directory)


def test_a_character_counts_as_a_word_where_there_are_no_spaces() -> None:
    counts = DocumentCounts()
    for text in ("日本語です。", "ไทย", "two words", "한국어 단어", "Tokyo は 東京"):
        counts.add(Document("a", "", text))
    # 5 characters and a full stop; 3; 2; 2 as Korean has spaces; 1 + 1 + 2
    assert counts.words == 6 + 3 + 2 + 2 + 4


def test_shares_of_the_splits_are_close_to_the_fractions_and_never_change() -> None:
    ids = [f"document {i}" for i in range(20_000)]
    for fraction, validation in ((0.01, 0.0), (0.5, 0.0), (0.05, 0.1), (0.0, 0.0)):
        alone, both = ([d.split_of(i, fraction, part) for i in ids] for part in (0.0, validation))
        assert [split == "held_out" for split in alone] == [split == "held_out" for split in both]
        for name, wanted in (("held_out", fraction), ("validation", validation)):
            deviation = (wanted * (1 - wanted) / len(ids)) ** 0.5
            assert abs(both.count(name) / len(ids) - wanted) <= 5 * deviation
        assert set(both) <= {"train", "held_out", "validation"}
    # Ids of the sample: another hash or salt would mix training and held-out text of older runs.
    for split, names in (("held_out", "tempest.txt antony_and_cleopatra.txt 621"), ("train", "hamlet.txt 12 25 39")):
        assert {d.split_of(i, 0.05) for i in names.split()} == {split}


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


def test_a_row_group_is_decoded_once_for_units_that_follow_each_other(tmp_path, monkeypatch):
    monkeypatch.setattr(work_units, "MIN_UNIT_BYTES", 1)
    documents = corpora.make_documents(40)
    place = corpora.write_documents(tmp_path / "documents", documents, parts=2)
    opened, original = [], work_units.opened_part
    monkeypatch.setattr(work_units, "opened_part", lambda path: opened.append(path.name) or original(path))
    units = work_units.open_corpus([place], "train").units
    assert len(units) > 10
    opened.clear()
    texts = [text for unit in units for text in work_units.read_column(unit, "text")]
    assert texts == [document.text for document in documents]
    assert opened == ["train-00000.parquet", "train-00001.parquet"]
    # Files that were written again at the same place are read again.
    next(work_units.read_column(units[0], "text"))
    other = [Document(document.id, "", f"Other. {document.text}") for document in documents]
    shutil.rmtree(place)
    corpora.write_documents(place, other, parts=2)
    units = work_units.open_corpus([place], "train").units
    assert [text for unit in units for text in work_units.read_column(unit, "text")] == [one.text for one in other]


@pytest.mark.parametrize("characters", [1, 3000])
def test_units_of_several_row_groups_have_their_texts(tmp_path, monkeypatch, characters):
    monkeypatch.setattr(work_units, "MIN_UNIT_BYTES", 1)
    monkeypatch.setattr(d, "_ROW_GROUP_CHARACTERS", characters)
    documents = corpora.make_documents(40)
    units = work_units.open_corpus([corpora.write_documents(tmp_path / "documents", documents)], "train").units
    assert len({part.row_group for unit in units for part in unit.slices}) > 5
    assert [text for unit in units for text in work_units.read_column(unit, "text")] == [one.text for one in documents]


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
    nothing = corpora.write_documents(tmp_path / "nothing", [], parts=1, held_out=[])
    with pytest.raises(UserError, match="no documents in the train split"):
        work_units.open_corpus([nothing], "train")
    with pytest.raises(UserError, match=r"no documents in the held_out .*; `extract` with a larger fraction"):
        work_units.open_corpus([nothing], "held_out")
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
