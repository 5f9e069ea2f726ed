"""The figures of the page, as SVG text that stands inside of it.

matplotlib draws; `_svg` then replaces its colours by names that the page gives values to, so that a figure fits
light and dark paper, and leaves out all that a browser does not need. Words of runs never pass through
matplotlib: a number holds their place. Equal input gives equal text. Every row has its place, and with it its
colour and dashes, on the whole page; chosen runs differ in shape.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from xml.etree import ElementTree

from . import figures
from .figures import COLOURS, DASHES, CurveData, LineStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 4.6, 2.75
"""Of a panel, in inches of 72 units."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.5, 0.14, 0.1, 0.46
"""Around the axes, in inches; always the same, so that axes below each other line up."""
_STRIP = 0.44
"""Height of a row of `dots`, in inches."""
_INK, _SOFT, _EDGE = "#1a1a1a", "#5a5a5a", "#c8c8c8"
_VARIABLES = {_INK: "var(--ink)", _SOFT: "var(--soft)", _EDGE: "var(--edge)"}
_DRAWN = tuple(colour.lower().replace("#000000", "#010101") for colour in COLOURS)
"""The colours of rows; pure black is what SVG fills with unless told, so matplotlib would not name it."""
_VARIABLES |= {colour: f"var(--c{k})" for k, colour in enumerate(_DRAWN)}
"""What stands for a colour on the page."""
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "genie-dg",
    "text.parse_math": False,
    "font.size": 10.5,
    **dict.fromkeys(("axes.labelcolor", "text.color", "xtick.color", "ytick.color"), _INK),
    **dict.fromkeys(("axes.edgecolor", "grid.color"), _EDGE),
    **{f"{axis}tick.{size}.size": 0 for axis in "xy" for size in ("major", "minor")},
    **{f"axes.spines.{side}": False for side in ("top", "right", "left")},
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.linewidth": 0.7,
}
_NAME = 34
"""Characters of a name that fit above a row of `dots`."""


class Mark(NamedTuple):
    """One run in a scatter plot."""

    x: float
    y: float
    place: int
    chosen: bool
    words: str


class Dot(NamedTuple):
    """One row of `dots`: a value with its whisker, and the value in words; nothing is drawn without a value."""

    place: int
    name: str
    value: float | None
    low: float | None
    high: float | None
    words: str


def style_of(place: int) -> LineStyle:
    """Colour and dashes of a row; they are new for 28 rows."""
    return _DRAWN[place % len(_DRAWN)], DASHES[place % len(DASHES)]


def axis_span(values: Sequence[float], least: float = 0.0) -> tuple[float, float]:
    """The ends of an axis that shows all values, with some space around them.

    >>> axis_span([1.0, 3.0]), axis_span([2.0], least=1.0)
    ((0.9, 3.1), (1.45, 2.55))
    """
    low, high = min(values), max(values)
    wider = max(0.0, (least or 1e-9 + abs(high) * 1e-3) - (high - low)) / 2
    low, high = low - wider, high + wider
    return low - 0.05 * (high - low), high + 0.05 * (high - low)


def lines(label: str, data: CurveData, places: Sequence[int], limits: tuple[float, float] | None = None) -> str:
    """Curves with their bands."""
    with _panel() as ax:
        figures.plot_curves(data, ax, [style_of(place) for place in places])
        if limits is not None:
            ax.set_ylim(*limits)
        return _svg(ax, label)


def points_figure(
    label: str, marks: Sequence[Mark], x_name: str, log: bool = False, limits: tuple[float, float] | None = None
) -> str:
    """A ring for each run, a filled diamond where it was chosen."""
    with _panel() as ax:
        titles: dict[str, list[str]] = {}
        for place, chosen in sorted({(mark.place, mark.chosen) for mark in marks}):
            some = [mark for mark in marks if (mark.place, mark.chosen) == (place, chosen)]
            colour, group = style_of(place)[0], f"marks-{place}-{int(chosen)}"
            titles[group] = [mark.words for mark in some]
            (line,) = ax.plot([m.x for m in some], [m.y for m in some], linestyle="none", zorder=3 + chosen)
            line.set(gid=group, marker="D" if chosen else "o", markersize=6.5 if chosen else 5.5)
            line.set(markerfacecolor=colour if chosen else "none", markeredgecolor=_INK if chosen else colour)
        if log:
            _log_axis(ax, [m.x for m in marks])
        if limits is not None:
            ax.set_ylim(*limits)
        ax.set_xlabel("@@0")
        return _svg(ax, label, [x_name], titles)


def _log_axis(ax: Axes, xs: Sequence[float]) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    ax.set_xscale("log")
    decades = math.log10(max(xs) / min(xs))
    subs = (1.0,) if decades > 2.2 else (1.0, 3.0) if decades > 1.1 else (1.0, 2.0, 5.0)
    ax.xaxis.set_major_locator(LogLocator(subs=subs, numticks=7))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(lambda x, _: f"{x:g}")


