"""The tables of the ALBERT paper: what each row was pre-trained with, and the values printed for it (paper.toml)."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError

BATCH = 4096
"""Sequences of 512 tokens in a batch of the paper's pre-training."""


@dataclass(frozen=True)
class PreTraining:
    """What one row of a table is pre-trained with; None stands for the value of the preset.

    Attributes:
        model: a preset of `AlbertConfig`.
        embedding_size: E.
        parameter_sharing: "all", "attention", "ffn" or "none".
        objective: "sop", "nsp" or "mlm" (no sentence loss).
        dropout: probability, of hidden states and of attention.
        steps: of batches of `BATCH` sequences.
        additional_data: whether the corpus is more than Wikipedia and BookCorpus.
    """

    model: str
    embedding_size: int | None = None
    parameter_sharing: str | None = None
    objective: str | None = None
    dropout: float | None = None
    steps: int = 125_000
    additional_data: bool = False


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: key of the cells.
        title: as printed.
        task: the name of the fine-tuning task that it measures; None for a column that is computed from the row.
        split: of the task's data.
        metrics: the values of a cell. "best_f1|f1" means: f1 if best_f1 is missing.
    """

    name: str
    title: str
    task: str | None = None
    split: str = "dev"
    metrics: Sequence[str] = ()


Cell = tuple[float, ...]
"""The values of one cell: one number, or two such as F1 and exact match."""


@dataclass(frozen=True)
class TableRow:
    """One row of a table.

    Attributes:
        name: as printed.
        pretraining: None for the systems of others, which the paper prints for comparison; they are not run.
        cells: of the paper, by column.
        ensemble: whether several fine-tuned models are averaged.
    """

    name: str
    pretraining: PreTraining | None
    cells: Mapping[str, Cell]
    ensemble: bool = False


@dataclass(frozen=True)
class Table:
    """One table of the paper; `name` is its name on the command line."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks that its columns need, in their order."""
        return tuple(dict.fromkeys(column.task for column in self.columns if column.task is not None))


PAPER: dict[str, Any] = tomllib.loads(Path(__file__).with_name("paper.toml").read_text(encoding="utf-8"))
"""The content of paper.toml."""

_COLUMNS = {name: [Column(**column) for column in group] for name, group in PAPER["columns"].items()}
_PRETRAINING = {name: PreTraining(**fields) for name, fields in PAPER["pretraining"].items()}
GLUE_SCORE: dict[str, list[tuple[str, str]]] = PAPER["glue_score"]
"""The [split, metric] pairs in the average of the GLUE leaderboard, by task."""


def _table(name: str, caption: str, columns: list[str], rows: list[tuple[str, str, str]]) -> Table:
    all_columns = tuple(column for group in columns for column in _COLUMNS[group])
    return Table(name, caption, all_columns, tuple(_row(all_columns, *row) for row in rows))


def _row(columns: tuple[Column, ...], name: str, pretraining: str, cells: str) -> TableRow:
    values = {
        column.name: tuple(float(value) for value in cell.split("/"))
        for column, cell in zip(columns, cells.split(), strict=True)
        if cell != "-"
    }
    return TableRow(name, _PRETRAINING[pretraining] if pretraining else None, values, ensemble="ensemble" in name)


TABLES: dict[str, Table] = {table["name"]: _table(**table) for table in PAPER["tables"]}


def find_table(name: str) -> Table:
    """The table called `name`. Raises UserError for an unknown name."""
    if name not in TABLES:
        raise UserError(f"table {name!r} is not known; choose one of {', '.join(TABLES)}")
    return TABLES[name]
