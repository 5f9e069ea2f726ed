"""The OSGR over training by optimizer, with intervals (the paper's Figure 4).

The authors' figure takes the variance across the parameters of one gradient, which gives 1 - 1/n whatever the
optimizer does. Here it is measured three ways, on samples that no step was trained on: by the definition (loss
changes on D' and on D), the same to first order, and in the theorem's form, which knows the preconditioner
alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from genie_dg._types import MAIN
from genie_dg.bench.assemble import Parts
from genie_dg.diagnostics import Monitor, every, watch_osgr
from genie_dg.report.curves import CurveData, Row, curve_data, plot_curves

from ._base import Made, Request
from ._figure import Contender, Stage, cross_entropy, device_of, halves, panels, samples, save, stage_of, walk

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMS = {
    "osgr": "by the definition (loss changes)",
    "osgr_first_order": "the definition, to first order",
    "theorem_osgr": "the theorem's form (preconditioner alone)",
}
"""The numbers of a record that are drawn, and what the panels are called."""

POOL = 150
"""Samples of each source domain that are measured on, at most."""


@dataclass(frozen=True)
class OsgrData:
    """The curves of each form, and what they were measured on."""

    curves: dict[str, CurveData]
    note: str
    n: int

    def table(self) -> tuple[list[str], list[Row]]:
        """One row for each point of each form."""
        rows: list[Row] = []
        for form, data in self.curves.items():
            rows += [[form, *row] for row in data.table()[1]]
        return ["form", "optimizer", "step", "osgr", "low", "high"], rows


def osgr_data(stage: Stage, points: int = 25, pool_size: int = POOL, device: str = "cpu") -> OsgrData:
    """Train with each optimizer on half of the samples and measure on the other half, ``points`` times."""
    train, measure = halves(stage.data)
    c = replace(stage.config, batch_size=min(stage.config.batch_size, 16))
    sources = [k for k in range(len(train.domains)) if k not in c.test_domains]
    pool = tuple(t.to(device) for t in samples(measure, sources, c.image_size, pool_size))
    n = c.batch_size * len(sources)
    records = {}
    last = tuple(sorted(stage.contenders, key=lambda c: c.label == "SAM"))  # it is not in every panel
    stage = replace(stage, config=c, contenders=last)
    for contender in stage.contenders:
        monitors: list[Monitor] = []

        def look(
            step: int, parts: Parts, monitors: list[Monitor] = monitors, contender: Contender = contender
        ) -> None:
            stage.progress(contender, step)
            if step == 0:
                gauge = watch_osgr(parts.algorithm.network, parts.optimizers[MAIN], cross_entropy, pool, n=n)
                monitors.append(Monitor(gauge, every(max(1, c.steps // points), start=1)))
            else:
                monitors[0](step)

        walk(contender.on(c), train, look, device)
        records[contender.label] = monitors[0].records
    curves = {}
    for form in FORMS:
        having = {label: rows for label, rows in records.items() if any(form in row for row in rows)}
        curves[form] = curve_data(having, form)  # SAM has no preconditioner of the theorem's kind
    return OsgrData(curves, stage.note, n)


def plot_osgr(data: OsgrData, form: str, ax: Axes) -> Axes:
    """Draw one form; the axis shows -0.5 to 1.1, where a ratio means something."""
    plot_curves(data.curves[form], ax)
    ax.set_ylim(-0.5, 1.1)
    ax.axhline(1.0, color="0.6", linewidth=0.8, zorder=0)
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    ax.set_ylabel(f"OSGR, {FORMS[form]}")
    return ax


def make_osgr(request: Request) -> Made:
    """Measure, draw, write."""
    stage = stage_of(request, "digits", 500, "VLCS")
    request.say(f"OSGR on {stage.note}, four optimizers")
    points, pool_size = (2, 24) if request.scale == "smoke" else (25, POOL)
    data = osgr_data(stage, points, pool_size, device_of(request.scale))
    figure, axes = panels(1, 3, 15, 4.6)
    for form, ax in zip(FORMS, axes, strict=True):
        plot_osgr(data, form, ax)
    figure.suptitle(f"{data.note}; D and D' of {data.n} samples, bands: 95 %", fontsize="medium")
    files = save(figure, request.out, "osgr", data)
    last = {
        form: ", ".join(f"{x.label} {x.values[-1]:.2f}" for x in curves.curves)
        for form, curves in data.curves.items()
    }
    lines = [f"- {FORMS[form]}, at the last point: {text}" for form, text in last.items()]
    text = f"OSGR over training on {data.note}, with 95 % intervals in the CSV.\n" + "\n".join(lines)
    return Made(text, files)
