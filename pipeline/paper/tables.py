"""Makes the paper's tables with measured values beside the printed ones."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from common.files import atomic, owned
from common.text import markdown_table
from model import AlbertConfig
from model.counts import parameter_counts
from pipeline.analysis.finished_runs import Pretrained, TaskRun
from pipeline.checkpoint.run_records import RESULTS
from pipeline.paper.printed_tables import GLUE_SCORE, TABLES, Cell, Column, Table, TableRow
from pipeline.paper.scales import SCALES, Scale
from pipeline.training import metrics_log

NOT_RUN = "not run"
PRINTED_DIGITS = {"parameters": 0, "steps": 0, "hours": 0}
MEASURED_DIGITS = {"parameters": 3, "speed": 2, "steps": 0, "hours": 3}
"""Decimals by column; other columns have one."""
FIGURE_2 = {
    "7": ("figure2a", "Figure 2a: the effect of additional data on MLM accuracy"),
    "8": ("figure2b", "Figure 2b: the effect of dropout on MLM accuracy"),
}
"""By table, the panel of Figure 2 with its rows: held-out MLM accuracy over the steps. The paper prints no numbers."""


@dataclass(frozen=True)
class Evidence:
    """The runs that a table is made from.

    Attributes:
        runs: of fine-tuning.
        pretrained: of pre-training, also those without any fine-tuning.
        additional_data: digest of the larger corpus; None if there is none.
    """

    runs: Sequence[TaskRun]
    pretrained: Sequence[Pretrained]
    additional_data: str | None = None


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


def measure(table: Table, evidence: Evidence, scale: Scale) -> list[MeasuredRow]:
    """The rows of `table` with the values that `evidence` has at one scale, in the table's order."""
    rows = [_measure_row(table, row, evidence, scale) for row in table.rows]
    if not any(column.name == "speed" for column in table.columns):
        return rows
    speeds = {row.name: _speed(row, evidence, scale) for row in table.rows}
    reference, ranks = speeds["BERT large"] or (0.0, 0)
    return [
        replace(measured, cells={**measured.cells, "speed": (speed[0] / reference,)})
        if (speed := speeds[measured.row.name]) is not None and speed[1] == ranks
        else measured
        for measured in rows
    ]


def _speed(row: TableRow, evidence: Evidence, scale: Scale) -> tuple[float, int] | None:
    """Tokens a second of the row's pre-training, and its ranks; speeds are compared on equal ranks only."""
    for run in _pretrained_as(row, evidence, scale):
        speed, ranks = run.last("train").get("tokens_per_second"), run.settings.get("world_size")
        if speed and ranks:
            return speed, ranks
    return None


def _pretrained_as(row: TableRow, evidence: Evidence, scale: Scale) -> list[Pretrained]:
    if row.pretraining is None:
        return []
    return [
        run for run in evidence.pretrained if scale.matches(row.pretraining, run.settings, evidence.additional_data)
    ]


def _runs_of(table: Table, row: TableRow, evidence: Evidence, scale: Scale) -> list[TaskRun]:
    """The fine-tuning runs of a row. Runs with more members come first, then those with more seeds, then newer ones.

    All members of an ensemble come from models of the table.
    """
    rows = [other for other in table.rows if row.ensemble or other is row]
    directories = {run.directory.resolve() for other in rows for run in _pretrained_as(other, evidence, scale)}
    runs = [
        run
        for run in evidence.runs
        if bool(run.members) == row.ensemble
        and run.origins
        and all(origin.directory.resolve() in directories for origin in run.origins)
    ]
    modified = {run.directory: (run.directory / RESULTS).stat().st_mtime for run in runs}
    return sorted(runs, key=lambda run: (-len(run.members), -run.seeds, -modified[run.directory]))


