"""Draws charts of curves as one SVG, to put into an HTML page."""

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from common.text import printable

COLUMNS = 2
MAX_POINTS = 300
"""Points of a drawn line. A longer one is drawn as means of parts."""
_WIDTH, _HEIGHT, _LEGEND_HEIGHT = 5.8, 3.4, 0.22  # inches: of a chart, and of a line of the legend
_DASHES = ("-", "--", ":", "-.")
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_XMLNS = re.compile(r' xmlns(:\w+)?="[^"]*"')  # HTML knows SVG without it


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
