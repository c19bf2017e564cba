"""The paper's tables with what was measured beside what it printed, from the runs there are."""

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_prep import atomic
from model import AlbertConfig
from model.parameter_counts import parameter_counts
from pipeline import monitor
from pipeline.tasks import table_plots
from pipeline.tasks.paper import FIGURE_2, GLUE_SCORE, TABLES, Column, Figures, Row, Table
from pipeline.tasks.results import RESULTS, Pretrained, TaskRun
from pipeline.tasks.scales import SCALES, Scale

NOT_RUN = "not run"


@dataclass(frozen=True)
class Evidence:
    """The runs that a table is made from.

    Attributes:
        runs: of fine-tuning.
        pretrained: runs of pre-training, whether or not anything was fine-tuned from them.
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
        figures: by column; what was not run is missing.
        runs: the directories that the figures come from, by column.
    """

    row: Row
    figures: Mapping[str, Figures]
    runs: Mapping[str, str]


def measure(table: Table, evidence: Evidence, scale: Scale) -> list[MeasuredRow]:
    """The rows of `table` as far as `evidence` has them at one scale, in the table's order."""
    found = [_measure_row(table, row, evidence, scale) for row in table.rows]
    if any(column.name == "speed" for column in table.columns):
        found = _with_speed(found, evidence, scale)
    return found


def _pretrained_as(row: Row, evidence: Evidence, scale: Scale) -> list[Pretrained]:
    if row.pretraining is None:
        return []
    return [
        run for run in evidence.pretrained if scale.matches(row.pretraining, run.settings, evidence.additional_data)
    ]


def _runs_of(table: Table, row: Row, evidence: Evidence, scale: Scale) -> list[TaskRun]:
    """The fine-tuning runs of a row, the best supported first: most members or seeds, then the newest.

    An ensemble's members all come from models of the table.
    """
    rows = [other for other in table.rows if row.ensemble or other is row]
    places = {run.directory.resolve() for other in rows for run in _pretrained_as(other, evidence, scale)}
    runs = [
        run
        for run in evidence.runs
        if bool(run.members) == row.ensemble
        and run.origins
        and all(origin.directory.resolve() in places for origin in run.origins)
    ]
    newest = {run.directory: (run.directory / RESULTS).stat().st_mtime for run in runs}
    return sorted(runs, key=lambda run: (-len(run.members), -run.seeds, -newest[run.directory]))


def _measure_row(table: Table, row: Row, evidence: Evidence, scale: Scale) -> MeasuredRow:
    pretrained = _pretrained_as(row, evidence, scale)
    by_task: dict[str, TaskRun] = {}
    for run in _runs_of(table, row, evidence, scale):
        by_task.setdefault(run.task, run)
    figures: dict[str, Figures] = {}
    sources: dict[str, str] = {}
    for column in table.columns:
        if column.name == "glue_score":
            score = glue_score(by_task)
            values: Figures | None = None if score is None else (score,)
        elif column.name == "avg":
            average = mean_of([figures.get(other.name) for other in table.columns if other.task is not None])
            values = None if average is None else (average,)
        elif column.task is not None:
            values = cell(column, by_task[column.task]) if column.task in by_task else None
            if values is not None:
                sources[column.name] = str(by_task[column.task].directory)
        else:
            value = _of_pretraining(column.name, pretrained[0]) if pretrained and not row.ensemble else None
            values = None if value is None else (value,)
        if values is not None:
            figures[column.name] = values
    return MeasuredRow(row, figures, sources)


def cell(column: Column, run: TaskRun) -> Figures | None:
    """The figures, in percent, that `run`, which is of the column's task, has for `column`; None if it lacks one."""
    measured = run.metrics.get(column.split, {})
    values = []
    for name in column.metrics:
        known = next((measured[choice] for choice in name.split("|") if choice in measured), None)
        if known is None:
            return None
        values.append(known if run.task.startswith("squad") else 100 * known)
    return tuple(values)


def mean_of(cells: Sequence[Figures | None]) -> float | None:
    """The paper's Avg: the mean over the cells, those with two figures averaged first; None if one is missing."""
    present = [given for given in cells if given is not None]
    if not cells or len(present) != len(cells):
        return None
    return statistics.fmean(statistics.fmean(given) for given in present)


def glue_score(runs: Mapping[str, TaskRun]) -> float | None:
    """The leaderboard's average over the nine tasks, in percent, on dev; None if one is missing."""
    means = []
    for task, wanted in GLUE_SCORE.items():
        measured = runs[task].metrics if task in runs else {}
        figures = [measured.get(split, {}).get(metric) for split, metric in wanted]
        if any(figure is None for figure in figures):
            return None
        means.append(statistics.fmean(figure for figure in figures if figure is not None))
    return 100 * statistics.fmean(means)


