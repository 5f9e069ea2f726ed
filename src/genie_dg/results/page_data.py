"""From the frame to everything the page shows, as plain numbers and words; nothing here knows of markup.

Which run and which record counts, what a row is called and what a mean and its error are, other modules of this
package say. Curves and draws are those of training-domain selection, which needs no look at the test domain.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import polars as pl

from genie_dg.check import is_number
from genie_dg.statistics import mean, standard_error

from .compare import ALL_DATA, Comparison, budget_of, compare_all
from .draws import draws_of
from .figures import Curve, CurveData
from .frame import ResultsError, seconds_per_step
from .select import METHODS, SelectedRun, best_records, select
from .tables import Table, by_dataset, check_protocols, tables

POINTS = 60
"""The most points of a curve; more cannot be seen."""
_EXTRAS = 12
"""The most further curves that are drawn."""
LISTED_DRAWS = 500
"""The most draws of a row, and runs of a data set, that are listed: the chosen, then by validation accuracy."""
_DRAWN_SETTINGS = 6
"""The most settings that are drawn; several data sets share this number, with two each at least."""
_TITLES = {
    "osgr": "OSGR by its definition",
    "update_gini": "Gini coefficient of the updates (0: all weights move alike)",
    "update_norm": "Norm of the updates",
    "update_top_1_percent": "Share of the largest hundredth in the updates",
}
"""What the numbers of ``watch.jsonl`` are called."""
_HEAD_DROPOUT = "dropout before the head"
"""The run's own dropout; an optimizer may have a setting of that name, too."""


@dataclass(frozen=True)
class ListedRun:
    """One run as the search saw it: the record that stands for it, whether it was chosen, what it cost."""

    run: str
    folder: str
    row: str
    where: str
    trial: int
    draw: int
    validation: float
    test: float
    step: int
    chosen: bool
    settings: Mapping[str, Any]
    seconds: float | None

    @property
    def words(self) -> str:
        """The hyper-parameters in one line."""
        return ", ".join(f"{k}={f'{v:.4g}' if isinstance(v, float) else v}" for k, v in self.settings.items())


@dataclass(frozen=True)
class Selection:
    """The tables of one way of selection, or in one sentence why there are none."""

    method: str
    tables: list[Table]
    reason: str = ""


@dataclass(frozen=True)
class Chart:
    """Curves that share their axes; accuracies are from 0 to 1 where ``percent``."""

    data: CurveData
    percent: bool = False


@dataclass(frozen=True)
class DataSetPage:
    """All about one data set; ``draws`` and ``budgets`` are by row."""

    name: str
    domains: tuple[str, ...]
    runs: int
    selections: list[Selection]
    curves: list[Chart]
    losses: list[Chart]
    draws: dict[str, list[ListedRun]]
    budgets: dict[str, str]
    settings: list[str]
    differences: list[Comparison]
    notes: list[str]


@dataclass(frozen=True)
class LaunchedPart:
    """What was launched: files to write, by name, commands, and a sentence if more is needed."""

    title: str
    files: dict[str, str]
    commands: str = ""
    note: str = ""


@dataclass(frozen=True)
class Page:
    """The whole page. The place of a row in ``rows`` is its colour."""

    runs: int
    done: int
    sweeps: list[str]
    dates: str
    verdict: str
    protocols: list[str]
    rows: list[str]
    sets: list[DataSetPage]
    averages: list[Selection]
    versions: dict[tuple[str, str], int]
    unfinished: list[tuple[str, str, str, str]]
    problems: list[str]
    launched: list[LaunchedPart]


