"""A clone of the authors' repository as small CSV files: the origin *logged*.

`collect` reads every ``train_output/**/log.txt``, the OSGR and GSNR of the event files beside the long runs
and the files of sharpness, and gives the text of each file of the folder ``logged``. Only numbers and names are
taken.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path
from statistics import mean, median

from genie_dg.check import folder
from genie_dg.results.render import csv_text

from .event_files import scalars
from .log_averages import LONG, LoggedAverage, averages
from .log_files import LoggedRun, read_log
from .request import PaperError

REPOSITORY = "00ssum/GENIE"
OUTPUT = "train_output"
WINDOW = 200
"""Steps that the paper's figure of the OSGR averages over."""
ADDED = 1e-7
"""What the authors' formulas add to a denominator."""
FIGURE = "VLCS"
"""The data set of that figure."""
OSGR, GSNR = "/OSGR/OSGR", "/GSNR/GSNR"
"""Ends of tags."""
RADII = ("0.01", "0.02", "0.03", "0.04", "0.05")
"""Of the balls of input perturbations in a file of sharpness, in the order of its columns."""

Line = Sequence[object]


def collect(clone: Path) -> dict[str, str]:
    """By name, the files that a clone gives.

    Args:
        clone: the folder of a clone, with its files checked out.
    """
    what_to_do = f"give a clone of github.com/{REPOSITORY}"
    root = folder(clone, what_to_do, PaperError) / OUTPUT
    logs = sorted(root.rglob("log.txt"))
    commit = commit_of(clone)
    if not logs or not commit:
        missing = f"logs under {OUTPUT}" if not logs else "git history"
        raise PaperError(
            f"{clone} has no {missing}, so it is not a clone of the authors' repository; {what_to_do}."
        )
    runs = [read_log(path, root) for path in logs]
    finished = sum(run.finished for run in runs)
    source = csv_text(["repository", "commit", "logs", "finished"], [[REPOSITORY, commit, len(runs), finished]])
    return {
        "source.csv": source,
        "runs.csv": csv_text(RUN_COLUMNS, map(run_line, runs)),
        "averages.csv": csv_text(
            [field.name for field in fields(LoggedAverage)],
            ([_short(cell) for cell in astuple(number)] for number in averages(runs)),
        ),
        "osgr.csv": csv_text(OSGR_COLUMNS, [line for run in runs for line in osgr_lines(run, root)]),
        "sharpness.csv": csv_text(SHARPNESS_COLUMNS, [line for run in runs for line in sharpness(run, root)]),
    }


def commit_of(clone: Path) -> str:
    """What is checked out; empty where that is not the top of a repository."""
    asked = ["git", "-C", str(clone), "rev-parse", "--show-prefix", "HEAD"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60).stdout.split("\n")
    except OSError:
        raise PaperError(
            "The commit of the clone is asked of git, which is not installed; install it."
        ) from None
    return said[1] if len(said) > 1 and not said[0] else ""


RUN_COLUMNS = (
    "folder", "dataset", "domain", "one_source", "network", "algorithm", "optimizer", "variant", "trial",
    "draw", "batch", "pictures", "lr", "beta", "p", "dropout", "steps", "finished", "selected_step",
    "validation", "selected", "oracle", "last", "step_seconds", "evaluation_seconds", "seconds",
)  # fmt: skip


def run_line(run: LoggedRun) -> Line:
    """A run as a line of ``runs.csv``; one without any evaluation has no results."""
    cells: list[object] = [
        run.folder, run.dataset, run.domain, int(run.one_source), run.network, run.algorithm, run.optimizer,
        run.variant, run.trial, run.draw, run.batch, run.pictures, run.lr, run.beta, run.p, run.dropout,
        run.steps, int(run.finished),
    ]  # fmt: skip
    if len(run.records) > 1:
        selected, later = run.selected(), run.records[1:]  # the first step loads the data
        cells += [
            selected.step, selected.validation, selected.test, run.oracle().test, run.records[-1].test,
            mean(record.step_seconds for record in later),
            mean(record.evaluation_seconds for record in run.records), run.seconds(run.steps),
        ]  # fmt: skip
    return [_short(cell) for cell in [*cells, *[None] * (len(RUN_COLUMNS) - len(cells))]]


