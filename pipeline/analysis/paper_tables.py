"""The tables of the ALBERT paper: what each row was pre-trained with, its printed values, and the measured ones.

paper.toml has the rows. The runs of a row lie where the commands of `pipeline.reproduce` put them:

    ROOT/SLUG/pretrain           a row's pre-training
    ROOT/SLUG/TASK               its fine-tuning
"""

import statistics
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from common.errors import UserError
from common.text import markdown_table
from model import AlbertConfig
from pipeline.analysis.comparison import TaskRun, read_run
from pipeline.checkpoint.run_directory import RESULTS
from pipeline.settings.settings_file import read_settings
from pipeline.training.metrics_file import last_record

NOT_RUN = "not run"
PRINTED_DIGITS = {"parameters": 0, "steps": 0, "hours": 0}
MEASURED_DIGITS = {"parameters": 3, "speed": 2, "steps": 0, "hours": 3}
"""Decimals by column; other columns have one."""
_READING = (
    "All values are percentages unless the column says otherwise. SQuAD: F1/EM, for 2.0 at the threshold that is best "
    "on the same questions, as in the paper's code. CoLA: Matthews correlation; STS: Pearson correlation; other GLUE "
    f'tasks: accuracy. "{NOT_RUN}": no such run has ended.'
)
_SHORT = {"embedding_size": "E", "parameter_sharing": "share", "hidden_dropout_prob": "dropout"}

Cell = tuple[float, ...]
"""The values of one cell: one number, or two such as F1 and exact match."""


@dataclass(frozen=True)
class PaperPretraining:
    """What one row of a table is pre-trained with; None stands for the value of the preset `model`.

    Attributes:
        objective: "sop", "nsp" or "mlm" (no sentence loss).
        dropout: probability, of hidden states and of attention.
        steps: of batches of 4096 sequences.
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
        fields: dict[str, Any] = {"embedding_size": self.embedding_size, "parameter_sharing": self.parameter_sharing}
        fields |= dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), self.dropout)
        preset = AlbertConfig.preset(self.model)
        return {name: value for name, value in fields.items() if value not in (None, getattr(preset, name))}

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


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: key of the cells.
        task: the fine-tuning task that it measures, on a split; None for a column that is computed from the row.
        metrics: the values of a cell. "best_f1|f1" means: f1 if best_f1 is missing.
    """

    name: str
    title: str
    task: str | None = None
    split: str = "dev"
    metrics: Sequence[str] = ()


@dataclass(frozen=True)
class TableRow:
    """One row of a table, with the paper's cells by column.

    `pretraining` is None for the systems of others and for ensembles, which are printed for comparison and not run.
    """

    name: str
    pretraining: PaperPretraining | None
    cells: Mapping[str, Cell]


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
    def pretrainings(self) -> tuple[PaperPretraining, ...]:
        """The distinct pre-trainings of its rows, in their order."""
        return tuple(dict.fromkeys(row.pretraining for row in self.rows if row.pretraining is not None))


PAPER: dict[str, Any] = tomllib.loads(Path(__file__).with_name("paper.toml").read_text(encoding="utf-8"))
"""The content of paper.toml."""
GLUE_SCORE: dict[str, list[tuple[str, str]]] = PAPER["glue_score"]
"""The [split, metric] pairs in the average of the GLUE leaderboard, by task."""


def _table(name: str, caption: str, columns: list[str], rows: list[tuple[str, str, str]]) -> Table:
    all_columns = tuple(Column(**column) for group in columns for column in PAPER["columns"][group])
    return Table(name, caption, all_columns, tuple(_row(all_columns, *row) for row in rows))


def _row(columns: tuple[Column, ...], name: str, pretraining: str, cells: str) -> TableRow:
    values = {
        column.name: tuple(float(value) for value in cell.split("/"))
        for column, cell in zip(columns, cells.split(), strict=True)
        if cell != "-"
    }
    return TableRow(name, PaperPretraining(**PAPER["pretraining"][pretraining]) if pretraining else None, values)


TABLES: dict[str, Table] = {table["name"]: _table(**table) for table in PAPER["tables"]}


def find_table(name: str) -> Table:
    """The table called `name`. Raises UserError for an unknown name."""
    if name not in TABLES:
        raise UserError(f"table {name!r} is not known; choose one of {', '.join(TABLES)}")
    return TABLES[name]