def _measure_row(table: Table, row: TableRow, evidence: Evidence, scale: Scale) -> MeasuredRow:
    pretrained = _pretrained_as(row, evidence, scale)
    by_task: dict[str, TaskRun] = {}
    for run in _runs_of(table, row, evidence, scale):
        by_task.setdefault(run.task.name, run)
    cells: dict[str, Cell] = {}
    sources: dict[str, str] = {}
    for column in table.columns:
        if column.name == "glue_score":
            score = glue_score(by_task)
            values: Cell | None = None if score is None else (score,)
        elif column.name == "avg":
            average = mean_of([cells.get(other.name) for other in table.columns if other.task is not None])
            values = None if average is None else (average,)
        elif column.task is not None:
            values = cell_of(column, by_task[column.task]) if column.task in by_task else None
            if values is not None:
                sources[column.name] = str(by_task[column.task].directory)
        else:
            value = _of_pretraining(column.name, pretrained[0]) if pretrained and not row.ensemble else None
            values = None if value is None else (value,)
        if values is not None:
            cells[column.name] = values
    return MeasuredRow(row, cells, sources)


def cell_of(column: Column, run: TaskRun) -> Cell | None:
    """The values of `column`, in percent, from a run of the column's task; None if the run lacks one of them."""
    measured = run.metrics.get(column.split, {})
    values = []
    for name in column.metrics:
        known = next((measured[choice] for choice in name.split("|") if choice in measured), None)
        if known is None:
            return None
        values.append(run.task.in_percent(known))
    return tuple(values)


def mean_of(cells: Sequence[Cell | None]) -> float | None:
    """The paper's Avg: the mean over the cells after the mean of each cell; None if a cell is missing."""
    present = [cell for cell in cells if cell is not None]
    if not cells or len(present) != len(cells):
        return None
    return statistics.fmean(statistics.fmean(cell) for cell in present)


def glue_score(runs: Mapping[str, TaskRun]) -> float | None:
    """The average of the GLUE leaderboard over its nine tasks, in percent, on dev; None if a task is missing."""
    means = []
    for task, wanted in GLUE_SCORE.items():
        measured = runs[task].metrics if task in runs else {}
        values = [measured.get(split, {}).get(metric) for split, metric in wanted]
        if any(value is None for value in values):
            return None
        means.append(statistics.fmean(value for value in values if value is not None))
    return 100 * statistics.fmean(means)


def _of_pretraining(name: str, run: Pretrained) -> float | None:
    """The value of a column that comes from the pre-training run."""
    settings = run.settings
    if name == "parameters":
        return parameter_counts(AlbertConfig.from_dict(settings["model"])).backbone / 1e6
    if name == "steps":
        return float(settings["steps"])
    if name == "hours":
        seconds = run.last("train").get("seconds")
        return None if seconds is None else seconds / 3600
    value = run.last("eval").get(name)
    return None if value is None else 100 * value


def _text(column: Column, cell: Cell | None, digits: Mapping[str, int], missing: str) -> str:
    if cell is None:
        return missing
    return "/".join(f"{value:,.{digits.get(column.name, 1)}f}" for value in cell)


def markdown(table: Table, rows: Sequence[MeasuredRow], scale: Scale) -> str:
    """The table as Markdown, with two lines for each row: printed and measured."""
    lines = []
    for measured in rows:
        row, columns = measured.row, table.columns
        printed = [_text(column, row.cells.get(column.name), PRINTED_DIGITS, "") for column in columns]
        lines.append([row.name, "paper", *printed])
        if row.pretraining is not None:
            cells = [_text(column, measured.cells.get(column.name), MEASURED_DIGITS, NOT_RUN) for column in columns]
            lines.append(["", f"measured ({scale.name})", *cells])
    titles = ["", "", *(column.title for column in table.columns)]
    return f"## {table.caption}\n\n{markdown_table(titles, lines, 'll' + 'r' * len(table.columns))}\n"


def as_json(table: Table, rows: Sequence[MeasuredRow], scale: Scale) -> dict[str, Any]:
    """The table as plain values; cells that were not run are null."""
    return {
        "table": table.name,
        "caption": table.caption,
        "scale": scale.name,
        "columns": [column.name for column in table.columns],
        "rows": [
            {
                "name": measured.row.name,
                "paper": {name: list(cell) for name, cell in measured.row.cells.items()},
                "measured": {
                    column.name: list(measured.cells[column.name]) if column.name in measured.cells else None
                    for column in table.columns
                },
                "runs": dict(measured.runs),
            }
            for measured in rows
        ],
    }


