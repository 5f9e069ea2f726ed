"""The OSGR over training by optimizer, with intervals (the paper's Figure 4).

The authors' figure takes the variance across the parameters of one gradient, which knows the batch and the
size of the gradient alone (`fig_logged`). It is here as published, for every step, beside what their runs
logged. The OSGR itself is measured two ways, on samples that no step was trained on: by the definition (loss
changes on D' over those on D), and in the theorem's form, which knows the preconditioner alone: for SAM that
of the optimizer inside it, at SAM's own weights.

The paper averages every 200 iterations; here a point is a window of steps as well. A ratio of two small noisy
numbers says little for one step of one run, so the gains of a window and of all trials are pooled: the sum of
the gains on D' over the sum of the gains on D, with the interval of the delta method over trials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median, stdev

from matplotlib.axes import Axes
from torch import Tensor

from genie_dg.bench.assemble import Parts
from genie_dg.diagnostics.measured import measure_osgr
from genie_dg.diagnostics.osgr import osgr_as_published, osgr_of_moments
from genie_dg.diagnostics.per_sample import gradient_moments
from genie_dg.diagnostics.preconditioners import preconditioner
from genie_dg.optim.passes import Passes
from genie_dg.plugins import MAIN
from genie_dg.results.figures import CurveData, LogLine, curve_data, plot_curves
from genie_dg.statistics import t_quantile

from .figure_setup import FigureSetup, Table, cross_entropy, figure_setup, halves, panels, samples, save
from .logged import committed
from .logged_page import AS_PLOTTED, curves_of, plot_logged_osgr
from .request import Request, Result
from .runs import train_in_memory
from .verdict import LEVEL

FORMS = {
    "osgr": "by the definition (loss changes)",
    "theorem_osgr": "the theorem's form (preconditioner alone)",
    "as_published": "the authors' formula, measured here",
}
"""The numbers of a record that are drawn, and what the panels are called."""


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Args:
        trials: of each optimizer.
        window: steps of a point.
        every: steps between two measurements by the definition; the theorem's form, which moves little, is
            measured once a window and the published formula in every step.
        pool: samples of each source domain that are measured on.
    """

    trials: int
    window: int
    every: int
    pool: int


SIZES = {"smoke": Size(2, 10, 10, 24), "cpu": Size(5, 50, 10, 75), "paper": Size(3, 200, 20, 150)}
PICTURES = Size(4, 20, 10, 32)
"""At scale ``cpu`` on pictures, where a step takes a hundred times as long."""


@dataclass(frozen=True)
class OsgrData:
    """The curves of each form, and what they were measured on."""

    curves: dict[str, CurveData]
    note: str
    n: int
    trials: int
    window: int

    def table(self) -> Table:
        """One row for each point of each form."""
        rows = [[form, *row] for form, data in self.curves.items() for row in data.table()[1]]
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
    last = tuple(sorted(setup.optimizers, key=lambda one: one.label == "SAM"))  # the logged panel's colours
    setup = replace(setup, config=c, optimizers=last)
    records = {}
    for optimizer in setup.optimizers:
        trials = []
        for trial in range(size.trials):
            rows: list[LogLine] = []
            config = replace(optimizer.on(c), trial_seed=trial)
            for step, parts in train_in_memory(config, training, setup.device):
                if step:
                    rows.append({"step": step, **_measure(step, parts, pool, n, size)})
            trials.append(windows(rows, size.window))
        records[optimizer.label] = combine(trials)
    curves = {form: curve_data(records, form) for form in FORMS}
    return OsgrData(curves, setup.note, n, size.trials, size.window)


def _measure(step: int, parts: Parts, pool: tuple[Tensor, ...], n: int, size: Size) -> dict[str, float]:
    """What is due after a step: the published formula always, the others now and then."""
    network, optimizer = parts.algorithm.network, parts.optimizers[MAIN]
    gradient = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    numbers = {"as_published": osgr_as_published(gradient, n)}
    if step % size.every == 0:
        measured = measure_osgr(network, optimizer, cross_entropy, pool, n, seed=step)
        numbers |= {"gain_on_d": measured.gain_on_d, "gain_on_other": measured.gain_on_other}
    if step % size.window == size.window // 2:
        p = preconditioner(optimizer.base if isinstance(optimizer, Passes) else optimizer, network)
        numbers["theorem_osgr"] = osgr_of_moments(gradient_moments(network, cross_entropy, pool), p, n=n).value
    return numbers


