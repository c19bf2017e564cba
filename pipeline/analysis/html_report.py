"""A self-contained HTML page that compares runs: figures, speed, cost, settings that differ, and curves."""

import html
import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from common.text import format_duration, printable, quantity
from pipeline.analysis.compared_runs import ComparedRun, differing_settings, mean_over_time, sustained_speed
from pipeline.analysis.finished_runs import TaskRun

MAX_VALUE = 48
"""Characters of a setting that are shown."""
_DIGEST = re.compile(r"[0-9a-f]{32,}")
_COUNTS = ("step", "split", "samples", "predictions", "pairs", "epochs", "seconds")
_NOT_CHARTED = ("total", "missing", "thresh")
"""Ends of names of SQuAD's numbers that say nothing about quality."""
COLUMNS = 2
MAX_POINTS = 300
"""Points of a drawn line. A longer one is drawn as means of parts."""
_WIDTH, _HEIGHT, _LEGEND_HEIGHT = 5.8, 3.4, 0.22  # inches: of a chart, and of a line of the legend
_DASHES = ("-", "--", ":", "-.")
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_XMLNS = re.compile(r' xmlns(:\w+)?="[^"]*"')  # HTML knows SVG without it
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1d232b; margin: 2rem auto; max-width: 1180px; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem; border-bottom: 1px solid #d6dae0 }
table { border-collapse: collapse; margin: .8rem 0; display: block; overflow-x: auto }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #e6e9ed; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left } th { font-weight: 600; background: #f5f6f8 }
svg { max-width: 100%; height: auto } .note { color: #5b6670 }
"""

Column = Callable[[ComparedRun], str]


@dataclass(frozen=True)
class Curve:
    """A curve.

    Attributes:
        place: of its run among the runs; it decides the colour.
        points: (x, y), by x.
        band: (x, low, high) of an interval around the line.
        marked: True draws a mark at each point; False a thin line.
    """

    place: int
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float, float]] = ()
    marked: bool = False


@dataclass(frozen=True)
class Chart:
    """A title, what x is, and the curves."""

    title: str
    x_label: str
    curves: Sequence[Curve]


def page(runs: Sequence[ComparedRun], results: Sequence[TaskRun], price: float | None) -> str:
    """The page.

    Args:
        results: finished fine-tuning runs.
        price: of a GPU for an hour, in any currency; None leaves out the cost.
    """
    groups: dict[str, list[ComparedRun]] = {}
    for run in sorted(runs, key=lambda run: run.objective is None):
        groups.setdefault("pre-training" if run.objective is not None else run.kind, []).append(run)
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><title>Runs compared</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{quantity(len(runs), 'run')} compared</h1>",
        *(_table_of_runs(title, note, runs, columns) for title, note, columns in _tables(price)),
        _task_results(results),
        *(_settings(kind, group) for kind, group in groups.items() if len(group) > 1),
        *(_curves(kind, group) for kind, group in groups.items()),
        "</body></html>",
    ]
    return printable("\n".join(part for part in parts if part), keep="\n") + "\n"


def _tables(price: float | None) -> Iterator[tuple[str, str, dict[str, Column]]]:
    """Title, note and columns of each table with a line for each run."""
    overview: dict[str, Column] = {
        "trains": lambda run: run.kind,
        "state": lambda run: "finished" if (run.directory / "done").exists() else "not finished",
        "steps": lambda run: f"{run.step:,}" + (f" of {run.settings['steps']:,}" if run.objective else ""),
        "tokens": lambda run: _number(run.last("tokens"), ",.0f"),
        "parameters": lambda run: f"{run.parameters:,}",
        "precision": lambda run: str(run.settings.get("precision") or ""),
        "ranks": lambda run: str(run.settings.get("world_size") or ""),
        "device": lambda run: str(run.settings.get("device") or ""),
    }
    yield "Runs", "", overview
    held_out: dict[str, Column] = {
        "step": lambda run: _number(run.last("step", "eval"), ",.0f"),
        "MLM loss, nats": lambda run: _number(run.last("mlm_loss", "eval"), ".4f"),
        "than the unigram entropy": lambda run: run.against_unigram,
        "MLM accuracy": lambda run: _accuracy(run, "mlm"),
        "SOP accuracy": lambda run: _accuracy(run, "sop"),
        "NSP accuracy": lambda run: _accuracy(run, "nsp"),
    }
    evaluated = {title: _if_pretrained(column) for title, column in held_out.items()}
    yield "Held-out rows", "The last evaluation of each run. In brackets: the 95 % interval.", evaluated
    speed: dict[str, Column] = {
        "tokens/s": lambda run: _number(sustained_speed(run.training), ",.0f"),
        "MFU": lambda run: _percent(mean_over_time(run.training, "peak_share")),
        "waiting for data": lambda run: _percent(mean_over_time(run.training, "data_wait_share")),
        "memory of rank 0, GB": lambda run: _number(run.highest("peak_memory_gb"), ".2f"),
        "time": lambda run: "" if (seconds := run.last("seconds")) is None else format_duration(seconds),
        "rank-hours": lambda run: _number(run.gpu_hours, ",.2f"),
    }
    note = "Speed, MFU and waiting are those of the whole run, without evaluations and saves."
    if price is not None:
        speed["cost"] = lambda run: "" if run.gpu_hours is None else f"{price * run.gpu_hours:,.2f}"
        note += f" The cost is {price:g} for each hour of a rank."
    yield "Speed and cost", note, speed


def _if_pretrained(column: Column) -> Column:
    return lambda run: "" if run.objective is None else column(run)


def _table_of_runs(title: str, note: str, runs: Sequence[ComparedRun], columns: dict[str, Column]) -> str:
    """A table with a line for each run and without empty lines and columns; "" if nothing is left."""
    rows = {run.name: [column(run) for column in columns.values()] for run in runs}
    rows = {name: row for name, row in rows.items() if any(row)}
    used = [number for number in range(len(columns)) if any(row[number] for row in rows.values())]
    lines = [[name, *(row[number] for number in used)] for name, row in rows.items()]
    return _table(title, ["run", *(list(columns)[number] for number in used)], lines, note) if lines else ""


def _task_results(results: Sequence[TaskRun]) -> str:
    rows = []
    for run in results:
        for split, metrics in run.metrics.items():
            shown = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
            rows.append([str(run.directory), run.task.name, split, str(run.seeds), shown])
    titles = ["run", "task", "split", "seeds (median)", "metrics"]
    return _table("Fine-tuning results", titles, rows) if rows else ""


def _settings(kind: str, runs: Sequence[ComparedRun]) -> str:
    """The settings that differ. Long ones are cut; of a digest 8 digits are enough."""
    rows = [[name, *map(_short, values)] for name, values in differing_settings(runs)]
    return _table(f"Settings that differ: {kind}", ["setting", *(run.name for run in runs)], rows)


def _short(value: str) -> str:
    value = _DIGEST.sub(lambda digest: digest[0][:8], value)
    return value if len(value) <= MAX_VALUE else f"{value[:MAX_VALUE]}…"


def _curves(kind: str, runs: Sequence[ComparedRun]) -> str:
    made = _pretraining_charts(runs) if kind == "pre-training" else _finetuning_charts(runs)
    charts = [chart for chart in made if any(curve.points for curve in chart.curves)]
    if not charts:
        return ""
    note = "Held-out figures have marks, with the 95 % interval as a band; training is the thin line."
    drawn = draw_charts([run.name for run in runs], charts)
    return f"<h2>Curves: {html.escape(kind)}</h2><p class=note>{note}</p>{drawn}"


def _pretraining_charts(runs: Sequence[ComparedRun]) -> Iterator[Chart]:
    both = ("train", "eval")
    yield _chart("MLM loss (nats)", "mlm_loss", runs, splits=both)
    yield _chart("MLM accuracy (%)", "mlm_accuracy", runs, splits=both, factor=100)
    for task in ("sop", "nsp"):
        trained = [run if run.objective == task else None for run in runs]
        yield _chart(f"{task.upper()} accuracy (%)", f"{task}_accuracy", trained, splits=both, factor=100)
    yield _chart("held-out MLM loss (nats) against hours", "mlm_loss", runs, "hours", ("eval",))
    yield _chart("gradient norm", "grad_norm", runs)
    yield _chart("learning rate", "learning_rate", runs)
    yield _chart("tokens a second", "tokens_per_second", runs)
    yield _chart("MFU (%)", "peak_share", runs, factor=100)


def _finetuning_charts(runs: Sequence[ComparedRun]) -> Iterator[Chart]:
    yield _chart("training loss", "loss", runs, "step")
    for name in dict.fromkeys(name for run in runs for record in run.evaluations for name in record):
        if name.rpartition("/")[2] not in _COUNTS and not name.endswith(_NOT_CHARTED):
            yield _chart(f"dev: {name}", name, runs, "step", ("eval",))


def _chart(
    title: str,
    name: str,
    runs: Sequence[ComparedRun | None],
    x: str = "tokens",
    splits: Sequence[str] = ("train",),
    factor: float = 1.0,
) -> Chart:
    """The chart of a number. None in place of a run keeps the colours of the runs behind it."""
    curves = []
    for place, run in enumerate(runs):
        for split in splits:
            if run is None:
                continue
            points, lows, highs = (run.points(split, f"{name}{end}", x) for end in ("", "_low", "_high"))
            band = [(at, factor * low, factor * high) for (at, low), (_, high) in zip(lows, highs)]
            curves.append(Curve(place, [(at, factor * value) for at, value in points], band, marked=split == "eval"))
    return Chart(title, x, curves)


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in heads)
    lines = "\n".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>\n{lines}\n</tbody></table>" if rows else "<p>None.</p>"
    return f"<h2>{html.escape(title)}</h2>{table}<p class=note>{html.escape(note)}</p>"


def _accuracy(run: ComparedRun, task: str) -> str:
    value, low, high = (run.last(f"{task}_accuracy{end}", "eval") for end in ("", "_low", "_high"))
    if value is None or task not in ("mlm", run.objective):
        return ""
    return f"{100 * value:.1f} %" + ("" if low is None or high is None else f" ({100 * low:.1f} to {100 * high:.1f})")


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def draw_charts(names: Sequence[str], charts: Sequence[Chart]) -> str:
    """An SVG element with the charts and a legend of the runs' names; "" without charts."""
    if not charts:
        return ""
    rows = -(-len(charts) // COLUMNS)
    height = rows * _HEIGHT + -(-len(names) // COLUMNS) * _LEGEND_HEIGHT
    figure = Figure(figsize=(COLUMNS * _WIDTH, height), layout="constrained")
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "report", "text.parse_math": False}):
        handles = [Line2D([], [], color=colour, linestyle=dashes) for colour, dashes in map(_style, range(len(names)))]
        figure.legend(
            handles, [printable(name) for name in names], loc="outside upper left", ncols=COLUMNS, frameon=False
        )
        for number, chart in enumerate(charts, 1):
            _draw(figure.add_subplot(rows, COLUMNS, number), chart)
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", metadata=_NO_METADATA)
    text = drawn.getvalue()
    return _XMLNS.sub("", text[text.index("<svg") :])


def _draw(axes: Axes, chart: Chart) -> None:
    for curve in chart.curves:
        colour, dashes = _style(curve.place)
        xs, ys = zip(*(curve.points if curve.marked else thinned(curve.points))) if curve.points else ((), ())
        weight = {"linewidth": 1.8, "marker": "o", "markersize": 3} if curve.marked else {"linewidth": 1, "alpha": 0.6}
        axes.plot(xs, ys, color=colour, linestyle=dashes, **weight)
        if curve.band:
            at, lows, highs = zip(*curve.band)
            axes.fill_between(at, lows, highs, color=colour, alpha=0.18, linewidth=0)
    low, high = axes.get_ylim()
    middle = (low + high) / 2
    if high - low < 1e-6 * abs(middle):  # one value, up to rounding
        axes.set_ylim(*sorted((0.95 * middle, 1.05 * middle)))
    axes.ticklabel_format(axis="y", useOffset=False)
    if chart.x_label != "hours":  # of which 5m would be thousandths
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_title(printable(chart.title), fontsize="medium", loc="left")
    axes.set_xlabel(chart.x_label)
    axes.grid(alpha=0.3)


def _style(place: int) -> tuple[str, str]:
    """Colour and dashes of a run: 40 runs look different."""
    return f"C{place % 10}", _DASHES[place // 10 % len(_DASHES)]


def thinned(points: Sequence[tuple[float, float]], count: int = MAX_POINTS) -> list[tuple[float, float]]:
    """At most `count` points, each the mean of a part of `points`."""
    size = max(1, -(-len(points) // count))
    parts = [points[start : start + size] for start in range(0, len(points), size)]
    return [(sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in parts]