def page_data(frame: pl.DataFrame, problems: Sequence[str] = (), *, mix: bool = False) -> Page:
    """Everything a page shows.

    Args:
        frame: from `genie_dg.results.frame.load`.
        problems: from there too.
        mix: allow several protocols, each in rows of its own.
    """
    if not len(frame):
        tables(frame)  # refuses in words
    check_protocols(frame, mix)
    parts = by_dataset(frame)
    most = _DRAWN_SETTINGS if len(parts) == 1 else max(2, _DRAWN_SETTINGS // len(parts))
    chosen = {choice.run: choice for choice in select(frame).values() if choice.run}
    sets = []
    for part in parts:
        own = {run: chosen[run] for run in part["run"] if run in chosen}
        sets.append(_data_set(part, own, most))
    unfinished = frame.filter(~pl.col("done")).select("run", "dataset", "row", "reason").iter_rows()
    averages = [selection(frame, method, "averages") for method in METHODS]
    return Page(
        runs=len(frame),
        done=int(frame["done"].sum()),
        sweeps=[sweep["name"] for sweep in _sweeps(frame)],
        dates=_dates(frame),
        verdict=verdict(frame, averages[0], sets),
        protocols=sorted(frame["protocol"].unique()),
        rows=sorted(frame["row"].unique()),
        sets=sets,
        averages=averages if len(sets) > 1 else [],
        versions=dict(sorted(Counter(_versions(frame)).items())),
        unfinished=[(*who, reason or "not complete") for *who, reason in unfinished],
        problems=list(problems),
        launched=launched(frame, set(chosen)),
    )


def selection(frame: pl.DataFrame, method: str, kind: str = "") -> Selection:
    """The tables of one method (all but averages, or only the ``kind``); none when every cell is missing."""
    try:
        listed = tables(frame, method, mix=True)
    except ResultsError as error:
        return Selection(method, [], str(error))
    listed = [table for table in listed if (table.kind == kind if kind else table.kind != "averages")]
    cells = [cell for table in listed for line in table.lines for cell in line.cells if not cell.blank]
    if all(cell.mean is None for cell in cells):
        why = next((cell.note for cell in cells if cell.note), "no run")
        return Selection(method, [], f"Nothing can be selected: {why}.")
    return Selection(method, listed)


def verdict(frame: pl.DataFrame, averages: Selection, sets: Sequence[DataSetPage]) -> str:
    """The page in one sentence: the row with the best average, against what it is compared with."""
    if frame["protocol"].n_unique() > 1:
        return "These runs follow several protocols, whose numbers do not compare, so there is no verdict."
    sources = [t for one in sets for t in one.selections[0].tables if t.kind == "sources"]
    listed = averages.tables or (sources if len(sets) == 1 else [])
    means = {line.label: line.cells[-1].mean for table in listed for line in table.lines}
    known = {label: mean for label, mean in means.items() if mean is not None}
    if not known:
        return "No row has an average over everything it was asked for, so there is no verdict."
    best = max(known, key=lambda label: known[label])
    average = f"{100 * known[best]:.1f} %"
    over = "data sets" if len(sets) > 1 else "test domains" if averages.tables else "sources"
    if len(means) == 1:
        return f"{best} has an average of {average} over its {over}; there is no other row to compare it with."
    lead = f"{best} has the highest average of {len(known)} rows over {over} ({average})"
    if len(known) < len(means):
        lead = f"{lead[:-1]}; {len(means) - len(known)} more are not complete)"
    differences = sets[0].differences if len(sets) == 1 else _compared(frame)[0]
    whole = [c for c in differences if c.dataset == ALL_DATA] or differences
    beside = [c for c in whole if c.row == best]
    beside += sorted((c for c in whole if c.baseline == best), key=lambda c: -known.get(c.row, 0.0))
    if not beside:
        return f"{lead}; it shares no split with another row, so nothing can be compared."
    return f"{lead} and is {_in_words(beside[0], best)}"


def _in_words(c: Comparison, best: str) -> str:
    """A difference as seen from one of its rows, its interval, and better or worse where that excludes zero."""
    sign, other = (1, c.baseline) if c.row == best else (-1, c.row)
    points = sign * 100 * c.mean
    lead = f"{abs(points):.1f} points {'above' if points >= 0 else 'below'} {other} over {len(c.pairs)} splits"
    if c.interval is None:
        return f"{lead}; one trial and one draw give no interval: undecided."
    low, high = sorted((sign * 100 * c.interval.low, sign * 100 * c.interval.high))
    word = "better" if low > 0 else "worse" if high < 0 else "undecided"
    return f"{lead}, 95 % interval {low:+.1f} to {high:+.1f}: {word}."


def _sweeps(frame: pl.DataFrame) -> list[dict[str, str]]:
    """The sweeps that were started into the folders of these runs, each name once."""
    listed = frame["sweeps"].unique(maintain_order=True).to_list()
    return list({sweep["name"]: sweep for sweeps in listed for sweep in sweeps}.values())


def _dates(frame: pl.DataFrame) -> str:
    """The first and the last day on which a run was written (UTC)."""
    days = [
        datetime.fromtimestamp(t, timezone.utc).date().isoformat() for t in frame["written"] if t is not None
    ]
    return " to ".join(dict.fromkeys((min(days), max(days)))) if days else ""


def _versions(frame: pl.DataFrame) -> list[tuple[str, str]]:
    """What each run ran on, names and values, one after the other."""
    each = frame["versions"].explode(empty_as_null=False, keep_nulls=False)
    return list(each.struct.unnest().iter_rows()) if len(each) else []


def launched(frame: pl.DataFrame, chosen: set[str]) -> list[LaunchedPart]:
    """What was launched: the files of sweeps as they were, and the commands of the chosen runs by hand.

    Args:
        frame: from `genie_dg.results.frame.load`.
        chosen: identities of the runs that are shown; all of a row where none of it is among them.
    """
    listed = [_sweep(sweep) for sweep in _sweeps(frame) if sweep["toml"]]
    by_hand = frame.filter(pl.col("command").list.len() > 0)
    for (row, dataset), part in sorted(by_hand.group_by("row", "dataset"), key=lambda group: group[0]):
        part = part.sort("test_domains", "trial", "run")
        shown = part.filter(pl.col("run").is_in(list(chosen)))
        commands = (shown if len(shown) else part)["command"].to_list()[:50]
        lines = "\n".join(map(shlex.join, commands))
        note = f"{len(part) - len(commands)} of {len(part)} runs are left out."
        listed.append(LaunchedPart(f"{row} on {dataset}", {}, lines, note if len(commands) < len(part) else ""))
    swept = pl.col("sweeps").list.eval(pl.element().struct.field("toml") != "").list.any()
    lost = frame.filter(pl.col("command").list.len() == 0, ~swept.fill_null(value=False))
    if len(lost):
        note = f"What launched {len(lost)} of these {len(frame)} runs was not kept, so it cannot be shown."
        listed.append(LaunchedPart("Runs without a record of their launch", {}, note=note))
    return listed


def _sweep(sweep: Mapping[str, str]) -> LaunchedPart:
    name = sweep["name"]
    files = {f"{name}.toml": sweep["toml"]}
    if sweep["protocol"]:
        files[f"{name}.protocol.toml"] = sweep["protocol"]
    note = "Put the protocol's file where the sweep's file names it." if sweep["protocol"] else ""
    return LaunchedPart(f"Sweep {name}", files, f"genie-dg sweep {shlex.quote(name)}.toml --out runs", note)


def _compared(frame: pl.DataFrame) -> tuple[list[Comparison], list[str]]:
    """The paired differences of the rows, and notes; a sentence where there are none."""
    try:
        whole = compare_all(frame, mix=True)
    except ResultsError as error:
        return [], [str(error)] if frame["row"].n_unique() > 1 else []
    return whole.differences, whole.notes


def _data_set(frame: pl.DataFrame, chosen: Mapping[str, SelectedRun], most: int) -> DataSetPage:
    draws = _draws(frame, chosen)
    grouped = draws_of(frame)
    differences, notes = _compared(frame)
    curves, losses = _curves(frame, chosen)
    return DataSetPage(
        name=str(frame["dataset"][0]),
        domains=tuple(frame["domains"][0]),
        runs=len(frame),
        selections=[selection(frame, method) for method in METHODS],
        curves=curves,
        losses=losses,
        draws=draws,
        budgets={row: str(budget_of(grouped[row])) for row in grouped},
        settings=varying(draws)[:most],
        differences=differences,
        notes=list(dict.fromkeys([note for c in differences for note in c.notes] + notes)),
    )


def _draws(frame: pl.DataFrame, chosen: Mapping[str, SelectedRun]) -> dict[str, list[ListedRun]]:
    """By row the runs that could be chosen: those that were, then by validation accuracy."""
    names = ["run", "folder", "row", "test_domains", "trial", "draw", "value", "score", "chosen_step"]
    more = ["config", "timed_step", "seconds"]
    domains = frame["domains"][0].to_list()
    listed = best_records(frame).select(*names, *more).rows()
    draws: dict[str, list[ListedRun]] = {row: [] for row in sorted({row for _, _, row, *_ in listed})}
    for values in sorted(listed, key=lambda r: (r[0] not in chosen, -r[6], *r[3:6], r[0])):
        run, folder, row, test, trial, draw, validation, score, step, config, timed, seconds = values
        where = " + ".join(domains[k] for k in test)
        took = seconds_per_step(timed, seconds) if len(draws[row]) < LISTED_DRAWS else None
        settings = {**config.algorithm_settings, **config.optimizer_settings}
        settings |= {"batch_size": config.batch_size, _HEAD_DROPOUT: config.dropout}
        record = validation, score, step, run in chosen
        one = ListedRun(run, folder, row, where, trial, draw, *record, settings, took)
        draws[row].append(one)
    return draws


def varying(draws: Mapping[str, Sequence[ListedRun]]) -> list[str]:
    """The settings with numbers that differ between draws of a row: lr first, then those of most rows."""
    count: Counter[str] = Counter()
    for some in draws.values():
        values: dict[str, set[float]] = {}
        for draw in some:
            for name, value in draw.settings.items():
                if is_number(value):
                    values.setdefault(name, set()).add(value)
        count.update(name for name, different in values.items() if len(different) > 1)
    return sorted(count, key=lambda name: (name != "lr", -count[name], name))


def thin(count: int, most: int = POINTS) -> list[int]:
    """At most so many of ``count`` places, evenly, the first and the last among them.

    >>> thin(5, 3), thin(2)
    ([0, 2, 4], [0, 1])
    """
    if count <= most:
        return list(range(count))
    return [round(k * (count - 1) / (most - 1)) for k in range(most)]


def mean_curve(label: str, curves: Sequence[Mapping[int, float]]) -> Curve:
    """The mean of step-to-value curves over the steps that all have, thinned.

    Its band is the standard error of the mean as tables compute it; of two curves, from one to the other.

    >>> mean_curve("a", [{0: 0.0, 10: 1.0}, {0: 0.5, 5: 0.5, 10: 0.5}])
    Curve(label='a', steps=[0, 10], values=[0.25, 0.75], low=[0.0, 0.5], high=[0.5, 1.0])
    """
    shared = sorted(set.intersection(*(set(curve) for curve in curves)))
    steps = [shared[k] for k in thin(len(shared))]
    points = [[curve[step] for curve in curves] for step in steps]
    means = [_five_digits(mean(values)) for values in points]
    ends: list[tuple[float, float]] = []
    if len(curves) == 2:
        ends = [(min(values), max(values)) for values in points]
    elif len(curves) > 2:
        errors = [standard_error(values) for values in points]
        ends = [(middle - error, middle + error) for middle, error in zip(means, errors, strict=True)]
    low, high = ([_five_digits(end[k]) for end in ends] for k in (0, 1))
    return Curve(label, steps, means, low, high)


def _five_digits(value: float) -> float:
    return float(f"{value:.5g}")


def _curves(frame: pl.DataFrame, chosen: Mapping[str, SelectedRun]) -> tuple[list[Chart], list[Chart]]:
    """Accuracies and further numbers against the step, and losses: means over the chosen runs.

    Runs that leave out one domain and runs that leave out all but one have charts of their own; other runs
    have them only where there are none of these.
    """
    count, left_out = len(frame["domains"][0]), pl.col("test_domains").list.len()
    picked = frame.filter(pl.col("run").is_in(list(chosen)))
    sizes = sorted(picked.select(left_out).to_series().unique())
    usual = [size for size in sizes if size in (1, count - 1)] or sizes
    curves: list[Chart] = []
    losses: list[Chart] = []
    for size in usual:
        tail = f", {size} of {count} domains left out" if len(usual) > 1 else ""
        listed = frame.filter(left_out == size)["row"].unique(maintain_order=True)
        parts = {row: picked.filter(left_out == size, pl.col("row") == row) for row in listed}
        for title, column in (("Validation accuracy", "validation"), ("Test accuracy", "test")):
            curves.append(Chart(_means(title + tail, _by_row(parts, column)), percent=True))
        more = {row: [watch_curves(watch) for watch in part["watch"]] for row, part in parts.items()}
        for key in sorted({key for runs in more.values() for run in runs for key in run})[:_EXTRAS]:
            having = {row: [run[key] for run in runs if key in run] for row, runs in more.items()}
            curves.append(Chart(_means(_TITLES.get(key, key) + tail, having)))
        for title, column in (("Training loss", "loss"), ("Validation loss", "validation_loss")):
            chart = Chart(_means(title + tail, _by_row(parts, column)))
            losses += [chart] * any(curve.steps for curve in chart.data.curves)
    return curves, losses


def _means(title: str, by_row: Mapping[str, Sequence[Mapping[int, float]]]) -> CurveData:
    return CurveData(title, [mean_curve(row, curves) for row, curves in by_row.items() if curves])


def _by_row(parts: Mapping[str, pl.DataFrame], column: str) -> dict[str, list[dict[int, float]]]:
    """By row and run, step to value; the record of SWAD's average is not part of a curve."""
    by_row: dict[str, list[dict[int, float]]] = {}
    for row, part in parts.items():
        for steps, values, averaged in part.select("step", column, "averaged").iter_rows():
            points = list(zip(steps, values, strict=True))[: len(steps) - averaged]
            by_row.setdefault(row, []).append({step: x for step, x in points if math.isfinite(x)})
    return by_row


def watch_curves(watch: Sequence[Mapping[str, Any]]) -> dict[str, dict[int, float]]:
    """Step to value for each number that a run was watched for, such as ``osgr``.

    The ends of intervals (``osgr_low``, ``osgr_high``) and lists are not curves.
    """
    curves: dict[str, dict[int, float]] = {}
    for one in watch:
        if len(one["values"]) == 1 and not one["name"].endswith(("_low", "_high", "_n")):
            curves.setdefault(one["name"], {})[one["step"]] = one["values"][0]
    return curves
