"""Makes the paper's tables with measured values beside the printed ones."""

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.files import atomic, outputs
from common.text import markdown_table
from model.counts import parameter_counts
from pipeline.analysis.finished_runs import Pretrained, TaskRun, digest_of, find_pretrained, find_runs
from pipeline.analysis.printed_tables import GLUE_SCORE, TABLES, Cell, Column, Table, TableRow
from pipeline.checkpoint.run_records import RESULTS

COMMAND = "pipeline.evaluate tables"
NOT_RUN = "not run"
PRINTED_DIGITS = {"parameters": 0, "steps": 0, "hours": 0}
MEASURED_DIGITS = {"parameters": 3, "speed": 2, "steps": 0, "hours": 3}
"""Decimals by column; other columns have one."""
_READING = (
    "All values are percentages unless the column says otherwise. SQuAD: F1/EM, for 2.0 at the threshold that is best "
    "on the same questions, as in the paper's code. CoLA: Matthews correlation; STS: Pearson correlation; other GLUE "
    "tasks: accuracy. Ensembles of GLUE are measured on dev; the paper's were scored on test by the leaderboard. "
    f'"{NOT_RUN}": no such run was found. If a row has several runs of a task, the one with the most seeds is shown, '
    "and of several such runs the newest."
)


@dataclass(frozen=True)
class Evidence:
    """The runs that a table is made from.

    Attributes:
        runs: of fine-tuning.
        pretrained: of pre-training, also those without any fine-tuning.
        additional_data: digest of the larger corpus; None if there is none.
        scale: the fraction of the paper's steps that the rows' pre-training has.
    """

    runs: Sequence[TaskRun]
    pretrained: Sequence[Pretrained]
    additional_data: str | None = None
    scale: float = 1.0

    def pretrained_as(self, row: TableRow) -> list[Pretrained]:
        """The pre-training runs of a row."""
        wanted = row.pretraining
        return [
            run for run in self.pretrained if wanted and wanted.matches(run.record, self.additional_data, self.scale)
        ]


@dataclass(frozen=True)
class MeasuredRow:
    """One row of a table, measured.

    Attributes:
        row: of the paper.
        cells: the measured values by column; columns that were not run are missing.
        runs: the directories that the cells come from, by column.
    """

    row: TableRow
    cells: Mapping[str, Cell]
    runs: Mapping[str, str]


def measure(table: Table, evidence: Evidence) -> list[MeasuredRow]:
    """The rows of `table` with the values that `evidence` has, in the table's order."""
    return [_measure_row(table, row, evidence) for row in table.rows]


def _measure_row(table: Table, row: TableRow, evidence: Evidence) -> MeasuredRow:
    pretrained = evidence.pretrained_as(row)
    by_task: dict[str | None, TaskRun] = {}
    for run in _runs_of(table, row, evidence):
        by_task.setdefault(run.task.name, run)
    cells: dict[str, Cell] = {}
    for column in table.columns:
        cell = None
        if column.name == "glue_score":
            cell = glue_score(by_task)
        elif column.name == "avg":
            cell = mean_of([cells.get(other.name) for other in table.columns if other.task is not None])
        elif column.name == "speed" and pretrained:
            cell = _relative_speed(pretrained[0], table, evidence)
        elif column.task is not None:
            cell = _cell(by_task.get(column.task), [(column.split, name) for name in column.metrics])
        elif pretrained:
            cell = _of_pretraining(column.name, pretrained[0])
        if cell is not None:
            cells[column.name] = cell
    sources = {column.name: column.task for column in table.columns if column.task and column.name in cells}
    return MeasuredRow(row, cells, {name: str(by_task[task].directory) for name, task in sources.items()})


def _runs_of(table: Table, row: TableRow, evidence: Evidence) -> list[TaskRun]:
    """The fine-tuning runs of a row. Runs with more members come first, then those with more seeds, then newer ones.

    All members of an ensemble come from models of the table.
    """
    rows = [other for other in table.rows if row.ensemble or other is row]
    directories = {run.directory.resolve() for other in rows for run in evidence.pretrained_as(other)}
    runs = [
        run
        for run in evidence.runs
        if bool(run.members) == row.ensemble
        and run.origins
        and all(origin.directory.resolve() in directories for origin in run.origins)
    ]
    modified = {run.directory: (run.directory / RESULTS).stat().st_mtime for run in runs}
    return sorted(runs, key=lambda run: (-len(run.members), -run.seeds, -modified[run.directory]))


def _cell(run: TaskRun | None, wanted: Sequence[Sequence[str]]) -> Cell | None:
    """The values of [split, metric] pairs of a run, in percent; None if one is missing. "a|b" is b without an a."""
    values = []
    for split, names in wanted:
        measured = {} if run is None else run.metrics.get(split, {})
        value = next((measured[name] for name in names.split("|") if name in measured), None)
        if run is None or value is None:
            return None
        values.append(run.task.in_percent(value))
    return tuple(values)


