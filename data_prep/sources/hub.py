"""Anything that `datasets.load_dataset` reads, by name or from a local directory, without a copy of it on disk.

python -m data_prep extract --source hub --input wikimedia/wikipedia --subset 20231101.en --id-field id ...
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from data_prep.documents import Document
from data_prep.errors import UserError
from data_prep.sources import Skipped, Source
from data_prep.sources.jsonl import Fields, joined, to_document


class Hub(Source):
    """One split of one or more datasets, streamed. A `Source`; a unit is (dataset, shard): one of its own files."""

    def __init__(self, names: Sequence[str], subset: str | None, split: str, fields: Fields) -> None:
        """UserError with the library's reason where a dataset cannot be opened, or has no such split or field."""
        super().__init__()
        self.subset, self.split, self.fields = subset, split, fields
        for name in names:
            dataset = self._open(name)
            columns = dataset.column_names or list(next(iter(dataset), {}))
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
        """The streamed dataset (`datasets.IterableDataset`)."""
        from datasets import load_dataset  # takes seconds to import, and only this source needs it
        from datasets.utils.logging import disable_progress_bar

        disable_progress_bar()
        try:
            return load_dataset(name, self.subset, split=self.split, streaming=True)
        # The library raises whatever its readers and the network raise; the person needs the reason and the name.
        except Exception as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise UserError(
                f"cannot open the dataset {name!r} (subset {self.subset}, split {self.split}): {reason}; "
                "check --input, --subset, --hub-split and the network"
            ) from error

    def read(self, unit: tuple[str, int]) -> Iterator[Document | Skipped]:
        """The documents of one shard."""
        return joined(self._read_rows(unit), self.fields.per_document)

    def _read_rows(self, unit: tuple[str, int]) -> Iterator[Document | Skipped]:
        name, shard = unit
        dataset = self._open(name)
        # An id must not depend on how a person came to type the path of a local dataset.
        short = Path(name).resolve().name if Path(name).exists() else name
        for row, record in enumerate(dataset.shard(num_shards=dataset.num_shards, index=shard)):
            try:
                item = to_document(record, self.fields, f"{short}:{shard}:{row}")
            except (KeyError, TypeError) as error:
                raise UserError(
                    f"{name}, shard {shard}, row {row} has no text in {error}; check --text-field"
                ) from error
            self.consumed += len(item.text.encode()) if isinstance(item, Document) else 0
            yield item


def _bytes_below(name: str) -> int:
    """Bytes of the files of a local dataset; 0 for one that is not on this machine."""
    path = Path(name)
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.is_dir() else 0
