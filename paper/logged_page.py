"""The page of what the authors' logs say: how far they agree with the paper, and what they show beside it.

What the authors' runs logged under the name of OSGR, as their Figure 4 shows it, and why it moves.

Their logger computes :math:`1 - v / (n s + 10^{-7})` from the variance v and the mean square s over the
parameters of one gradient, with n pictures in the step. The mean over parameters is near zero, so v and s are
nearly equal, and the value is 1 - 1/n as long as n s is far above 1e-7; it rises towards 1 when gradients
become small. The upper panels have the curves and 1 - 1/n as dotted lines, the lower ones the size of the
gradients, which follows from what was logged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.axes import Axes

from genie_dg.results.figures import COLOURS, Curve, CurveData, plot_curves
from genie_dg.results.render import markdown_table

from .figure_setup import panels, save
from .logged import Logged, LoggedCurve, committed
from .published import PUBLISHED, PublishedTable
from .request import Request, Result

CURVES = ("SGD", "Adam", "GENIE", "SAM")
"""In the order, and so in the colours, of the measured curves."""
AS_PLOTTED = "LabelMe"
"""The domain left out in the panel that the authors' plotting script names."""


def curves_of(logged: Logged, domain: str) -> list[LoggedCurve]:
    """The runs that left out a domain, in the order of the figure."""
    some = [curve for curve in logged.curves if curve.domain == domain]
    return sorted(some, key=lambda curve: CURVES.index(curve.optimizer))


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


OPTIMIZERS = ("SGD", "Adam", "SAM", "GENIE")
CLOSE = 0.0551
"""How far a number with one digit may be from a log: some were rounded to two digits first, 25.4477 to 25.5."""
TIMES = 1.0
"""The same for seconds: means of seconds were rounded twice."""


def make_logged(request: Request) -> Result:
    """Write the page and the figure."""
    text = page_text(committed(), request)
    return Result(text, (request.write("logged.md", text), *draw_logged_osgr(committed(), request.out)))


def page_text(logged: Logged, request: Request) -> str:
    """All tables, each under a line that says what it is."""
    lines = [
        "# logged",
        "",
        f"- made by: `{request.command('logged')}`",
        f"- {logged.repository} at {logged.commit}: {logged.logs} logs, {logged.finished} of finished runs",
        "- averages over domains under training-domain selection; one run a domain unless said",
    ]
    parts = {
        "Quoted numbers that one logged run gives to rounding": agreement(logged),
        "Equal batches of 32 a domain, default settings, 5,000 steps; and GENIE with the drawn ones": defaults(
            logged
        ),
        "Seconds of a step on PACS, 32 pictures a domain, by run": step_times(logged),
    }
    tables = (f"### {title}\n\n{markdown_table(head, rows, 1)}" for title, (head, rows) in parts.items())
    return "\n".join(lines) + "\n\n" + "\n\n".join(tables) + "\n"


Table = tuple[list[str], list[list[str]]]


def agreement(logged: Logged) -> Table:
    """For each printed table by domain, how many of its cells have a logged number, and how many agree."""
    rows = []
    for (experiment, dataset), table in PUBLISHED.items():
        pairs = list(_pairs(logged, experiment, dataset, table)) if dataset else []
        if pairs:
            agree = sum(abs(quoted - value) <= close for quoted, value, close in pairs)
            above = sum(value - quoted > close for quoted, value, close in pairs)
            cells = [str(len(pairs)), str(agree), str(above), str(len(pairs) - agree - above)]
            rows.append([table.place.split(" (")[0], experiment, dataset, *cells])
    return ["table", "experiment", "set", "cells with a log", "agree", "log above", "log below"], rows


def _pairs(
    logged: Logged, experiment: str, dataset: str, table: PublishedTable
) -> Iterator[tuple[float, float, float]]:
    """Quoted and logged numbers of the same cell, and how close they must be."""
    domains = PUBLISHED["optimizers", dataset].columns[:-1]
    for one in logged.table(experiment, dataset):
        if one.row not in table.rows:
            continue
        if experiment == "iterations":
            at = "" if one.column == "Avg" else f"[{domains.index(one.column)}]"
            yield table.cell(one.row, f"Time{at}").value, one.seconds, TIMES
            yield table.cell(one.row, f"Acc{at}").value, one.value, CLOSE
        else:
            yield table.cell(one.row, one.column).value, one.value, CLOSE


SETS = ("PACS", "VLCS", "OfficeHome")


def defaults(logged: Logged) -> Table:
    """Averages by data set, with the number of runs behind each."""
    rows = []
    for name in (*(f"{optimizer}, defaults" for optimizer in OPTIMIZERS), "GENIE"):
        cells = [logged.cell("optimizers", dataset, name) for dataset in SETS]
        batches = cells[0].batch if name == "GENIE" else "32"
        rows.append([name, *(f"{cell.value:.1f} ({cell.runs} runs)" for cell in cells), batches])
    return ["row", *SETS, "pictures a domain, PACS"], rows


def step_times(logged: Logged) -> Table:
    """The median run of each optimizer among those with 32 pictures of three domains, and the range."""
    rows = []
    for name in OPTIMIZERS:
        wanted = {"dataset": "PACS", "network": "resnet50", "algorithm": "ERM", "optimizer": name}
        wanted |= {"pictures": "96", "finished": "1", "variant": ""}
        same = [run for run in logged.runs if wanted.items() <= run.items()]
        times = sorted(float(run["step_seconds"]) for run in same)
        middle = times[len(times) // 2]
        rows.append([name, f"{middle:.3f}", f"{times[0]:.3f} to {times[-1]:.3f}", str(len(times))])
    return ["row", "middle run", "range", "runs"], rows
