"""Makes the paper's tables with measured values beside the printed ones."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.files import atomic, owned
from model import AlbertConfig
from model.inspection.parameter_counts import parameter_counts
from pipeline.analysis.finished_runs import Pretrained, TaskRun
from pipeline.checkpoint.run_records import RESULTS
from pipeline.paper import plots
from pipeline.paper.printed_tables import FIGURE_2, GLUE_SCORE, TABLES, Cell, Column, Table, TableRow
from pipeline.paper.scales import SCALES, Scale
from pipeline.training.reporting import metrics_log

NOT_RUN = "not run"


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
    found = [_measure_row(table, row, evidence, scale) for row in table.rows]
    if any(column.name == "speed" for column in table.columns):
        found = _with_speed(found, evidence, scale)
    return found


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


def _with_speed(rows: Sequence[MeasuredRow], evidence: Evidence, scale: Scale) -> list[MeasuredRow]:
    """Adds the speed of each row's pre-training in tokens a second, as a multiple of BERT-large's."""
    speeds: dict[str, tuple[float, int]] = {}
    for measured in rows:
        for run in _pretrained_as(measured.row, evidence, scale):
            speed, ranks = run.last("train").get("tokens_per_second"), run.settings.get("world_size")
            if speed and ranks:
                speeds.setdefault(measured.row.name, (speed, ranks))
    if "BERT large" not in speeds:
        return list(rows)
    reference, ranks = speeds["BERT large"]
    return [
        MeasuredRow(
            measured.row,
            {**measured.cells, "speed": (speeds[measured.row.name][0] / reference,)},
            measured.runs,
        )
        if measured.row.name in speeds and speeds[measured.row.name][1] == ranks
        else measured
        for measured in rows
    ]


def _text(column: Column, cell: Cell | None) -> str:
    if cell is None:
        return NOT_RUN
    digits = {"parameters": 3, "speed": 2, "steps": 0, "hours": 3}.get(column.name, 1)
    return "/".join(f"{value:,.{digits}f}" for value in cell)


def _paper_text(column: Column, cell: Cell | None) -> str:
    if cell is None:
        return ""
    digits = 0 if column.name in ("parameters", "steps", "hours") else 1
    return "/".join(f"{value:,.{digits}f}" for value in cell)


def markdown(table: Table, rows: Sequence[MeasuredRow], scale: Scale) -> str:
    """The table as Markdown, with two lines for each row: printed and measured."""
    titles = ["", "", *(column.title for column in table.columns)]
    lines = [f"## {table.caption}", "", _line(titles), _line(["---", "---", *("---:" for _ in table.columns)])]
    for measured in rows:
        row = measured.row
        lines.append(_line([row.name, "paper", *(_paper_text(c, row.cells.get(c.name)) for c in table.columns)]))
        if row.pretraining is not None:
            cells = [_text(column, measured.cells.get(column.name)) for column in table.columns]
            lines.append(_line(["", f"measured ({scale.name})", *cells]))
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


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
        written = [path.relative_to(place) for path in _write_tables(evidence, place, names)]
    return [out / name for name in written]


def _write_tables(evidence: Evidence, out: Path, names: Sequence[str] | None) -> list[Path]:
    tables = [TABLES[name] for name in names or TABLES]
    sections, written, values = [f"# The paper's tables\n\n{_READING}\n"], [], []
    scales = [scale for scale in SCALES.values() if any(_has_runs(table, evidence, scale) for table in tables)]
    for scale in scales or [SCALES["paper"]]:
        sections.append(_NOTES[scale.name] + "\n")
        for table in tables:
            rows = measure(table, evidence, scale)
            sections.append(markdown(table, rows, scale))
            values.append(as_json(table, rows, scale))
            path = out / f"{scale.name}-table-{table.name}.png"
            if plots.averages(path, table, {row.row.name: row.cells for row in rows}, scale.name):
                written.append(path)
                sections.append(f"![{table.caption}]({path.name})\n")
        for panel in FIGURE_2:
            if not any(panel.rows == table.rows for table in tables):
                continue
            curves = {
                row.name: curve(found[0]) for row in panel.rows if (found := _pretrained_as(row, evidence, scale))
            }
            path = out / f"{scale.name}-{panel.name}.png"
            missing = [row.name for row in panel.rows if not curves.get(row.name)]
            sections.append(f"## {panel.caption}\n")
            if missing:
                sections.append("".join(f"{name}: {NOT_RUN}\n" for name in missing))
            if plots.curves(path, panel, curves, scale.name):
                written.append(path)
                sections.append(f"![{panel.caption}]({path.name})\n")
            values.append({"figure": panel.name, "caption": panel.caption, "scale": scale.name, "curves": curves})
    atomic.write_text(out / "tables.md", "\n".join(sections))
    atomic.write_text(out / "tables.json", json.dumps(values, indent=1) + "\n")
    return [out / "tables.md", out / "tables.json", *written]


def _has_runs(table: Table, evidence: Evidence, scale: Scale) -> bool:
    return any(_pretrained_as(row, evidence, scale) for row in table.rows)