def _of_pretraining(name: str, run: Pretrained) -> float | None:
    """A column that the pre-training run itself fills."""
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
    """Adds the tokens that a row's pre-training saw a second, as a multiple of BERT-large's."""
    speeds: dict[str, tuple[float, int]] = {}
    for measured in rows:
        for run in _pretrained_as(measured.row, evidence, scale):
            if "tokens_per_second" in (last := run.last("train")):
                speeds.setdefault(measured.row.name, (last["tokens_per_second"], run.settings["world_size"]))
    if "BERT large" not in speeds:
        return list(rows)
    reference, ranks = speeds["BERT large"]
    return [
        MeasuredRow(
            measured.row,
            {**measured.figures, "speed": (speeds[measured.row.name][0] / reference,)},
            measured.runs,
        )
        if measured.row.name in speeds and speeds[measured.row.name][1] == ranks
        else measured
        for measured in rows
    ]


def _text(column: Column, figures: Figures | None) -> str:
    if figures is None:
        return NOT_RUN
    digits = {"parameters": 3, "speed": 2, "steps": 0, "hours": 3}.get(column.name, 1)
    return "/".join(f"{figure:,.{digits}f}" for figure in figures)


def _paper_text(column: Column, figures: Figures | None) -> str:
    if figures is None:
        return ""
    digits = 0 if column.name in ("parameters", "steps", "hours") else 1
    return "/".join(f"{figure:,.{digits}f}" for figure in figures)


def markdown(table: Table, rows: Sequence[MeasuredRow], scale: Scale) -> str:
    """The table as Markdown: two lines a row, the paper's and the measured one."""
    titles = ["", "", *(column.title for column in table.columns)]
    lines = [f"## {table.caption}", "", _line(titles), _line(["---", "---", *("---:" for _ in table.columns)])]
    for measured in rows:
        row = measured.row
        lines.append(_line([row.name, "paper", *(_paper_text(c, row.figures.get(c.name)) for c in table.columns)]))
        if row.pretraining is not None:
            cells = [_text(column, measured.figures.get(column.name)) for column in table.columns]
            lines.append(_line(["", f"measured ({scale.name})", *cells]))
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def as_json(table: Table, rows: Sequence[MeasuredRow], scale: Scale) -> dict[str, Any]:
    """The table as plain values; what was not run is null."""
    return {
        "table": table.name,
        "caption": table.caption,
        "scale": scale.name,
        "columns": [column.name for column in table.columns],
        "rows": [
            {
                "name": measured.row.name,
                "paper": {name: list(figures) for name, figures in measured.row.figures.items()},
                "measured": {
                    column.name: list(measured.figures[column.name]) if column.name in measured.figures else None
                    for column in table.columns
                },
                "runs": dict(measured.runs),
            }
            for measured in rows
        ],
    }


def curve(run: Pretrained) -> list[tuple[int, float]]:
    """(step, MLM accuracy in percent) of every evaluation on held-out text."""
    records = monitor.read_records(run.directory, "eval")
    return [(record["step"], 100 * record["mlm_accuracy"]) for record in records if record["mlm_accuracy"] is not None]


_NOTES = {
    "tiny": (
        "Measured at scale **tiny**: models of two or four layers, 64 to 256 wide, trained for minutes on a few "
        "megabytes of text, one seed each. These figures show that the pipeline makes the table; they say nothing "
        "about the paper's models, and no difference between rows is evidence of anything."
    ),
    "paper": "Measured at the paper's scale.",
}
_READING = (
    "Figures are percentages unless the column says otherwise. SQuAD: F1/EM; of 2.0 with the threshold that is best on "
    "the same questions, as in the paper's code. CoLA: Matthews correlation; STS: Pearson correlation; other GLUE "
    "tasks: accuracy. Ensembles of GLUE are measured on dev; the paper's were scored on test by the leaderboard. "
    f'"{NOT_RUN}": there is no such run among those given. A row with several runs of a task shows the one with the '
    "most seeds, of those the newest."
)


def write_tables(evidence: Evidence, out: Path, names: Sequence[str] | None = None) -> list[Path]:
    """Writes `tables.md`, `tables.json` and plots into `out`, a section for each scale that there are runs of.

    Args:
        names: of the tables; all of them by default.
    """
    out.mkdir(parents=True, exist_ok=True)
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
            if table_plots.averages(path, table, {row.row.name: row.figures for row in rows}, scale.name):
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
            if table_plots.curves(path, panel, curves, scale.name):
                written.append(path)
                sections.append(f"![{panel.caption}]({path.name})\n")
            values.append({"figure": panel.name, "caption": panel.caption, "scale": scale.name, "curves": curves})
    atomic.write_text(out / "tables.md", "\n".join(sections))
    atomic.write_text(out / "tables.json", json.dumps(values, indent=1) + "\n")
    return [out / "tables.md", out / "tables.json", *written]


def _has_runs(table: Table, evidence: Evidence, scale: Scale) -> bool:
    return any(_pretrained_as(row, evidence, scale) for row in table.rows)
