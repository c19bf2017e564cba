"""A self-contained HTML page that compares runs: figures, settings that differ, speed, cost, and curves."""

import html
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from common.text import format_duration, quantity
from pipeline.analysis.compared_runs import ComparedRun, differing_settings, mean_over_time, sustained_speed
from pipeline.analysis.finished_runs import TaskRun
from pipeline.analysis.svg_chart import COLOURS, Series, chart

"""In the second line of each page, so that a page can be replaced by a new one, and no other file is."""
SENTENCE_TASKS = ("sop", "nsp")
MAX_VALUE = 48
"""Characters of a setting that are shown."""
_NO_CHART = ("samples", "predictions", "pairs", "epochs", "seconds")
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1d232b; margin: 2rem auto; max-width: 1180px; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem; border-bottom: 1px solid #d6dae0 }
table { border-collapse: collapse; margin: .8rem 0; display: block; overflow-x: auto }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #e6e9ed; text-align: right; white-space: nowrap }
th:first-child, td:first-child { text-align: left } th { font-weight: 600; background: #f5f6f8 }
td.text { text-align: left } .key { display: inline-block; width: .8em; height: .8em; margin-right: .45em }
.charts { display: flex; flex-wrap: wrap; gap: 12px } svg { background: #fff; max-width: 100%; height: auto }
svg text { font: 11px system-ui, sans-serif; fill: #3c4650 } svg .title { font-size: 13px; font-weight: 600 }
svg .end { text-anchor: end; dominant-baseline: middle } svg .middle { text-anchor: middle }
svg .grid { stroke: #e4e7eb; stroke-width: 1 } .note { color: #5b6670 }
"""


def page(runs: Sequence[ComparedRun], results: Sequence[TaskRun], price: float | None) -> str:
    """The page.

    Args:
        runs: in the order of the columns and colours.
        results: finished fine-tuning runs.
        price: of a GPU for an hour, in any currency; None leaves out the cost.
    """
    colours = {run.name: COLOURS[number % len(COLOURS)] for number, run in enumerate(runs)}
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8"><title>Runs compared</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{quantity(len(runs), 'run')} compared</h1>",
        _overview(runs, colours),
        _held_out(runs, colours),
        _task_results(results),
        _speed_and_cost(runs, colours, price),
        _settings(runs, colours),
        _curves(runs, colours),
        "</body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


Column = tuple[str, Callable[[ComparedRun], str]]


def _overview(runs: Sequence[ComparedRun], colours: dict[str, str]) -> str:
    columns: list[Column] = [
        ("trains", lambda run: run.kind),
        ("state", lambda run: "finished" if run.finished else "not finished"),
        ("steps", lambda run: f"{run.step:,}" + (f" of {run.settings['steps']:,}" if run.objective else "")),
        ("tokens", lambda run: _number(run.last("tokens"), ",.0f")),
        ("parameters", lambda run: f"{run.parameters:,}"),
        ("precision", lambda run: str(run.settings.get("precision") or "unknown")),
        ("ranks", lambda run: str(run.settings.get("world_size") or "unknown")),
        ("device", lambda run: str(run.settings.get("device") or "unknown")),
    ]
    return f"<h2>Runs</h2>{_by_run(runs, colours, columns)}"


def _speed_and_cost(runs: Sequence[ComparedRun], colours: dict[str, str], price: float | None) -> str:
    columns: list[Column] = [
        ("tokens/s", lambda run: _number(sustained_speed(run.training), ",.0f")),
        ("MFU", lambda run: _percent(mean_over_time(run.training, "peak_share"))),
        ("waiting for data", lambda run: _percent(mean_over_time(run.training, "data_wait_share"))),
        ("memory of rank 0, GB", lambda run: _number(_highest(run, "peak_memory_gb"), ".2f")),
        ("time", lambda run: "" if (seconds := run.last("seconds")) is None else format_duration(seconds)),
        ("rank-hours", lambda run: _number(run.gpu_hours, ",.2f")),
    ]
    note = "Speed, MFU and waiting are those of the whole run, without evaluations and saves."
    if price is not None:
        columns.append(("cost", lambda run: "" if run.gpu_hours is None else f"{price * run.gpu_hours:,.2f}"))
        note += f" The cost is {price:g} for each hour of a rank."
    return f"<h2>Speed and cost</h2>{_by_run(runs, colours, columns)}<p class=note>{html.escape(note)}</p>"


def _by_run(runs: Sequence[ComparedRun], colours: dict[str, str], columns: Sequence[Column]) -> str:
    """A table with a line for each run."""
    rows = [[_key(run, colours), *(html.escape(cell(run)) for _, cell in columns)] for run in runs]
    return _table(["run", *(title for title, _ in columns)], rows)


def _held_out(runs: Sequence[ComparedRun], colours: dict[str, str]) -> str:
    evaluated = [run for run in runs if run.objective is not None and run.evaluations]
    if not evaluated:
        return ""
    tasks = [task for task in SENTENCE_TASKS if any(run.objective == task for run in evaluated)]
    columns: list[Column] = [
        ("step", lambda run: _number(run.last("step", "eval"), ",.0f")),
        ("MLM loss, nats", lambda run: _number(run.last("mlm_loss", "eval"), ".4f")),
        ("below unigram entropy", lambda run: _percent(run.last("mlm_below_unigram", "eval"))),
        ("MLM accuracy", lambda run: _accuracy(run, "mlm")),
        *((f"{task.upper()} accuracy", partial(_trained_accuracy, task=task)) for task in tasks),
    ]
    note = "The last evaluation of each run. In brackets: the 95 % interval."
    return f"<h2>Held-out rows</h2>{_by_run(evaluated, colours, columns)}<p class=note>{note}</p>"


def _task_results(results: Sequence[TaskRun]) -> str:
    if not results:
        return ""
    rows = []
    for run in results:
        for split, metrics in run.metrics.items():
            shown = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
            cells = [str(run.directory), run.task.name, split, str(run.seeds), shown]
            rows.append([html.escape(cell) for cell in cells])
    return f"<h2>Fine-tuning results</h2>{_table(['run', 'task', 'split', 'seeds (median)', 'metrics'], rows)}"


def _settings(runs: Sequence[ComparedRun], colours: dict[str, str]) -> str:
    """The settings that differ, among the pre-training runs and among those of each task."""
    parts = []
    for kind, group in _by_kind(runs):
        if len(group) > 1:
            rows = [[html.escape(name), *map(_value, values)] for name, values in differing_settings(group)]
            titles = ["setting", *(_key(run, colours) for run in group)]
            found = _table(titles, rows, escape_titles=False) if rows else "<p>None.</p>"
            parts.append(f"<h2>Settings that differ: {html.escape(kind)}</h2>{found}")
    return "".join(parts)


def _by_kind(runs: Sequence[ComparedRun]) -> list[tuple[str, list[ComparedRun]]]:
    """The pre-training runs, and the fine-tuning runs of each task, with a name for people."""
    groups: dict[str, list[ComparedRun]] = {}
    for run in runs:
        groups.setdefault("pre-training" if run.objective is not None else run.kind, []).append(run)
    return sorted(groups.items(), key=lambda group: group[0] != "pre-training")


def _value(value: str) -> str:
    """A setting as a cell. A long one, such as a digest, is cut; the pointer shows all of it."""
    shown = value if len(value) <= MAX_VALUE else f"{value[:MAX_VALUE]}…"
    return f'<span title="{html.escape(value)}">{html.escape(shown)}</span>'


def _curves(runs: Sequence[ComparedRun], colours: dict[str, str]) -> str:
    shown = []
    for kind, group in _by_kind(runs):
        draw = _pretraining_charts if kind == "pre-training" else _finetuning_charts
        shown.append((f"Curves: {kind}", group, [one for one in draw(group, colours) if one]))
    legend = "Held-out figures have marks, with the 95 % interval as a band; training is the thin line."
    return "".join(
        f'<h2>{html.escape(title)}</h2><p>{_legend(group, colours)}</p><p class=note>{legend}</p><div class="charts">'
        f"{''.join(charts)}</div>"
        for title, group, charts in shown
        if charts
    )


def _pretraining_charts(runs: Sequence[ComparedRun], colours: dict[str, str]) -> Iterable[str]:
    def draw(
        title: str, name: str, x: str = "tokens", splits: Sequence[str] = ("train", "eval"), factor: float = 1.0
    ) -> str:
        series = [one for run in runs for split in splits for one in [_series(run, split, name, x, factor, colours)]]
        return chart(title, x, series)

    yield draw("MLM loss (nats)", "mlm_loss")
    yield draw("MLM accuracy (%)", "mlm_accuracy", factor=100)
    for task in SENTENCE_TASKS:
        trained = [run for run in runs if run.objective == task]
        series = [
            _series(run, split, f"{task}_accuracy", "tokens", 100, colours)
            for run in trained
            for split in ("train", "eval")
        ]
        yield chart(f"{task.upper()} accuracy (%)", "tokens", series)
    yield draw("held-out MLM loss (nats) against hours", "mlm_loss", x="hours", splits=["eval"])
    yield draw("gradient norm", "grad_norm", splits=["train"])
    yield draw("learning rate", "learning_rate", splits=["train"])
    yield draw("tokens a second", "tokens_per_second", splits=["train"])
    yield draw("MFU (%)", "peak_share", splits=["train"], factor=100)


def _finetuning_charts(runs: Sequence[ComparedRun], colours: dict[str, str]) -> Iterable[str]:
    yield chart("training loss", "step", [_series(run, "train", "loss", "step", 1, colours) for run in runs])
    names = dict.fromkeys(name for run in runs for record in run.evaluations for name in record)
    for name in names:
        if name not in ("step", "split", *_NO_CHART):
            yield chart(f"dev: {name}", "step", [_series(run, "eval", name, "step", 1, colours) for run in runs])


def _series(run: ComparedRun, split: str, name: str, x: str, factor: float, colours: dict[str, str]) -> Series:
    points = [(at, factor * value) for at, value in run.points(split, name, x)]
    low, high = (dict(run.points(split, f"{name}_{end}", x)) for end in ("low", "high"))
    band = [(at, factor * low[at], factor * high[at]) for at, _ in points if at in low and at in high]
    where = "held out" if split == "eval" else "training"
    return Series(f"{run.name}, {where}", colours[run.name], points, band, marked=split == "eval")


def _legend(runs: Sequence[ComparedRun], colours: dict[str, str]) -> str:
    return " &nbsp; ".join(_key(run, colours) for run in runs)


def _key(run: ComparedRun, colours: dict[str, str]) -> str:
    return f'<span class="key" style="background:{colours[run.name]}"></span>{html.escape(run.name)}'


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], escape_titles: bool = True) -> str:
    """A table of cells that are HTML already."""
    heads = "".join(f"<th>{html.escape(title) if escape_titles else title}</th>" for title in titles)
    lines = "\n".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>\n{lines}\n</tbody></table>"


def _trained_accuracy(run: ComparedRun, task: str) -> str:
    """The accuracy of a sentence task; "" for a run that does not train it."""
    return _accuracy(run, task) if run.objective == task else ""


def _accuracy(run: ComparedRun, task: str) -> str:
    value, low, high = (run.last(f"{task}_accuracy{end}", "eval") for end in ("", "_low", "_high"))
    if value is None:
        return ""
    interval = "" if low is None or high is None else f" ({100 * low:.1f} to {100 * high:.1f})"
    return f"{100 * value:.1f} %{interval}"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _highest(run: ComparedRun, name: str) -> float | None:
    return max((value for _, value in run.points("train", name)), default=None)
