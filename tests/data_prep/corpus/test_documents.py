"""Documents on disk: they are read as written, with equal bytes each time; the split depends on ids alone."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from data_prep.corpus import documents as d
from data_prep.corpus.documents import Document, DocumentCounts, DocumentsManifest
from tests.data_prep.corpora import write_part

TEXT = st.text(alphabet=st.characters(codec="utf-8"), max_size=50)


def make(directory: Path, splits: dict[str, list[list[Document]]]) -> None:
    """Writes a directory of documents with one file for each inner list."""
    directory.mkdir()
    counts = {split: DocumentCounts() for split in splits}
    files = []
    for split, parts in splits.items():
        for index, part in enumerate(parts):
            files.append(write_part(directory / d.part_name(split, index), part))
            for document in part:
                counts[split].add(document)
    d.write_manifest(directory, DocumentsManifest("books", [], {"held_out": 0.1}, counts, 0, {}, files))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.builds(Document, TEXT, TEXT, TEXT), max_size=20))
def test_a_part_is_read_as_written(tmp_path_factory: pytest.TempPathFactory, written: list[Document]) -> None:
    path = tmp_path_factory.mktemp("part") / "train-00000.parquet"
    info = write_part(path, written)
    assert list(d.read_part(path)) == written
    assert (info.documents, info.bytes) == (len(written), path.stat().st_size)
    assert write_part(path.with_name("again.parquet"), written).xxh3_128 == info.xxh3_128


def test_a_directory_whose_name_looks_like_a_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("docs-12:30") / "train-00000.parquet"
    path.parent.mkdir()
    write_part(path, [Document("a", "", "text")])
    assert list(d.read_part(path)) == [Document("a", "", "text")]


def test_large_documents_make_several_row_groups(tmp_path: Path) -> None:
    big = [Document(str(i), "", "word " * 500_000) for i in range(4)]
    write_part(tmp_path / "p.parquet", iter(big))
    import pyarrow.parquet as pq

    assert pq.ParquetFile(tmp_path / "p.parquet").num_row_groups == 2  # 2.5 million characters each, 4 Mi a group
    assert list(d.read_part(tmp_path / "p.parquet")) == big


def test_directories_are_read_in_order_and_by_split(tmp_path: Path) -> None:
    a, b, c = (Document(name, "T", f"Text of {name}.") for name in "abc")
    make(tmp_path / "one", {"train": [[a], [], [b]], "held_out": [[c]]})
    make(tmp_path / "two", {"train": [[c]]})
    assert list(d.read_documents([tmp_path / "one", tmp_path / "two"])) == [a, b, c]
    assert list(d.read_documents([tmp_path / "one"], "held_out")) == [c]
    assert d.read_manifest(tmp_path / "one").counts["train"] == DocumentCounts(documents=2, words=6, text_bytes=20)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    document = Document("a", "", "A.")
    with pytest.raises(UserError, match="is not a directory"):
        d.list_parts(tmp_path / "nothing")
    with pytest.raises(UserError, match=r"no documents\.json"):
        d.list_parts(tmp_path)
    make(tmp_path / "docs", {"train": [[document]]})
    with pytest.raises(UserError, match="--held-out FRACTION"):
        d.list_parts(tmp_path / "docs", "held_out")
    part = tmp_path / "docs" / "train-00000.parquet"
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"train-00000\.parquet is missing or has changed"):
        d.list_parts(tmp_path / "docs")
    with pytest.raises(UserError, match="cannot be read as documents"):
        list(d.read_part(part))


@pytest.mark.parametrize("content", ["{", "[]", '{"format_version": 1}', '{"format_version": 2}'])
def test_a_damaged_manifest_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "documents.json").write_text(content)
    with pytest.raises(UserError, match=r"documents\.json"):
        d.read_manifest(tmp_path)


def test_held_out_share_is_close_to_the_fraction() -> None:
    ids = [f"document {i}" for i in range(20_000)]
    for fraction in (0.01, 0.05, 0.5):
        share = sum(d.is_held_out(i, fraction) for i in ids) / len(ids)
        assert abs(share - fraction) < 5 * (fraction * (1 - fraction) / len(ids)) ** 0.5  # 5 standard deviations
    assert not any(d.is_held_out(i, 0.0) for i in ids)


def test_the_split_never_changes() -> None:
    # Ids of the sample: another hash or salt would mix training and held-out text of older runs.
    assert all(d.is_held_out(i, 0.05) for i in ("tempest.txt", "antony_and_cleopatra.txt", "621", "701", "710"))
    assert not any(d.is_held_out(i, 0.05) for i in ("hamlet.txt", "macbeth.txt", "12", "25", "39"))