def _short(cell: object) -> object:
    """Seven digits are what a log has.

    >>> _short(62.357599999999996), _short(0.00025460000000000004), _short(38), _short(29.0)
    (62.3576, 0.0002546, 38, 29)
    """
    if not isinstance(cell, float):
        return cell
    short = float(f"{cell:.7g}")
    return int(short) if short.is_integer() else short


OSGR_COLUMNS = ("dataset", "domain", "optimizer", "batch", "pictures", "step", "osgr", "gradient")


def osgr_lines(run: LoggedRun, root: Path) -> list[Line]:
    """What a long run on the figure's set logged as OSGR, and the size of its gradients.

    A line is of `WINDOW` steps: the mean of what was logged, and the median of the root mean square over the
    parameters of one step's gradient; the latter is empty where it is too large for the logged digits to tell.
    """
    events = sorted((root / run.folder).glob("events.out.tfevents.*"))
    if run.dataset != FIGURE or run.steps != LONG or run.network != "resnet50" or not events:
        return []
    series = scalars(events[-1], (OSGR, GSNR))
    ratios = dict(series[GSNR])
    values = series[OSGR]
    lines: list[Line] = []
    for start in range(0, len(values) - len(values) % WINDOW, WINDOW):
        window = values[start : start + WINDOW]
        size = median(gradient_size(value, ratios[step], run.pictures) for step, value in window)
        middle = mean(step for step, _ in window)
        shown = f"{size:.3g}" if math.isfinite(size) else None
        average = round(mean(value for _, value in window), 7)
        lines.append([run.dataset, run.domain, run.optimizer, run.batch, run.pictures, middle, average, shown])
    return lines


def gradient_size(osgr: float, gsnr: float, n: int) -> float:
    r"""The root mean square of a gradient's entries, from what the authors log about it.

    With the mean square :math:`s = v + m^2` of :math:`d \gg 1` entries, variance :math:`v` and mean
    :math:`m`, they log :math:`o = 1 - v / (n s + 10^{-7})` and :math:`q = m^2 / (v + 10^{-7})`, so
    :math:`v = 10^{-7} (1 + n q) / (1 / (1 - o) - n (1 + q))`. Infinite where the difference below is lost in
    the digits of a float32, which is so for gradients above about 0.01.

    Args:
        osgr: o.
        gsnr: q.
        n: pictures in the step.

    Example:
        >>> v, m, n = 3e-8, 1e-6, 96
        >>> osgr, gsnr = 1 - v / (n * (v + m * m) + 1e-7), m * m / (v + 1e-7)
        >>> round(gradient_size(osgr, gsnr, n) ** 2 / (v + m * m), 6)
        1.0
    """
    below = 1 / (1 - osgr) - n * (1 + gsnr)
    if below <= n * n * 1e-7:  # float32 near 1 has steps of 6e-8
        return math.inf
    variance = ADDED * (1 + n * gsnr) / below
    return math.sqrt(variance + gsnr * (variance + ADDED))


SHARPNESS_COLUMNS = (
    "dataset",
    "domain",
    "optimizer",
    "started",
    "step",
    *(f"rho={radius}" for radius in RADII),
)


def sharpness(run: LoggedRun, root: Path) -> list[Line]:
    """The rise of the loss on one batch of the domain left out, by radius of the input's perturbation."""
    path = root / run.folder / "sharpness_progress" / "sharpness_over_time.csv"
    if not path.is_file():
        return []
    lines: list[Line] = []
    started = "_".join(Path(run.folder).name.split("_")[:2])  # tells repeats apart
    for line in path.read_text(encoding="utf-8").splitlines():
        step, *rises = line.split(",")
        if len(rises) != len(RADII):
            raise PaperError(f"{path} has {len(rises)} numbers after a step; expected {len(RADII)}.")
        shown = [f"{float(rise):.5g}" for rise in rises]
        lines.append([run.dataset, run.domain, run.optimizer, started, int(step), *shown])
    return lines