def dots(label: str, rows: Sequence[Dot], limits: tuple[float, float], x_name: str, zero: bool = False) -> str:
    """A value with a whisker for each row, its name above it on the left and the value on the right."""
    with _panel(_TOP + _STRIP * len(rows) + _BOTTOM, left=0.14) as ax:
        names = []
        ax.set_xlim(*limits)
        ax.set_ylim(len(rows), 0)
        ax.set_yticks([])
        ticks = [tick for tick in ax.get_xticks() if limits[0] <= tick <= limits[1]]
        for at, row in enumerate(rows):
            colour, y = style_of(row.place)[0], at + 0.72
            ax.vlines(ticks, at + 0.52, at + 0.92, color=_EDGE, linewidth=0.7, zorder=1)
            if zero:
                ax.vlines([0], at + 0.5, at + 0.94, color=_SOFT, linewidth=1.4, zorder=2)
            names.append(row.name if len(row.name) <= _NAME else f"{row.name[: _NAME - 1]}…")
            side: Any = {"transform": ax.get_yaxis_transform(), "va": "center"}
            ax.text(0, at + 0.28, f"@@{at}", ha="left", **side)
            ax.text(1, at + 0.28, row.words, ha="right", **side)
            if row.value is None:
                continue
            if row.low is not None and row.high is not None and row.high > row.low:
                ax.plot([row.low, row.high], [y, y], color=colour, linewidth=2.6, solid_capstyle="round")
            ax.plot([row.value], [y], "o", markersize=7.5, mfc=colour, mec=_INK, zorder=3)
        ax.set_xlabel(x_name)
        return _svg(ax, label, names)


def reliability_figure(bins: Sequence[tuple[float, float, int, float]]) -> str:
    """A bar for each bin of confidence (low, high, samples, accuracy), against the line where both agree."""
    with _panel(_TOP + _WIDTH - _RIGHT) as ax:
        total = sum(count for _, _, count, _ in bins)
        for low, high, count, accuracy in bins:
            width = 100 * (high - low)
            deep = 0.25 + 0.75 * count / total  # faint where there are few
            ax.bar(100 * low, 100 * accuracy, width, align="edge", color=_DRAWN[0], alpha=deep, edgecolor=_EDGE)
        ax.plot([0, 100], [0, 100], "--", color=_SOFT, linewidth=1.4)
        ax.set(xlim=(0, 100), ylim=(0, 100), xlabel="confidence (%); the darker a bar, the more pictures")
        return _svg(ax, "Reliability: accuracy against confidence")


@contextmanager
def _panel(height: float = _HEIGHT, left: float = _LEFT, bottom: float = _BOTTOM) -> Iterator[Axes]:
    """Axes at a fixed place on a figure of a fixed width."""
    figure = figures.new_figure(_WIDTH, height)  # names the extra where matplotlib is missing
    from matplotlib import rc_context

    inner = (
        left / _WIDTH,
        bottom / height,
        (_WIDTH - left - _RIGHT) / _WIDTH,
        (height - _TOP - bottom) / height,
    )
    with rc_context(_STYLE):
        yield figure.add_axes(inner)


def _svg(
    ax: Axes, label: str, words: Sequence[str] = (), titles: Mapping[str, Sequence[str]] | None = None
) -> str:
    """The figure as markup.

    Args:
        ax: its axes.
        label: what a reader who does not see it hears.
        words: what stands for the texts ``@@0``, ``@@1``, ...
        titles: by group, what each of its marks says under the pointer.
    """
    for artist in ax.findobj():
        artist.set_clip_on(False)
    file, figure = io.BytesIO(), cast("Figure", ax.figure)
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(file.getvalue())
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag.endswith(("}metadata", "}style"))]:
            parent.remove(child)
    groups = {group.get("id", ""): group for group in root.iter()}
    for name, some in (titles or {}).items():
        uses = [use for use in groups[name].iter() if use.tag.endswith("}use")]
        for use, title in zip(uses, some, strict=True):
            ElementTree.SubElement(use, "title").text = title
    key = "f" + hashlib.sha256(label.encode("utf-8", "replace") + file.getvalue()).hexdigest()[:8]
    for element in root.iter():
        _clean(element, key, words)
    for parent in reversed(list(root.iter())):
        for child in [child for child in parent if child.tag in ("g", "defs") and not len(child)]:
            parent.remove(child)
    viewed = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": label}
    root.attrib.clear()
    root.attrib.update(viewed)
    return ElementTree.tostring(root, encoding="unicode")


def _clean(element: ElementTree.Element, key: str, words: Sequence[str]) -> None:
    """Short numbers, colours and fonts of the page, identities only where something refers to them."""
    element.tag = element.tag.rpartition("}")[2]
    element.tail = None
    if element.tag != "title":
        text = (element.text or "").strip()
        element.text = words[int(text[2:])] if text.startswith("@@") else text or None
    old, kept = dict(element.attrib), {}
    for name, value in old.items():
        name = name.rpartition("}")[2]
        if (name == "id" and element.tag != "path") or value.startswith("rotate(-0 "):
            continue
        if name == "id" or (name == "href" and value.startswith("#")):
            value = f"#{key}{value[1:]}" if name == "href" else f"{key}{value}"
        elif name == "style":
            value = re.sub(r"#[0-9a-f]{6}", lambda match: _VARIABLES.get(match[0], match[0]), value)
            value = re.sub(r"font-family: [^;]*;", "", value).replace("; ", ";").replace(": ", ":")
        elif name in ("d", "x", "y", "transform", "points", "width", "height"):
            value = re.sub(r"(\.\d\d)\d+", r"\1", " ".join(value.split()))
        kept[name] = value
    element.attrib.clear()
    element.attrib.update(kept)
