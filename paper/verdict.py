r"""When a claim holds: a rule about numbers, and nothing else.

A claim says that a number lies above, or below, a threshold. The number is measured once for each seed (paired:
the same splits, initial weights and batches for both sides), and the mean has Student's interval,
:math:`\bar x \pm t\, s / \sqrt n`. The claim

- **holds** if the whole interval is on its side of the threshold,
- **does not hold** if the whole interval is on the other side,
- is **undecided at this scale** otherwise, and **not measured** without numbers.

A claim about several opponents at once is as strong as its weakest part. With k parts each interval has level
1 - 0.05/k (Bonferroni), so that all k cover with 95 %: it holds if every part does, and does not hold if one
part does not.

A table of means over trials, each with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from genie_dg.statistics import t_quantile

from .request import PaperError

Side = Literal["above", "below"]
HOLDS, FAILS, UNDECIDED, NOT_MEASURED = "holds", "does not hold", "undecided at this scale", "not measured"
LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean and the two ends of its interval."""

    value: float
    low: float
    high: float
    count: int
    level: float = LEVEL


@dataclass(frozen=True)
class Judgement:
    """A verdict and the part of the claim that decided it; neither part nor interval when not measured.

    ``parts`` has the interval and the verdict of every part.
    """

    verdict: str
    part: str = ""
    interval: Interval | None = None
    parts: Mapping[str, tuple[Interval, str]] = field(default_factory=dict)


def interval_of(values: Sequence[float], level: float = LEVEL) -> Interval:
    """Student's interval for the mean of independent numbers, two or more and all finite.

    >>> interval = interval_of([1.0, 2.0, 3.0])
    >>> interval.value, round(interval.low, 3), round(interval.high, 3)
    (2.0, -0.484, 4.484)
    """
    n = len(values)
    if n < 2 or not all(map(math.isfinite, values)):
        raise PaperError(
            f"Got {n} numbers ({', '.join(f'{x:g}' for x in values[:5])}); an interval needs two or more, all "
            "finite, so measure with more seeds."
        )
    mean = math.fsum(values) / n
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1))
    half = t_quantile(level, n - 1) * deviation / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n, level)


def verdict(interval: Interval | None, side: Side, threshold: float) -> str:
    """The rule of this module for one interval; an end that lies on the threshold decides nothing.

    >>> verdict(Interval(0.5, 0.1, 0.9, 3), "above", 0.0), verdict(Interval(0.5, 0.0, 1.0, 3), "above", 0.0)
    ('holds', 'undecided at this scale')
    """
    if interval is None:
        return NOT_MEASURED
    if not all(map(math.isfinite, (interval.low, interval.value, interval.high))):
        return UNDECIDED
    sign = 1 if side == "above" else -1
    worst, best = sorted((sign * (interval.low - threshold), sign * (interval.high - threshold)))
    return HOLDS if worst > 0 else FAILS if best < 0 else UNDECIDED


def judge(parts: Mapping[str, Sequence[float]], side: Side, threshold: float) -> Judgement:
    """The verdict on a claim from the numbers of each of its parts.

    Decided by the part whose mean lies furthest on the wrong side, unless another part does not hold: then by
    that one.

    >>> judge({"SGD": [0.3, 0.31, 0.29], "Adam": [0.01, -0.02, 0.03]}, "above", 0.0).part
    'Adam'
    """
    level = 1 - (1 - LEVEL) / len(parts) if parts else LEVEL
    return judge_intervals({name: interval_of(v, level) for name, v in parts.items()}, side, threshold)


def judge_intervals(intervals: Mapping[str, Interval], side: Side, threshold: float) -> Judgement:
    """The same from the interval of each part, however it was computed.

    >>> judge_intervals({"Adam": Interval(2.0, 1.0, 3.0, 12)}, "above", 0.0).verdict
    'holds'
    """
    if not intervals:
        return Judgement(NOT_MEASURED)
    sign = 1 if side == "above" else -1
    ordered = sorted(intervals.items(), key=lambda item: sign * item[1].value)
    verdicts = {name: verdict(one, side, threshold) for name, one in ordered}
    failed = [name for name, said in verdicts.items() if said == FAILS]
    undecided = [name for name, said in verdicts.items() if said == UNDECIDED]
    part = (failed or undecided or list(verdicts))[0]
    every = {name: (intervals[name], verdicts[name]) for name in intervals}
    return Judgement(verdicts[part], part, intervals[part], every)


@dataclass(frozen=True)
class NumbersTable:
    """A table of means over trials, each with half the width of its 95 % interval."""

    title: str
    columns: tuple[str, ...]
    rows: dict[str, list[tuple[float, float]]]

    def markdown(self) -> str:
        """As Markdown; a cell without two numbers is a dash."""
        lines = [["", *self.columns], ["---"] * (len(self.columns) + 1)]
        for name, cells in self.rows.items():
            shown = [f"{mean:.3f} ± {half:.3f}" if math.isfinite(half) else "-" for mean, half in cells]
            lines.append([name, *shown])
        return f"{self.title}:\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def as_json(self) -> dict[str, object]:
        """Plain data; a number that does not exist is null."""
        rows = {
            name: [[x if math.isfinite(x) else None for x in pair] for pair in cells]
            for name, cells in self.rows.items()
        }
        return {"title": self.title, "columns": list(self.columns), "rows": rows}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> NumbersTable:
        """What `as_json` gave; null is a number that does not exist."""

        def number(x: float | None) -> float:
            return math.nan if x is None else x

        cells = plain["rows"].items()
        rows = {name: [(number(mean), number(half)) for mean, half in pairs] for name, pairs in cells}
        return cls(plain["title"], tuple(plain["columns"]), rows)


def cell(numbers: Sequence[float]) -> tuple[float, float]:
    """Mean and half width over the numbers that exist.

    >>> [round(x, 3) for x in cell([1.0, 2.0, 3.0, math.nan])]
    [2.0, 2.484]
    """
    finite = [number for number in numbers if math.isfinite(number)]
    if len(finite) < 2:
        return math.nan, math.nan
    interval = interval_of(finite)
    return interval.value, interval.value - interval.low
