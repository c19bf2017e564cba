"""Draws charts of curves as SVG, to put into an HTML page."""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

Point = tuple[float, float]

COLOURS = ("#1f6fb4", "#d1495b", "#2e8b57", "#e08a1e", "#7d5ba6", "#008b8b", "#a0522d", "#c2488f", "#6b7280", "#9aa61b")
WIDTH, HEIGHT = 540, 330
LEFT, RIGHT, TOP, BOTTOM = 64, 14, 34, 46
MAX_POINTS = 300
"""Points of a drawn line. A longer one is drawn as means of parts."""


@dataclass(frozen=True)
class Series:
    """A curve.

    Attributes:
        name: for the pointer.
        colour: of the line.
        points: (x, y), by x.
        band: (x, low, high) of an interval around the line.
        marked: True draws a mark at each point; False a thin line.
    """

    name: str
    colour: str
    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()
    marked: bool = False


def chart(title: str, x_label: str, series: Sequence[Series]) -> str:
    """An SVG element with these curves; "" if no curve has a point."""
    shown = [one for one in series if one.points]
    if not shown:
        return ""
    xs = [x for one in shown for x, _ in one.points]
    ys = [y for one in shown for _, y in one.points] + [y for one in shown for _, *ends in one.band for y in ends]
    plane = _Plane.around(xs, ys)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">',
        f"<title>{html.escape(title)}</title>",
        f'<text x="{LEFT}" y="18" class="title">{html.escape(title)}</text>',
        *plane.grid(),
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}" class="middle">{html.escape(x_label)}</text>',
        *(line for one in shown for line in _draw(one, plane)),
        "</svg>",
    ]
    return "\n".join(parts)


def _draw(one: Series, plane: "_Plane") -> list[str]:
    points = list(one.points) if one.marked else thinned(one.points)
    path = " ".join(f"{plane.x(x):.1f},{plane.y(y):.1f}" for x, y in points)
    width, opacity = ("2", "1") if one.marked else ("1.2", "0.55")
    parts = []
    if one.band:
        upper = [f"{plane.x(x):.1f},{plane.y(high):.1f}" for x, _, high in one.band]
        lower = [f"{plane.x(x):.1f},{plane.y(low):.1f}" for x, low, _ in reversed(one.band)]
        parts.append(f'<polygon points="{" ".join(upper + lower)}" fill="{one.colour}" fill-opacity="0.18"/>')
    parts.append(
        f'<polyline points="{path}" fill="none" stroke="{one.colour}" stroke-width="{width}" opacity="{opacity}">'
        f"<title>{html.escape(one.name)}</title></polyline>"
    )
    for x, y in points if one.marked else ():
        label = html.escape(f"{one.name}: {y:.4g} at {short(x)}")
        parts.append(
            f'<circle cx="{plane.x(x):.1f}" cy="{plane.y(y):.1f}" r="2.6" fill="{one.colour}">'
            f"<title>{label}</title></circle>"
        )
    return parts


def thinned(points: Sequence[Point], count: int = MAX_POINTS) -> list[Point]:
    """At most `count` points, each the mean of a part of `points`."""
    size = -(-len(points) // count)
    if size <= 1:
        return list(points)
    parts = [points[start : start + size] for start in range(0, len(points), size)]
    return [(sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in parts]


@dataclass(frozen=True)
class _Plane:
    """Maps values to the drawing."""

    low_x: float
    high_x: float
    low_y: float
    high_y: float

    @classmethod
    def around(cls, xs: Sequence[float], ys: Sequence[float]) -> "_Plane":
        low, high = min(ys), max(ys)
        room = (high - low) * 0.05 or max(abs(high), 1e-9) * 0.05
        return cls(min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1, low - room, high + room)

    def x(self, value: float) -> float:
        # Beyond 2**53 the next number is not 1 further, and the width can be 0.
        return LEFT + (value - self.low_x) / ((self.high_x - self.low_x) or 1.0) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.low_y) / (self.high_y - self.low_y) * (HEIGHT - TOP - BOTTOM)

    def grid(self) -> list[str]:
        """Lines and numbers of both axes."""
        parts = []
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        for value in ticks(self.low_y, self.high_y):
            at = f"{self.y(value):.1f}"
            parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{at}" y2="{at}" class="grid"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{at}" class="end">{short(value)}</text>')
        for value in ticks(self.low_x, self.high_x):
            at = f"{self.x(value):.1f}"
            parts.append(f'<line x1="{at}" x2="{at}" y1="{TOP}" y2="{bottom}" class="grid"/>')
            parts.append(f'<text x="{at}" y="{bottom + 16}" class="middle">{short(value)}</text>')
        return parts


def ticks(low: float, high: float, wanted: int = 6) -> list[float]:
    """Round numbers from `low` to `high`, about `wanted` of them."""
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough)) if 0 < rough < math.inf else 0.0
    if power == 0.0:
        return [low]
    step = next((power * factor for factor in (1, 2, 5, 10) if power * factor >= rough), power)
    first = math.ceil(low / step)
    return [step * number for number in range(first, math.floor(high / step) + 1)][: 4 * wanted] or [low]


def short(value: float) -> str:
    """A number for an axis: 1,500,000 as 1.5M."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}" if abs(value) > 1e-12 else "0"
