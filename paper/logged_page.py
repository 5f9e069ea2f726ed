"""The page of what the authors' logs say: how far they agree with the paper, and what they show beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import mean

from genie_dg.results.render import markdown_table

from .fig_logged import curves_of, draw_logged_osgr
from .logged import Logged, committed
from .published import PUBLISHED, PublishedTable
from .request import Request, Result

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
        "p and beta on OfficeHome, one run each": grid(logged),
        "OSGR as logged, first and last 200 steps": osgr(logged),
        "Rise of the loss under input perturbations of radius 0.03, last evaluation": sharpness(logged),
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


def grid(logged: Logged) -> Table:
    """Averages of the grid, and of other optimizers there."""
    rows = [
        [one.row, f"{one.value:.1f}"]
        for one in logged.table("sensitivity", "OfficeHome")
        if one.column == "Avg"
    ]
    others = (f"{optimizer}, defaults" for optimizer in OPTIMIZERS[:3])
    rows += [[name, f"{logged.cell('optimizers', 'OfficeHome', name).value:.1f}"] for name in others]
    return ["row", "average"], rows


def osgr(logged: Logged) -> Table:
    """The ends of the curves, and the value for large gradients."""
    rows = []
    for domain in dict.fromkeys(curve.domain for curve in logged.curves):
        for curve in curves_of(logged, domain):
            ends = f"{curve.values[0]:.4f}", f"{curve.values[-1]:.4f}"
            sizes = f"{curve.sizes[0]:.1e}", f"{curve.sizes[-1]:.1e}"
            level = f"{1 - 1 / curve.pictures:.4f}"
            rows.append([f"{domain}, {curve.optimizer}", str(curve.batch), level, *ends, *sizes])
    head = ["left out, optimizer", "batch", "1 - 1/n", "first", "last", "gradient, first", "gradient, last"]
    return head, rows


def sharpness(logged: Logged) -> Table:
    """The mean over runs by domain left out."""
    key = "rho=0.03"
    places = dict.fromkeys((line["dataset"], line["domain"]) for line in logged.sharpness)
    rows = []
    for place in places:
        cells = []
        for optimizer in ("SGD", "Adam", "GENIE"):
            last = _last_rises(logged.sharpness, place, optimizer, key)
            cells.append(f"{mean(last):.2f}" if last else "-")
        rows.append([", ".join(place), *cells])
    return ["left out", "SGD", "Adam", "GENIE"], rows


def _last_rises(
    lines: Sequence[dict[str, str]], place: tuple[str, str], optimizer: str, key: str
) -> list[float]:
    """What each run ended with."""
    mine = [
        line for line in lines if (line["dataset"], line["domain"]) == place and line["optimizer"] == optimizer
    ]
    return list({line["started"]: float(line[key]) for line in mine}.values())
