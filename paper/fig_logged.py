"""What the authors' runs logged under the name of OSGR, as their Figure 4 shows it, and why it moves.

Their logger computes :math:`1 - v / (n s + 10^{-7})` from the variance v and the mean square s over the
parameters of one gradient, with n pictures in the step. The mean over parameters is near zero, so v and s are
nearly equal, and the value is 1 - 1/n as long as n s is far above 1e-7; it rises towards 1 when gradients
become small. The upper panels have the curves and 1 - 1/n as dotted lines, the lower ones the size of the
gradients, which follows from what was logged (`extract_logs.gradient_size`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from genie_dg.results.figures import COLOURS, Curve, CurveData, plot_curves

from .figure_setup import panels, save
from .logged import Logged, LoggedCurve

OPTIMIZERS = ("SGD", "Adam", "GENIE", "SAM")
"""In the order, and so in the colours, of the measured curves."""
AS_PLOTTED = "LabelMe"
"""The domain left out in the panel that the authors' plotting script names."""


def curves_of(logged: Logged, domain: str) -> list[LoggedCurve]:
    """The runs that left out a domain, in the order of the figure."""
    some = [curve for curve in logged.curves if curve.domain == domain]
    return sorted(some, key=lambda curve: OPTIMIZERS.index(curve.optimizer))


def plot_logged_osgr(curves: Sequence[LoggedCurve], ax: Axes) -> None:
    """The curves of one domain, and 1 - 1/n for each size of batch among them."""
    plot_curves(_data("OSGR, the authors' formula", curves, sizes=False), ax)
    for pictures in sorted({curve.pictures for curve in curves}):
        ax.axhline(1 - 1 / pictures, color="0.3", linestyle=":", linewidth=1, zorder=0)
        label = f"1 - 1/{pictures}"
        ax.annotate(label, (0.99, 1 - 1 / pictures), xycoords=("axes fraction", "data"), ha="right", va="top")


def _data(name: str, curves: Sequence[LoggedCurve], sizes: bool) -> CurveData:
    lines = [
        Curve(
            f"{curve.optimizer}, {curve.batch} a domain", [round(step + 0.5) for step in curve.steps],
            list(curve.sizes if sizes else curve.values), [], [],
        )
        for curve in curves
    ]  # fmt: skip
    return CurveData(name, lines)


def draw_logged_osgr(logged: Logged, folder: Path) -> tuple[Path, ...]:
    """A pair of panels for each domain left out: the curves, and the size of the gradients below."""
    domains = list(dict.fromkeys(curve.domain for curve in logged.curves))
    figure, axes = panels(2, len(domains), 4.6 * len(domains), 8, sharex=True)
    for k, domain in enumerate(domains):
        curves = curves_of(logged, domain)
        upper, lower = axes[k], axes[len(domains) + k]
        plot_logged_osgr(curves, upper)
        upper.set_xlabel("")
        lower.set_yscale("log")
        plot_curves(_data("", curves, sizes=True), lower, [(COLOURS[i], "-") for i in range(len(curves))])
        lower.set_title(f"{domain} left out", fontsize="medium")
        lower.grid(axis="y", alpha=0.25)
        if k:
            upper.set_ylabel("")
        else:
            lower.set_ylabel("root mean square of a gradient's entries")
    title = f"logged: VLCS, {logged.place}, ResNet-50, one run each; means and medians of 200 steps"
    figure.suptitle(title, fontsize="medium")
    header = ["domain", "optimizer", "batch", "pictures", "step", "osgr", "gradient_rms"]
    rows = [
        [curve.domain, curve.optimizer, curve.batch, curve.pictures, *point]
        for curve in logged.curves
        for point in zip(curve.steps, curve.values, curve.sizes, strict=True)
    ]
    return save(figure, folder, "osgr-logged", (header, rows))