def measure(table: Table, row: TableRow, root: Path) -> dict[str, Cell]:
    """The measured values of a row by column; columns that were not run are missing.

    Raises UserError for a file of a run that cannot be read.
    """
    if row.pretraining is None:
        return {}
    home = root / row.pretraining.slug
    runs = {task: read_run(home / task) for task in table.tasks if (home / task / RESULTS).exists()}
    cells: dict[str, Cell] = {}
    for column in table.columns:
        cell = None
        if column.name == "glue_score":
            cell = glue_score(runs)
        elif column.name == "avg":
            cell = mean_of([cells.get(other.name) for other in table.columns if other.task is not None])
        elif column.task is not None:
            cell = _cell(runs.get(column.task), [(column.split, name) for name in column.metrics])
        elif (home / "pretrain" / "done").exists():
            cell = _PRETRAINING[column.name](home / "pretrain")
        if cell is not None:
            cells[column.name] = cell
    return cells


def _cell(run: TaskRun | None, wanted: Sequence[Sequence[str]]) -> Cell | None:
    """The values of [split, metric] pairs of a run, in percent; None if one is missing. "a|b" is b without an a."""
    values = []
    for split, names in wanted:
        measured = {} if run is None else run.results.scores.get(split, {})
        value = next((measured[name] for name in names.split("|") if name in measured), None)
        if run is None or value is None:
            return None
        values.append(run.task.in_percent(value))
    return tuple(values)


def mean_of(cells: Sequence[Cell | None]) -> Cell | None:
    """The paper's Avg: the mean over the cells after the mean of each cell; None if a cell is missing."""
    present = [statistics.fmean(cell) for cell in cells if cell is not None]
    return (statistics.fmean(present),) if present and len(present) == len(cells) else None


def glue_score(runs: Mapping[str, TaskRun]) -> Cell | None:
    """The average of the GLUE leaderboard over its nine tasks, in percent, on dev; None if a task is missing."""
    return mean_of([_cell(runs.get(task), wanted) for task, wanted in GLUE_SCORE.items()])


def _parameters(run: Path) -> Cell:
    from model.counts import parameter_counts  # torch takes seconds to import

    return (parameter_counts(read_settings(run).model).backbone / 1e6,)


def _last(split: str, name: str, unit: float, run: Path) -> Cell | None:
    """A number of the newest record of a pre-training run."""
    value = (last_record(run, split) or {}).get(name)
    return None if value is None else (value / unit,)


def _relative_speed(run: Path) -> Cell | None:
    """Tokens a second of a pre-training, BERT large's = 1. Speeds are compared on equal ranks only."""
    reference, name = run.parents[1] / "bert-large" / "pretrain", "tokens_per_second"
    if not (reference / "done").exists():
        return None
    ranks, reference_ranks = (read_settings(of).engine.world_size for of in (run, reference))
    unit = _last("train", name, 1, reference)
    return None if unit is None or ranks != reference_ranks else _last("train", name, unit[0], run)


_PRETRAINING: dict[str, Callable[[Path], Cell | None]] = {
    "parameters": _parameters,
    "steps": partial(_last, "train", "step", 1),
    "hours": partial(_last, "train", "seconds", 3600),
    "speed": _relative_speed,
    **{f"{task}_accuracy": partial(_last, "eval", f"{task}_accuracy", 0.01) for task in ("mlm", "nsp", "sop")},
}
"""By column: the value that comes from a pre-training run."""


def markdown(table: Table, root: Path) -> str:
    """The table with two lines for each row, printed and measured. Raises UserError as `measure`."""
    lines = []
    for row in table.rows:
        lines.append([row.name, "paper", *_texts(table, row.cells, PRINTED_DIGITS, "")])
        if row.pretraining is not None:
            lines.append(["", "measured", *_texts(table, measure(table, row, root), MEASURED_DIGITS, NOT_RUN)])
    titles = ["", "", *(column.title for column in table.columns)]
    return f"{table.caption}\n\n{markdown_table(titles, lines, 'll' + 'r' * len(table.columns))}\n\n{_READING}"


def _texts(table: Table, cells: Mapping[str, Cell], digits: Mapping[str, int], missing: str) -> list[str]:
    """The cells of one line."""
    shown = {name: "/".join(f"{value:,.{digits.get(name, 1)}f}" for value in cell) for name, cell in cells.items()}
    return [shown.get(column.name, missing) for column in table.columns]
