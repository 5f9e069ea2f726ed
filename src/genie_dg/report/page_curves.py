"""Learning curves as plain numbers: means over the runs that training-domain selection chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from genie_dg.results.schema import Numbers, Run, in_acc, out_acc
from genie_dg.results.select import Chosen, Row, mean_of, select

from .page_files import heat, more_curves

POINTS = 60
"""The most points of a curve; more cannot be seen."""
TITLES = {
    "osgr": "OSGR by its definition",
    "update_gini": "Gini coefficient of the updates (0: all weights move alike)",
    "update_norm": "Norm of the updates",
    "update_top_1_percent": "Share of the largest hundredth in the updates",
}
"""What the numbers of ``watch.jsonl`` are called."""
COLUMNS = 24
"""The most columns of a heatmap."""
EXTRAS = 12
"""The most further curves that are drawn."""


@dataclass(frozen=True)
class Series:
    """One line of a chart: the mean of ``runs`` runs."""

    label: str
    steps: list[int]
    values: list[float]
    runs: int


@dataclass(frozen=True)
class Chart:
    """Lines that share their axes; accuracies are from 0 to 1 where ``percent``."""

    title: str
    series: list[Series]
    percent: bool = True


@dataclass(frozen=True)
class Heat:
    """Mean movement by step and group of parameters, over the largest of the step, of ``runs`` runs."""

    label: str
    steps: list[int]
    rows: list[list[float]]
    runs: int


def thin(count: int, most: int = POINTS) -> list[int]:
    """At most so many of ``count`` places, evenly, the first and the last among them.

    >>> thin(5, 3), thin(2)
    ([0, 2, 4], [0, 1])
    """
    if count <= most:
        return list(range(count))
    return [round(k * (count - 1) / (most - 1)) for k in range(most)]


def mean_curve(label: str, curves: Sequence[Mapping[int, float]]) -> Series:
    """The mean of step-to-value curves over the steps that all have, thinned.

    >>> mean_curve("a", [{0: 0.0, 10: 1.0}, {0: 0.5, 5: 0.5, 10: 0.5}])
    Series(label='a', steps=[0, 10], values=[0.25, 0.75], runs=2)
    """
    shared = sorted(set.intersection(*(set(curve) for curve in curves)))
    steps = [shared[k] for k in thin(len(shared))]
    values = [sum(curve[step] for curve in curves) / len(curves) for step in steps]
    return Series(label, steps, [float(f"{value:.5g}") for value in values], len(curves))


def charts(runs: Sequence[Run], names: Mapping[Row, str]) -> list[Chart]:
    """Validation and test accuracy against the step, then further numbers, means over the chosen runs.

    Runs that leave out one domain and runs that leave out all but one have charts of their own; other runs
    have them only where there are none of these.
    """
    count = max((len(run.domains) for run in runs), default=0)
    chosen: dict[int, dict[str, list[Run]]] = {}
    for case, answer in select(runs).items():
        if isinstance(answer, Chosen):
            by_label = chosen.setdefault(len(case.test_domains), {})
            by_label.setdefault(names[case.row], []).append(answer.run)
    usual = [left_out for left_out in sorted(chosen) if left_out in (1, count - 1)] or sorted(chosen)
    found: list[Chart] = []
    for left_out in usual:
        tail = f", {left_out} of {count} domains left out" if len(usual) > 1 else ""
        rows = chosen[left_out]
        for title, pick in (("Validation accuracy", _validation), ("Test accuracy", _test)):
            found.append(
                Chart(title + tail, [mean_curve(k, [pick(run) for run in v]) for k, v in rows.items()])
            )
        more = {label: [more_curves(run) for run in members] for label, members in rows.items()}
        keys = sorted({key for members in more.values() for curves in members for key in curves})
        for key in keys[:EXTRAS]:
            having = {label: [c[key] for c in members if key in c] for label, members in more.items()}
            lines = [mean_curve(label, curves) for label, curves in having.items() if curves]
            found.append(Chart(TITLES.get(key, key) + tail, lines, percent=False))
    return found


def heats(runs: Sequence[Run], names: Mapping[Row, str]) -> list[Heat]:
    """A heatmap for each row whose chosen runs were watched, as shares of the largest movement."""
    watched: dict[str, list[dict[int, list[float]]]] = {}
    for case, answer in select(runs).items():
        if isinstance(answer, Chosen) and (found := heat(answer.run)):
            watched.setdefault(names[case.row], []).append(found)
    drawn = []
    for label in dict.fromkeys(label for label in names.values() if label in watched):
        members = watched[label]
        shared = sorted(set.intersection(*(set(found) for found in members)))
        if len({len(row) for found in members for row in found.values()}) > 1:
            continue  # networks of different sizes have no common groups
        steps = [shared[k] for k in thin(len(shared), COLUMNS)]
        rows = [[_mean(x) for x in zip(*(_shares(found[s]) for found in members), strict=True)] for s in steps]
        drawn.append(Heat(label, steps, rows, len(members)))
    return drawn


def _shares(row: Sequence[float]) -> list[float]:
    largest = max(row, default=0.0)
    return [value / largest if largest > 0 else 0.0 for value in row]


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 3)


def _validation(run: Run) -> dict[int, float]:
    sources = [k for k in range(len(run.domains)) if k not in run.config.test_domains]
    return _by_step(run, mean_of(out_acc(run.numbers), sources))


def _test(run: Run) -> dict[int, float]:
    return _by_step(run, mean_of(in_acc(run.numbers), run.config.test_domains))


def _by_step(run: Run, values: Numbers) -> dict[int, float]:
    return dict(zip(run.steps.astype(int).tolist(), values.tolist(), strict=True))
