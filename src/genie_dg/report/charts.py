"""Charts as inline SVG, 320 units wide so that one fits a phone and several fit beside each other.

Colours are classes ``c0`` to ``c6`` to which the style of the page gives values for light and for dark paper.
Lines differ in dashes too, chosen draws in shape: nothing is told by colour alone. All text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from .curves import COLOURS

WIDTH = 320
LEFT, RIGHT, TOP, BOTTOM = 38, 10, 20, 34
HEIGHT = 210
DASHES = ("", "6 3", "2 3", "8 3 2 3")

Point = tuple[float, float]


def colour(place: int) -> str:
    """The class of the place-th row."""
    return f"c{place % len(COLOURS)}"


def dash(place: int) -> str:
    """The dashes of the place-th row; colour and dashes together are new for 28 rows."""
    found = DASHES[place % len(DASHES)]
    return f' stroke-dasharray="{found}"' if found else ""


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from at or below ``low`` to at or above ``high``.

    >>> ticks(0.13, 0.87), ticks(3, 3)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [2.5, 3.0, 3.5])
    """
    if high - low < 1e-12 * max(1.0, abs(high)):
        low, high, about = low - 0.5, high + 0.5, 2
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def number(value: float) -> str:
    """A number in few characters.

    >>> number(20.0), number(0.25), number(1200), number(-0.0)
    ('20', '0.25', '1,200', '0')
    """
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _svg(label: str, height: float, body: Sequence[str]) -> str:
    name = escape(label)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" role="img" '
        f'aria-label="{name}">{"".join(body)}</svg>'
    )


