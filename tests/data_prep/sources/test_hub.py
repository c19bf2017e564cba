"""A local dataset directory, read in the same way as a dataset of the hub."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from common.errors import UserError
from data_prep.corpus.documents import Document
from data_prep.sources.hub import Hub
from data_prep.sources.jsonl import Fields


@pytest.fixture
def dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three training files and one of validation."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    directory = tmp_path / "dataset"
    (directory / "data").mkdir(parents=True)
    for name, count in (("train-0", 3), ("train-1", 2), ("train-2", 1), ("validation-0", 1)):
        rows = [{"page": f"{name}/{row}", "text": f"It is {name} {row}.\n\nSo."} for row in range(count)]
        pq.write_table(pa.Table.from_pylist(rows), directory / "data" / f"{name}.parquet")
    return directory


def read(source: Hub) -> list[str]:
    return [item.id for unit in source.units for item in source.read(unit) if isinstance(item, Document)]


def test_a_local_dataset(dataset: Path) -> None:
    source = Hub([str(dataset)], None, "train", Fields(id="page"))
    assert len(source.units) == 3  # its own files are the units, so that every rank streams others
    assert read(source) == ["train-0/0", "train-0/1", "train-0/2", "train-1/0", "train-1/1", "train-2/0"]
    first = next(source.read(source.units[0]))
    assert first == Document("train-0/0", "", "It is train-0 0.\nSo.")
    assert read(Hub([str(dataset)], None, "validation", Fields(id="page"))) == ["validation-0/0"]


def test_several_rows_are_one_document(dataset: Path) -> None:
    source = Hub([str(dataset)], None, "train", Fields(id="page", per_document=2))
    assert read(source) == ["train-0/0", "train-0/2", "train-1/0", "train-2/0"]  # a shard is cut by itself


def test_ids_by_place_differ(dataset: Path) -> None:
    ids = read(Hub([str(dataset)], None, "train", Fields()))
    assert len(set(ids)) == 6
    assert read(Hub([f"{dataset}/../dataset/"], None, "train", Fields())) == ids  # however the path was typed


def test_a_file_that_cannot_be_read_is_one_line(dataset: Path) -> None:
    source = Hub([str(dataset)], None, "train", Fields(id="page"))
    path = dataset / "data" / "train-1.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UserError, match=r"cannot read the dataset '.*dataset': .*; check its files and the network"):
        read(source)


def test_what_cannot_be_opened(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"cannot open the dataset '.*none'.*check --input"):
        Hub([str(tmp_path / "none")], None, "train", Fields())
    with pytest.raises(UserError, match="split tests"):
        Hub([str(dataset)], None, "tests", Fields())
    with pytest.raises(UserError, match="has no column 'body'; choose --text-field among page, text"):
        Hub([str(dataset)], None, "train", Fields(text="body"))