def mean_of(cells: Sequence[Cell | None]) -> Cell | None:
    """The paper's Avg: the mean over the cells after the mean of each cell; None if a cell is missing."""
    present = [statistics.fmean(cell) for cell in cells if cell is not None]
    return (statistics.fmean(present),) if present and len(present) == len(cells) else None


def glue_score(runs: Mapping[str | None, TaskRun]) -> Cell | None:
    """The average of the GLUE leaderboard over its nine tasks, in percent, on dev; None if a task is missing."""
    return mean_of([_cell(runs.get(task), wanted) for task, wanted in GLUE_SCORE.items()])


def _relative_speed(run: Pretrained, table: Table, evidence: Evidence) -> Cell | None:
    """Tokens a second of a pre-training, BERT large's = 1. Speeds are compared on equal ranks only."""
    reference = next(
        (runs[0] for row in table.rows if row.name == "BERT large" and (runs := evidence.pretrained_as(row))), None
    )
    if reference is None or run.record.world_size != reference.record.world_size:
        return None
    speed, unit = (one.last("train").get("tokens_per_second") for one in (run, reference))
    return (speed / unit,) if speed and unit else None


def _of_pretraining(name: str, run: Pretrained) -> Cell | None:
    """The value of a column that comes from the pre-training run."""
    if name == "parameters":
        return (parameter_counts(run.record.config).backbone / 1e6,)
    if name == "steps":
        return (float(run.record.steps),)
    value, unit = (run.last("train").get("seconds"), 3600) if name == "hours" else (run.last("eval").get(name), 0.01)
    return None if value is None else (value / unit,)


def _text(column: Column, cell: Cell | None, digits: Mapping[str, int], missing: str) -> str:
    if cell is None:
        return missing
    return "/".join(f"{value:,.{digits.get(column.name, 1)}f}" for value in cell)


def markdown(table: Table, rows: Iterable[MeasuredRow]) -> str:
    """The table as Markdown, with two lines for each row: printed and measured."""
    lines = []
    for measured in rows:
        row, columns = measured.row, table.columns
        printed = [_text(column, row.cells.get(column.name), PRINTED_DIGITS, "") for column in columns]
        lines.append([row.name, "paper", *printed])
        if row.pretraining is not None:
            cells = [_text(column, measured.cells.get(column.name), MEASURED_DIGITS, NOT_RUN) for column in columns]
            lines.append(["", "measured", *cells])
    titles = ["", "", *(column.title for column in table.columns)]
    return f"## {table.caption}\n\n{markdown_table(titles, lines, 'll' + 'r' * len(table.columns))}\n"


def as_json(table: Table, rows: Sequence[MeasuredRow], scale: float) -> dict[str, object]:
    """The table as plain values; cells that were not run are null."""
    names = [column.name for column in table.columns]
    return {
        "table": table.name,
        "caption": table.caption,
        "scale": scale,
        "columns": names,
        "rows": [
            {
                "name": measured.row.name,
                "paper": measured.row.cells,
                "measured": {name: measured.cells.get(name) for name in names},
                "runs": measured.runs,
            }
            for measured in rows
        ],
    }


def make_tables(
    runs: Sequence[Path],
    out: Path,
    names: Sequence[str],
    additional_data: Path | None,
    scale: float = 1.0,
    overwrite: bool = False,
) -> str:
    """Writes tables.md and tables.json of the runs in and below directories into `out`, and returns what is printed.

    Args:
        names: of the tables; all of them if there are none.
        additional_data: the shards of the rows with more data.
        scale: see `Evidence`.
        overwrite: see `outputs.check`.
    Raises:
        UserError: a file of a run cannot be read, or another command made `out`.
    """
    outputs.check(out, COMMAND, overwrite=overwrite)
    tuned = find_runs(runs)
    evidence = Evidence(tuned, find_pretrained(runs, tuned), digest_of(additional_data), scale)
    measured = [(TABLES[name], measure(TABLES[name], evidence)) for name in names or TABLES]
    sections = [f"# The paper's tables\n\n{_READING}\n", *(markdown(table, rows) for table, rows in measured)]
    with outputs.making(out, COMMAND, overwrite=overwrite) as place:
        atomic.write_text(place / "tables.md", "\n".join(sections))
        values = [as_json(table, rows, scale) for table, rows in measured]
        atomic.write_text(place / "tables.json", json.dumps(values, indent=1) + "\n")
    lines = ["\n".join(sections), f"written: {out / 'tables.md'}, {out / 'tables.json'}"]
    if lost := [str(run.directory) for run in tuned if not run.origins and not run.results.get("random_weights")]:
        lines.append(f"in no table, because their pre-training run was not found: {', '.join(lost)}")
    return "\n".join(lines)
