"""Datasets that `datasets.load_dataset` reads, by name or from a local directory, streamed without a copy on disk.

python -m data_prep extract --source hub --input wikimedia/wikipedia --subset 20231101.en --id-field id ...
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from common.errors import UserError
from data_prep.corpus.documents import Document
from data_prep.sources import Skipped, Source
from data_prep.sources.jsonl import Fields, joined, to_document


class Hub(Source):
    """A `Source`: one split of one or more datasets. A work unit is (name of the dataset, one of its shards)."""

    def __init__(self, names: Sequence[str], subset: str | None, split: str, fields: Fields) -> None:
        """UserError: a dataset cannot be opened (with the library's reason), or has no such split or field."""
        super().__init__()
        self.subset, self.split, self.fields = subset, split, fields
        for name in names:
            dataset = self._open(name)
            columns = dataset.column_names or list(next(_rows(name, dataset), {}))
            for column in (fields.text, fields.id, fields.title):
                if column is not None and column not in columns:
                    raise UserError(f"{name} has no column {column!r}; choose --text-field among {', '.join(columns)}")
            info = dataset.info.splits.get(split) if dataset.info.splits else None
            total = (info.num_bytes if info else 0) or _bytes_below(name)
            shards = dataset.num_shards
            self.inputs.append({"name": name, "subset": subset, "split": split, "shards": shards, "bytes": total})
            for shard in range(shards):
                self.add((name, shard), max(1, total // shards))

    def _open(self, name: str) -> Any:
        """Returns the streamed dataset (`datasets.IterableDataset`)."""
        from datasets import load_dataset  # takes seconds to import, and only this source needs it
        from datasets.utils.logging import disable_progress_bar

        disable_progress_bar()
        try:
            return load_dataset(name, self.subset, split=self.split, streaming=True)
        # The library passes on the errors of its readers and of the network. The user needs the reason and the name.
        except Exception as error:
            raise UserError(
                f"cannot open the dataset {name!r} (subset {self.subset}, split {self.split}): {_reason(error)}; "
                "check --input, --subset, --hub-split and the network"
            ) from error

    def read(self, unit: tuple[str, int]) -> Iterator[Document | Skipped]:
        """Yields the documents of one shard."""
        return joined(self._read_rows(unit), self.fields.per_document)

    def _read_rows(self, unit: tuple[str, int]) -> Iterator[Document | Skipped]:
        name, shard = unit
        dataset = self._open(name)
        # The ids of a local dataset do not depend on the way its path is written.
        short = Path(name).resolve().name if Path(name).exists() else name
        for row, record in enumerate(_rows(name, dataset.shard(num_shards=dataset.num_shards, index=shard))):
            try:
                item = to_document(record, self.fields, f"{short}:{shard}:{row}")
            except (KeyError, TypeError) as error:
                raise UserError(
                    f"{name}, shard {shard}, row {row} has no text in {error}; check --text-field"
                ) from error
            self.consumed += len(item.text.encode()) if isinstance(item, Document) else 0
            yield item


def _rows(name: str, dataset: Any) -> Iterator[Any]:
    """Yields the rows of a streamed dataset. UserError: the library cannot read them."""
    try:
        yield from dataset
    except Exception as error:  # as in `_open`
        raise UserError(
            f"cannot read the dataset {name!r}: {_reason(error)}; "
            "check its files and the network, and give the same command to go on"
        ) from error


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _bytes_below(name: str) -> int:
    """Returns the size of the files of a local dataset in bytes; 0 for a dataset on the hub."""
    path = Path(name)
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else 0