class _Axes:
    """From numbers to places, and the lines and words around them."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        self.x_ticks, self.y_ticks = ticks(min(xs), max(xs), 4), ticks(min(ys), max(ys))

    def x(self, value: float) -> float:
        low, high = self.x_ticks[0], self.x_ticks[-1]
        return LEFT + (value - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_ticks[0], self.y_ticks[-1]
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def drawn(self, x_name: str) -> list[str]:
        parts = []
        for value in self.y_ticks:
            at = self.y(value)
            parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
            parts.append(f'<text x="{LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{number(value)}</text>')
        for value in self.x_ticks:
            end = ' text-anchor="end"' if value == self.x_ticks[-1] else ' text-anchor="middle"'
            at = WIDTH - 2 if value == self.x_ticks[-1] else self.x(value)
            parts.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 14}"{end}>{number(value)}</text>')
        middle = (LEFT + WIDTH - RIGHT) / 2
        parts.append(f'<text x="{middle}" y="{HEIGHT - 4}" text-anchor="middle">{escape(x_name)}</text>')
        return parts


def lines(label: str, curves: Sequence[tuple[int, Sequence[Point]]], x_name: str = "step") -> str:
    """One line for each (place of the row, points)."""
    points = [point for _, curve in curves for point in curve]
    if not points:
        return '<p class="note">There is no step that all chosen runs have.</p>'
    axes = _Axes([x for x, _ in points], [y for _, y in points])
    body = axes.drawn(x_name)
    for place, curve in curves:
        if len(curve) == 1:
            x, y = curve[0]
            body.append(
                f'<circle class="dot {colour(place)}" cx="{axes.x(x):.1f}" cy="{axes.y(y):.1f}" r="4"/>'
            )
        elif curve:
            way = "L".join(f"{axes.x(x):.1f} {axes.y(y):.1f}" for x, y in curve)
            body.append(f'<path class="line {colour(place)}"{dash(place)} d="M{way}"/>')
    return _svg(label, HEIGHT, body)


def heatmap(label: str, steps: Sequence[int], rows: Sequence[Sequence[float]]) -> str:
    """A cell for each step (from left to right) and group (from below), darker for more, from 0 to 1."""
    if not steps or not rows[0]:
        return '<p class="note">There is no step that all chosen runs have.</p>'
    width = (WIDTH - LEFT - RIGHT) / len(steps)
    height = (HEIGHT - TOP - BOTTOM) / len(rows[0])
    body = []
    for column, row in enumerate(rows):
        x = LEFT + column * width
        for group, value in enumerate(row):
            y = HEIGHT - BOTTOM - (group + 1) * height
            body.append(
                f'<rect class="heat" x="{x:.1f}" y="{y:.1f}" width="{width + 0.3:.1f}" '
                f'height="{height + 0.3:.1f}" fill-opacity="{value:.2g}"/>'
            )
    below = HEIGHT - BOTTOM + 14
    body.append(f'<text x="{LEFT}" y="{below}">{number(steps[0])}</text>')
    body.append(f'<text x="{WIDTH - 2}" y="{below}" text-anchor="end">{number(steps[-1])}</text>')
    body.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">step</text>')
    body.append(f'<text x="{LEFT - 5}" y="{TOP + 8}" text-anchor="end">last</text>')
    body.append(f'<text x="{LEFT - 5}" y="{HEIGHT - BOTTOM}" text-anchor="end">first</text>')
    return _svg(label, HEIGHT, body)


def scatter(
    label: str, place: int, points: Sequence[tuple[float, float, bool, str]], x_name: str, y_name: str
) -> str:
    """One mark for each (x, y, chosen, words): a ring, or a filled diamond where chosen."""
    if not points:
        return '<p class="note">There are no draws.</p>'
    axes = _Axes([p[0] for p in points], [p[1] for p in points])
    body = [*axes.drawn(x_name), f'<text x="{LEFT}" y="11">{escape(y_name)}</text>']
    for x, y, chosen, words in sorted(points, key=lambda p: p[2]):
        at = axes.x(x), axes.y(y)
        title = f"<title>{escape(words)}</title>"
        if chosen:
            way = f"M{at[0]:.1f} {at[1] - 6:.1f}l6 6l-6 6l-6 -6z"
            body.append(f'<path class="chosen {colour(place)}" d="{way}">{title}</path>')
        else:
            where = f'cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="3.5"'
            body.append(f'<circle class="ring {colour(place)}" {where}>{title}</circle>')
    return _svg(label, HEIGHT, body)


def bars(label: str, items: Sequence[tuple[int, str, float | None, float | None]]) -> str:
    """One bar from 0 to 100 for each (place, name, mean, error) in percent, with the error as a whisker."""
    step, width = 36, WIDTH - 4
    body = []
    for at, (place, name, mean, error) in enumerate(items):
        y = at * step
        if mean is None:
            body.append(_named(name, "missing", y))
            continue
        told = f"{mean:.1f}" + ("" if error is None else f" ± {error:.1f}")
        body.append(_named(name, told, y))
        body.append(f'<path class="rail" d="M2 {y + 24}H{2 + width}"/>')
        right = 2 + mean / 100 * width
        body.append(
            f'<rect class="bar {colour(place)}" x="2" y="{y + 18}" width="{right - 2:.1f}" height="12"/>'
        )
        if error:
            low, high = (2 + min(max(mean + s * error, 0), 100) / 100 * width for s in (-1, 1))
            body.append(
                f'<path class="whisker" d="M{low:.1f} {y + 24}H{high:.1f}M{low:.1f} {y + 20}v8M{high:.1f} '
                f'{y + 20}v8"/>'
            )
    return _svg(label, step * len(items), body)


def intervals(label: str, items: Sequence[tuple[int, str, float, float | None, float | None]]) -> str:
    """One dot, with its interval, for each (place, name, mean, low, high) in points, around zero."""
    step, width = 36, WIDTH - 20
    edge = max([0.5, *(abs(v) for item in items for v in item[2:] if isinstance(v, float))])
    scale = ticks(-edge, edge, 4)
    half = max(-scale[0], scale[-1])

    def x(value: float) -> float:
        return 10 + (value + half) / (2 * half) * width

    height = step * len(items)
    body = []
    for at, (place, name, mean, low, high) in enumerate(items):
        y = at * step
        body.append(_named(name, f"{mean:+.2f}", y))
        body.append(f'<path class="zero" d="M{x(0):.1f} {y + 17}v14"/>')
        if low is not None and high is not None:
            body.append(f'<path class="line {colour(place)}" d="M{x(low):.1f} {y + 24}H{x(high):.1f}"/>')
        body.append(f'<circle class="dot {colour(place)}" cx="{x(mean):.1f}" cy="{y + 24}" r="5"/>')
    for value in (-half, 0.0, half):
        anchor = {-half: "start", 0.0: "middle"}.get(value, "end")
        body.append(f'<text x="{x(value):.1f}" y="{height + 14}" text-anchor="{anchor}">{number(value)}</text>')
    return _svg(label, height + 18, body)


def _named(name: str, value: str, y: float) -> str:
    """A name at the left and a value at the right, above what is drawn."""
    short = name if len(name) <= 34 else f"{name[:33]}…"
    return (
        f'<text x="2" y="{y + 13}">{escape(short)}</text>'
        f'<text x="{WIDTH - 2}" y="{y + 13}" text-anchor="end">{escape(value)}</text>'
    )


def swatch(place: int) -> str:
    """The line of a legend."""
    return (
        f'<svg class="swatch" viewBox="0 0 28 10" width="28" height="10" aria-hidden="true">'
        f'<path class="line {colour(place)}"{dash(place)} d="M1 5H27"/></svg>'
    )
