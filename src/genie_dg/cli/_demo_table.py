"""From the demo's runs to what it prints: pure functions of outcomes, and one that draws the table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.table import Table

    from ._demo_runs import Outcome


class Chosen(NamedTuple):
    """The learning rate that won on validation data, and its runs, one for each seed."""

    rate: float
    runs: list[Outcome]


Results = Mapping[str, Mapping[float, Chosen]]
"""For each optimizer (by label) and held-out angle what was chosen."""


def select(candidates: Mapping[float, Sequence[Outcome]]) -> Chosen:
    """The rate with the best validation accuracy, averaged over seeds; of equals the first.

    The accuracy on the held-out domain is not looked at.
    """
    best = max(candidates, key=lambda rate: statistics.fmean(run.validation for run in candidates[rate]))
    return Chosen(best, list(candidates[best]))


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error, which is NaN for a single value.

    >>> mean_and_error([1.0, 2.0, 3.0])[0], round(mean_and_error([1.0, 2.0, 3.0])[1], 4)
    (2.0, 0.5774)
    """
    if len(values) == 1:
        return values[0], math.nan
    return statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))


def cell(values: Sequence[float]) -> str:
    """One entry of the table: ``mean±error``, or the value alone when there is one."""
    mean, error = mean_and_error(values)
    return f"{mean:.1f}" if math.isnan(error) else f"{mean:.1f}±{error:.1f}"


def row(label: str, by_angle: Mapping[float, Chosen]) -> list[str]:
    """The cells of one optimizer: each angle, the average over angles, the time of a step.

    The average is taken for each seed first, so that its error is one over seeds like the others.
    """
    accuracies = [[run.held_out for run in chosen.runs] for chosen in by_angle.values()]
    averages = [statistics.fmean(of_seed) for of_seed in zip(*accuracies, strict=True)]
    step_ms = statistics.median(run.step_ms for chosen in by_angle.values() for run in chosen.runs)
    return [label, *(cell(values) for values in accuracies), cell(averages), f"{step_ms:.2f}"]


def table(results: Results, seeds: int) -> Table:
    """The comparison, ready to be printed by rich."""
    from rich import box
    from rich.table import Table

    spread = "" if seeds == 1 else ", mean±standard error"
    drawn = Table(
        title=f"Accuracy on the held-out angle (percent{spread})",
        box=box.SIMPLE_HEAD,
        padding=(0, 1),
        title_justify="left",
    )
    angles = list(next(iter(results.values())))
    for header in ["optimizer", *(f"{angle:g}°" for angle in angles), "average", "ms/step"]:
        drawn.add_column(header, justify="left" if header == "optimizer" else "right", no_wrap=True)
    for label, by_angle in results.items():
        drawn.add_row(*row(label, by_angle))
    return drawn


def rates_line(results: Results) -> str:
    """Which learning rate was chosen, for each optimizer and angle."""
    parts = []
    for label, by_angle in results.items():
        parts.append(f"{label} {', '.join(f'{chosen.rate:g}' for chosen in by_angle.values())}")
    return "; ".join(parts)


def gauges_line(by_angle: Mapping[float, Chosen]) -> str:
    """The gauges at the end of training, averaged over the runs in the table."""
    runs = [run for chosen in by_angle.values() for run in chosen.runs]
    means = {name: statistics.fmean(run.gauges[name] for run in runs) for name in runs[0].gauges}
    return ", ".join(f"{name} {value:.3g}" for name, value in means.items())
