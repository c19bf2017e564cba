"""The tables of the ALBERT paper: what each row was pre-trained with, and the values printed for it (paper.toml)."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common.errors import UserError
from model import AlbertConfig
from pipeline.checkpoint.run_records import PretrainRecord
from pipeline.data.masking import MaskingSettings

BATCH = 4096
"""Sequences of 512 tokens in a batch of the paper's pre-training."""
STEPS_TOLERANCE = 0.02
"""Runs are of the same length if their numbers of samples differ by less than this fraction."""

_COMPARED = (
    *("embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    *("parameter_sharing", "hidden_dropout_prob", "attention_probs_dropout_prob"),
)
_SHORT = {"embedding_size": "E", "parameter_sharing": "share", "hidden_dropout_prob": "dropout"}


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
    objective: str = "sop"
    dropout: float | None = None
    steps: int = 125_000
    additional_data: bool = False

    @property
    def model_fields(self) -> dict[str, Any]:
        """The fields of `AlbertConfig` that replace those of the preset."""
        fields = {
            "embedding_size": self.embedding_size,
            "parameter_sharing": self.parameter_sharing,
            "hidden_dropout_prob": self.dropout,
            "attention_probs_dropout_prob": self.dropout,
        }
        preset = AlbertConfig.preset(self.model)
        return {name: value for name, value in fields.items() if value not in (None, getattr(preset, name))}

    @property
    def config(self) -> AlbertConfig:
        """The architecture, with the vocabulary and the positions of the preset."""
        return AlbertConfig.preset(self.model, **self.model_fields)

    @property
    def slug(self) -> str:
        """The name of the row's directory. Rows of different tables share it if they are the same experiment."""
        parts = [f"{_SHORT[name]}-{value}" for name, value in self.model_fields.items() if name in _SHORT]
        if self.objective != AlbertConfig.preset(self.model).sentence_head:
            parts.append(self.objective)
        if self.steps != 125_000:
            parts.append(f"{self.steps // 1000}k")
        if self.additional_data:
            parts.append("more-data")
        return "_".join([self.model, *parts])

    def steps_at(self, scale: float) -> int:
        """The steps at a fraction of the paper's."""
        return max(1, round(scale * self.steps))

    def matches(self, record: PretrainRecord, additional_data: str | None, scale: float = 1.0) -> bool:
        """Whether a pre-training run is one of this row.

        Args:
            record: the run's `settings.json`.
            additional_data: the digest of the larger corpus, as in `record.data`; None if there is none.
            scale: the fraction of the paper's steps that runs have.
        """
        wanted, found, data = self.config.to_dict(), record.model, record.data
        samples, expected = record.steps * record.train_batch_size, self.steps_at(scale) * BATCH
        digests = [data] if isinstance(data, str) else [digest for digest, _ in data]
        masking = asdict(MaskingSettings())
        return (
            all(found.get(name) == wanted[name] for name in _COMPARED)
            and record.objective == self.objective
            and record.masking == masking
            and record.init is None
            and len(record.lengths) == 1  # a changed length is another schedule
            and abs(samples - expected) <= STEPS_TOLERANCE * expected
            and (additional_data in digests) == self.additional_data
        )


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

    @property
    def pretrainings(self) -> tuple[PreTraining, ...]:
        """The distinct pre-trainings of its rows, in their order."""
        return tuple(dict.fromkeys(row.pretraining for row in self.rows if row.pretraining is not None))


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