def curve(run: Pretrained) -> list[tuple[int, float]]:
    """(step, MLM accuracy in percent) of every evaluation on held-out text."""
    records = metrics_log.read_records(run.directory, "eval")
    found = [(record["step"], record.get("mlm_accuracy")) for record in records]
    return [(step, 100 * accuracy) for step, accuracy in found if accuracy is not None]


def plot_curves(path: Path, title: str, measured: Mapping[str, Sequence[tuple[int, float]]]) -> None:
    """Plots held-out MLM accuracy over the steps, a line for each row that was measured."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, points in measured.items():
        if points:
            axes.plot(*zip(*points), label=name)
    axes.set(xlabel="step", ylabel="held-out MLM accuracy (%)", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    with atomic.replacing(path) as temporary:
        figure.savefig(temporary, dpi=120, format="png")


_NOTES = {
    "tiny": (
        "Measured at scale **tiny**: models of two or four layers with a hidden size of 64 to 256, trained for "
        "minutes on a few megabytes of text, one seed each. These values show that the pipeline makes the table. They "
        "say nothing about the paper's models, and differences between rows have no meaning."
    ),
    "paper": "Measured at the paper's scale.",
}
_READING = (
    "All values are percentages unless the column says otherwise. SQuAD: F1/EM, for 2.0 at the threshold that is best "
    "on the same questions, as in the paper's code. CoLA: Matthews correlation; STS: Pearson correlation; other GLUE "
    "tasks: accuracy. Ensembles of GLUE are measured on dev; the paper's were scored on test by the leaderboard. "
    f'"{NOT_RUN}": no such run was found. If a row has several runs of a task, the one with the most seeds is shown, '
    "and of several such runs the newest."
)


def write_tables(evidence: Evidence, out: Path, names: Sequence[str] | None = None) -> list[Path]:
    """Writes `tables.md`, `tables.json` and plots into `out`, with a section for each scale that has runs.

    Args:
        names: of the tables; all of them by default.

    Returns:
        The files.
    Raises:
        UserError: it would overwrite files that this command did not write.
    """
    owned.check_addable(out, ["tables.md", "tables.json"])
    with owned.adding_files(out, "pipeline.evaluate tables") as place:
        plots = _write_tables(evidence, place, [TABLES[name] for name in names or TABLES])
    return [out / name for name in ("tables.md", "tables.json", *plots)]


def _write_tables(evidence: Evidence, out: Path, tables: Sequence[Table]) -> list[str]:
    """Writes all files, and returns the names of the plots."""
    sections, plots, values = [f"# The paper's tables\n\n{_READING}\n"], [], []
    scales = [scale for scale in SCALES.values() if any(_has_runs(table, evidence, scale) for table in tables)]
    for scale in scales or [SCALES["paper"]]:
        sections.append(_NOTES[scale.name] + "\n")
        for table in tables:
            rows = measure(table, evidence, scale)
            sections.append(markdown(table, rows, scale))
            values.append(as_json(table, rows, scale))
        for table in tables:
            if table.name not in FIGURE_2:
                continue
            name, caption = FIGURE_2[table.name]
            curves = {
                row.name: curve(found[0]) for row in table.rows if (found := _pretrained_as(row, evidence, scale))
            }
            sections.append(f"## {caption}\n")
            if missing := [row.name for row in table.rows if not curves.get(row.name)]:
                sections.append("".join(f"{row}: {NOT_RUN}\n" for row in missing))
            if any(curves.values()):
                plots.append(f"{scale.name}-{name}.png")
                plot_curves(out / plots[-1], f"{caption} (measured, {scale.name})", curves)
                sections.append(f"![{caption}]({plots[-1]})\n")
            values.append({"figure": name, "caption": caption, "scale": scale.name, "curves": curves})
    atomic.write_text(out / "tables.md", "\n".join(sections))
    atomic.write_text(out / "tables.json", json.dumps(values, indent=1) + "\n")
    return plots


def _has_runs(table: Table, evidence: Evidence, scale: Scale) -> bool:
    return any(_pretrained_as(row, evidence, scale) for row in table.rows)
