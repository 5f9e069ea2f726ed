"""The OSGR over training by optimizer, with intervals (the paper's Figure 4).

The authors' figure takes the variance across the parameters of one gradient, which knows the batch and the
size of the gradient alone (`fig_logged`); what their runs logged stands beside. Here it is measured two ways,
on samples that no step was trained on: by the definition (loss changes on D' over those on D), and in the
theorem's form, which knows the preconditioner alone. A ratio of two small noisy numbers says little for one
run, so several trials are pooled at each step: the sum of the gains on D' over the sum of the gains on D, with
the interval of the delta method over trials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, stdev
from typing import TYPE_CHECKING

from genie_dg._types import MAIN
from genie_dg.diagnostics.monitor import Monitor, every, watch_osgr
from genie_dg.report.figures import CurveData, Record, Row, curve_data, plot_curves
from genie_dg.student_t import t_quantile

from .fig_logged import AS_PLOTTED, curves_of, plot_logged_osgr
from .figure_setup import FigureSetup, cross_entropy, figure_setup, halves, panels, samples, save
from .logged import committed
from .request import PaperError, Request, Result
from .runs import train_in_memory
from .verdict import LEVEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMS = {
    "osgr": "by the definition (loss changes)",
    "theorem_osgr": "the theorem's form (preconditioner alone)",
}
"""The numbers of a record that are drawn, and what the panels are called."""


@dataclass(frozen=True)
class Size:
    """How many trials, points of time, and samples of each source domain that are measured on."""

    trials: int
    points: int
    pool: int


SIZES = {"smoke": Size(2, 2, 24), "cpu": Size(8, 10, 75), "paper": Size(3, 25, 150)}


@dataclass(frozen=True)
class OsgrData:
    """The curves of each form, and what they were measured on."""

    curves: dict[str, CurveData]
    note: str
    n: int
    trials: int

    def table(self) -> tuple[list[str], list[Row]]:
        """One row for each point of each form."""
        rows: list[Row] = []
        for form, data in self.curves.items():
            rows += [[form, *row] for row in data.table()[1]]
        return ["form", "optimizer", "step", "osgr", "low", "high"], rows


def pooled(tops: Sequence[float], bottoms: Sequence[float]) -> tuple[float, float, float]:
    r"""The ratio of two sums and the ends of its interval, by the delta method.

    With :math:`r = \sum a_i / \sum b_i` and residuals :math:`e_i = (a_i - r b_i) / \bar b` it is
    :math:`r \pm t\, s_e / \sqrt n`; for :math:`b_i = 1` that is Student's interval of a mean.

    >>> [round(x, 3) for x in pooled([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])]
    [2.0, -0.484, 4.484]
    """
    n, below = len(tops), math.fsum(bottoms)
    if below <= 0:
        return math.nan, math.nan, math.nan  # no gain to compare with
    ratio = math.fsum(tops) / below
    spread = stdev([(a - ratio * b) * n / below for a, b in zip(tops, bottoms, strict=True)])
    half = t_quantile(LEVEL, n - 1) * spread / math.sqrt(n)
    return ratio, ratio - half, ratio + half


def osgr_data(setup: FigureSetup, size: Size) -> OsgrData:
    """Train with each optimizer on half of the samples and measure on the other half."""
    training, measuring = halves(setup.data)
    c = replace(setup.config, batch_size=min(setup.config.batch_size, 16))
    sources = [k for k in range(len(training.domains)) if k not in c.test_domains]
    pool = tuple(t.to(setup.device) for t in samples(measuring, sources, c.image_size, size.pool))
    n = c.batch_size * len(sources)
    last = tuple(sorted(setup.optimizers, key=lambda one: one.label == "SAM"))  # it is not in every panel
    setup = replace(setup, config=c, optimizers=last)
    records = {}
    for optimizer in setup.optimizers:
        trials = []
        for trial in range(size.trials):
            config = replace(optimizer.on(c), trial_seed=trial)
            for step, parts in train_in_memory(config, training, setup.device):
                setup.progress(optimizer, int((trial * c.steps + step) / size.trials))
                if step == 0:
                    network = parts.algorithm.network
                    gauge = watch_osgr(network, parts.optimizers[MAIN], cross_entropy, pool, n=n)
                    monitor = Monitor(gauge, every(max(1, c.steps // size.points), start=1))
                else:
                    monitor(step)
            trials.append(monitor.records)
        records[optimizer.label] = combine(trials)
    curves = {}
    for form in FORMS:
        having = {label: rows for label, rows in records.items() if any(form in row for row in rows)}
        curves[form] = curve_data(having, form)  # SAM has no preconditioner of the theorem's kind
    return OsgrData(curves, setup.note, n, size.trials)


def combine(trials: Sequence[Sequence[Record]]) -> list[Record]:
    """One record for each step of several trials, with both forms and their intervals over trials."""
    records: list[Record] = []
    for rows in zip(*trials, strict=True):
        one: dict[str, float] = {"step": rows[0]["step"]}
        diverged = sum("gain_on_d" not in row for row in rows)
        if diverged:
            raise PaperError(
                f"{diverged} of {len(rows)} trials had diverged at step {rows[0]['step']}; lower the learning "
                "rate of this optimizer in genie_dg.paper.figure_setup."
            )
        gains = pooled([row["gain_on_other"] for row in rows], [row["gain_on_d"] for row in rows])
        one |= dict(zip(("osgr", "osgr_low", "osgr_high"), gains, strict=True))
        if all("theorem_osgr" in row for row in rows):
            mean = pooled([row["theorem_osgr"] for row in rows], [1.0] * len(rows))
            one |= dict(zip(("theorem_osgr", "theorem_osgr_low", "theorem_osgr_high"), mean, strict=True))
        records.append(one)
    return records


def plot_osgr(data: OsgrData, form: str, ax: Axes) -> Axes:
    """Draw one form; the axis shows -0.5 to 1.1, where a ratio means something."""
    plot_curves(data.curves[form], ax)
    ax.set_ylim(-0.5, 1.1)
    ax.axhline(1.0, color="0.6", linewidth=0.8, zorder=0)
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    ax.set_ylabel(f"OSGR, {FORMS[form]}")
    return ax


def draw_osgr(data: OsgrData, folder: Path) -> tuple[Path, ...]:
    """Both forms as measured here, and what the authors' runs logged."""
    figure, axes = panels(1, 3, 18, 5.4)
    for form, ax in zip(FORMS, axes[:2], strict=True):
        plot_osgr(data, form, ax)
    plot_logged_osgr(curves_of(committed(), AS_PLOTTED), axes[2])
    measured = (
        f"{data.note}; D and D' of {data.n} samples, {data.trials} trials pooled, bands: 95 % over trials"
    )
    logged = f"VLCS, {AS_PLOTTED} left out, {committed().place}"
    figure.suptitle(f"left, middle: measured here, {measured}; right: logged, {logged}", fontsize="medium")
    return save(figure, folder, "osgr", data)


def make_osgr(request: Request) -> Result:
    """Measure, draw, write."""
    setup = figure_setup(request, "digits", 500, "VLCS")
    request.say(f"OSGR on {setup.note}, four optimizers")
    data = osgr_data(setup, SIZES[request.scale])
    files = draw_osgr(data, request.out)
    lines = []
    for form, curves in data.curves.items():
        shown = ", ".join(f"{x.label} {median(x.values):.2f}" for x in curves.curves)
        lines.append(f"- {FORMS[form]}, median over the points: {shown}")
    text = f"OSGR over training on {data.note}, {data.trials} trials, with 95 % intervals in the CSV.\n"
    return Result(text + "\n".join(lines), files)