def windows(rows: Sequence[LogLine], window: int) -> list[LogLine]:
    """One record for each whole window of steps: gains added up, the other numbers averaged.

    ``step`` is the middle: steps 1 to 50 are at 25. A number that no step of a window has is left out.

    >>> rows = [{"step": 1, "a": 1.0}, {"step": 2, "a": 3.0, "gain_on_d": 2.0}]
    >>> windows([*rows, {"step": 3, "a": 9.0, "gain_on_d": 1.0}], 2)
    [{'step': 1, 'a': 2.0, 'gain_on_d': 2.0}]
    """
    found: list[LogLine] = []
    for k in range(int(rows[-1]["step"]) // window):
        some = [row for row in rows if k * window < row["step"] <= (k + 1) * window]
        names = dict.fromkeys(name for row in some for name in row if name != "step")
        one: dict[str, float] = {"step": k * window + window // 2}
        for name in names:
            values = [row[name] for row in some if name in row]
            one[name] = math.fsum(values) if name.startswith("gain_") else fmean(values)
        found.append(one)
    return found


def combine(trials: Sequence[Sequence[LogLine]]) -> list[LogLine]:
    """One record for each window of several trials, with all forms and their intervals over trials."""
    records: list[LogLine] = []
    for rows in zip(*trials, strict=True):
        one: dict[str, float] = {"step": rows[0]["step"]}
        gains = pooled([row["gain_on_other"] for row in rows], [row["gain_on_d"] for row in rows])
        one |= dict(zip(("osgr", "osgr_low", "osgr_high"), gains, strict=True))
        for name in ("theorem_osgr", "as_published"):
            mean = pooled([row[name] for row in rows], [1.0] * len(rows))
            one |= dict(zip((name, f"{name}_low", f"{name}_high"), mean, strict=True))
        records.append(one)
    return records


def plot_osgr(data: OsgrData, form: str, ax: Axes) -> Axes:
    """Draw one form; the axis shows -0.5 to 1.1, where a ratio means something."""
    plot_curves(data.curves[form], ax)
    ax.set_ylabel(f"OSGR, {FORMS[form]}")
    if form == "as_published":
        ax.axhline(1 - 1 / data.n, color="0.3", linestyle=":", linewidth=1, zorder=0)
        label = f"1 - 1/{data.n}"
        ax.annotate(label, (0.99, 1 - 1 / data.n), xycoords=("axes fraction", "data"), ha="right", va="top")
        return ax
    ax.set_ylim(-0.5, 1.1)
    ax.axhline(1.0, color="0.6", linewidth=0.8, zorder=0)
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    if form == "theorem_osgr":
        ax.annotate("SAM: of the optimizer inside it", (0.98, 0.03), xycoords="axes fraction", ha="right")
    return ax


def draw_osgr(data: OsgrData, folder: Path) -> tuple[Path, ...]:
    """All forms as measured here, and what the authors' runs logged."""
    figure, axes = panels(2, 2, 13, 10)
    for form, ax in zip(FORMS, axes[:3], strict=True):
        plot_osgr(data, form, ax)
    plot_logged_osgr(curves_of(committed(), AS_PLOTTED), axes[3])
    measured = (
        f"measured here: {data.note};\nD and D' of {data.n} samples, windows of {data.window} steps, "
        f"{data.trials} trials pooled, bands: 95 % over trials"
    )
    logged = f"lower right, logged: VLCS, {AS_PLOTTED} left out, {committed().place}, windows of 200 steps"
    figure.suptitle(f"{measured}\n{logged}", fontsize="medium")
    return save(figure, folder, "osgr", data.table())


def make_osgr(request: Request) -> Result:
    """Measure, draw, write; on pictures that the user names, scale ``cpu`` starts from pretrained weights."""
    setup = figure_setup(request, "digits", 500, "VLCS", pretrained=bool(request.data), pretrained_steps=100)
    print(f"OSGR on {setup.note}, four optimizers", flush=True)
    data = osgr_data(
        setup, PICTURES if setup.config.pretrained and request.scale == "cpu" else SIZES[request.scale]
    )
    files = draw_osgr(data, request.out)
    lines = []
    for form, curves in data.curves.items():
        digits = 4 if form == "as_published" else 2
        shown = ", ".join(f"{x.label} {median(x.values):.{digits}f}" for x in curves.curves)
        lines.append(f"- {FORMS[form]}, median over the points: {shown}")
    text = f"OSGR over training on {data.note}, {data.trials} trials, with 95 % intervals in the CSV.\n"
    return Result(text + "\n".join(lines), files)
