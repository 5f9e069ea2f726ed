"""From the frame to everything the page shows, as plain numbers and words; nothing here knows of markup.

Which run and which record counts, what a row is called and what a mean and its error are, `genie_dg.results`
says. Curves and draws are those of training-domain selection, which needs no look at the test domain.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import polars as pl

from genie_dg.check import is_number
from genie_dg.files import read_lines
from genie_dg.results import tables as of_results
from genie_dg.results.compare import ALL, Comparison, Comparisons, budget_of, compare_all
from genie_dg.results.draws import draws_of
from genie_dg.results.frame import ResultsError
from genie_dg.results.select import METHODS, Choice, best_records, select
from genie_dg.results.tables import Table, by_dataset, cell_of, check_protocols
from genie_dg.runs import folder as names
from genie_dg.runs.read import PER_RECORD, seconds_per_step, versions, watched
from genie_dg.statistics import total

from .exact import Rules
from .figures import Curve, CurveData, HeatmapData
from .rerun import Again, again, remembered

POINTS = 60
"""The most points of a curve; more cannot be seen."""
COLUMNS = 24
"""The most columns of a heatmap."""
EXTRAS = 12
"""The most further curves that are drawn."""
DRAWS = 500
"""The most draws of a row that are listed: the chosen ones, then those with the highest validation accuracy."""
RUNS = 500
"""The most runs of a data set that are listed, likewise."""
SETTINGS = 6
"""The most settings that are drawn; several data sets share this number, with two each at least."""
TITLES = {
    "osgr": "OSGR by its definition",
    "update_gini": "Gini coefficient of the updates (0: all weights move alike)",
    "update_norm": "Norm of the updates",
    "update_top_1_percent": "Share of the largest hundredth in the updates",
}
"""What the numbers of ``watch.jsonl`` are called."""
HEAD_DROPOUT = "dropout before the head"
"""The run's own dropout; an optimizer may have a setting of that name, too."""


@dataclass(frozen=True)
class Draw:
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
class DataSet:
    """All about one data set; ``draws`` and ``budgets`` are by row."""

    name: str
    domains: tuple[str, ...]
    runs: int
    selections: list[Selection]
    curves: list[Chart]
    losses: list[Chart]
    heats: dict[str, tuple[int, HeatmapData]]
    draws: dict[str, list[Draw]]
    budgets: dict[str, str]
    settings: list[str]
    differences: list[Comparison]
    notes: list[str]


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
    sets: list[DataSet]
    averages: list[Selection]
    versions: dict[tuple[str, str], int]
    unfinished: list[tuple[str, str, str, str]]
    problems: list[str]
    again: list[Again] = field(default_factory=list)


def page_data(
    frame: pl.DataFrame, problems: Sequence[str] = (), *, mix: bool = False, rules: Rules | None = None
) -> Page:
    """Everything a page shows.

    Args:
        frame: from `genie_dg.results.frame.load`.
        problems: from there too.
        mix: allow several protocols, each in rows of its own.
        rules: of today, with which "Run it again" is tried.
    """
    if not len(frame):
        of_results.tables(frame)  # refuses in words
    check_protocols(frame, mix)
    parts = by_dataset(frame)
    most = SETTINGS if len(parts) == 1 else max(2, SETTINGS // len(parts))
    chosen = {choice.run: choice for choice in select(frame).values() if choice.run}
    sets = []
    for part in parts:
        own = {run: chosen[run] for run in part["run"] if run in chosen}
        sets.append(_data_set(part, own, most))
    columns = frame.filter(~pl.col("done")).select("run", "dataset", "row", "failures").iter_rows()
    averages = [selection(frame, method, "averages") for method in METHODS]
    homes = list(dict.fromkeys(Path(path).parent for path in frame["folder"]))
    return Page(
        runs=len(frame),
        done=int(frame["done"].sum()),
        sweeps=list(dict.fromkeys(name for home in homes for name in remembered(home))),
        dates=dates(frame["folder"].to_list()),
        verdict=verdict(frame, averages[0], sets),
        protocols=sorted(frame["protocol"].unique()),
        rows=sorted(frame["row"].unique()),
        sets=sets,
        averages=averages if len(sets) > 1 else [],
        versions=_versions(frame["folder"].to_list()),
        unfinished=[(*who, " / ".join(failures) or "not complete") for *who, failures in columns],
        problems=list(problems),
        again=again(frame, chosen, rules),
    )


def selection(frame: pl.DataFrame, method: str, kind: str = "") -> Selection:
    """The tables of one method (all but averages, or only the ``kind``); none when every cell is missing."""
    try:
        listed = of_results.tables(frame, method, mix=True)
    except ResultsError as error:
        return Selection(method, [], str(error))
    listed = [table for table in listed if (table.kind == kind if kind else table.kind != "averages")]
    cells = [cell for table in listed for line in table.lines for cell in line.cells if not cell.blank]
    if all(cell.mean is None for cell in cells):
        why = next((cell.note for cell in cells if cell.note), "no run")
        return Selection(method, [], f"Nothing can be selected: {why}.")
    return Selection(method, listed)


def verdict(frame: pl.DataFrame, averages: Selection, sets: Sequence[DataSet]) -> str:
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
    whole = [c for c in differences if c.dataset == ALL] or list(differences)
    for c in [c for c in whole if c.row == best] + _others(whole, best, known):
        sign = 1 if c.row == best else -1
        other = c.baseline if c.row == best else c.row
        return f"{lead} and is {_difference(c, sign)} {other} over {len(c.pairs)} splits{_decided(c, sign)}"
    return f"{lead}; it shares no split with another row, so nothing can be compared."


def _others(whole: Sequence[Comparison], best: str, known: Mapping[str, float]) -> list[Comparison]:
    """Where the best row is the baseline of others: the best of those first."""
    return sorted((c for c in whole if c.baseline == best), key=lambda c: -known.get(c.row, 0.0))


def _difference(c: Comparison, sign: int) -> str:
    points = sign * 100 * c.mean
    return f"{abs(points):.1f} points {'above' if points >= 0 else 'below'}"


def _decided(c: Comparison, sign: int) -> str:
    """The interval, and better or worse where it excludes zero."""
    if c.interval is None:
        return "; one trial and one draw give no interval: undecided."
    low, high = sorted((sign * 100 * c.interval.low, sign * 100 * c.interval.high))
    word = "better" if low > 0 else "worse" if high < 0 else "undecided"
    return f", 95 % interval {low:+.1f} to {high:+.1f}: {word}."


def dates(folders: Sequence[str]) -> str:
    """The first and the last day on which a run was written (UTC)."""
    times = []
    for path in folders:
        for name in (names.DONE, names.RECORDS):
            if os.path.exists(f"{path}/{name}"):
                times.append(os.stat(f"{path}/{name}").st_mtime)
                break
    days = [datetime.fromtimestamp(time, timezone.utc).date().isoformat() for time in times]
    return " to ".join(dict.fromkeys((min(days), max(days)))) if days else ""


def _compared(frame: pl.DataFrame) -> tuple[list[Comparison], list[str]]:
    """The paired differences of the rows, and notes; a sentence where there are none."""
    try:
        whole: Comparisons = compare_all(frame, mix=True)
    except ResultsError as error:
        return [], [str(error)] if frame["row"].n_unique() > 1 else []
    return whole.differences, whole.notes


def _data_set(frame: pl.DataFrame, chosen: Mapping[str, Choice], most: int) -> DataSet:
    domains = tuple(frame["domains"][0])
    draws = _draws(frame, chosen)
    grouped = draws_of(frame)
    differences, notes = _compared(frame)
    curves, losses = _curves(frame, chosen)
    return DataSet(
        name=str(frame["dataset"][0]),
        domains=domains,
        runs=len(frame),
        selections=[selection(frame, method) for method in METHODS],
        curves=curves,
        losses=losses,
        heats=_heats(chosen),
        draws=draws,
        budgets={row: str(budget_of(grouped[row])) for row in grouped},
        settings=varying(draws)[:most],
        differences=differences,
        notes=list(dict.fromkeys([note for c in differences for note in c.notes] + notes)),
    )


def _draws(frame: pl.DataFrame, chosen: Mapping[str, Choice]) -> dict[str, list[Draw]]:
    """By row the runs that could be chosen: those that were, then by validation accuracy."""
    columns = [
        "run",
        "folder",
        "row",
        "test_domains",
        "trial",
        "draw",
        "value",
        "score",
        "chosen_step",
        "config",
    ]
    domains = frame["domains"][0].to_list()
    listed = best_records(frame).select(columns).rows()
    draws: dict[str, list[Draw]] = {row: [] for row in sorted({row for _, _, row, *_ in listed})}
    for values in sorted(listed, key=lambda r: (r[0] not in chosen, -r[6], *r[3:6], r[0])):
        run, folder, row, test, trial, draw, validation, score, step, config = values
        where = " + ".join(domains[k] for k in test)
        took = seconds_per_step(folder) if len(draws[row]) < RUNS else None
        record = (validation, score, step, run in chosen)
        draws[row].append(Draw(run, folder, row, where, trial, draw, *record, settings_of(config), took))
    return draws


def settings_of(config: str) -> dict[str, Any]:
    """The hyper-parameters of a run."""
    data = json.loads(config)
    own = {"batch_size": data["batch_size"], HEAD_DROPOUT: data["dropout"]}
    return {**data["algorithm_settings"], **data["optimizer_settings"], **own}


def varying(draws: Mapping[str, Sequence[Draw]]) -> list[str]:
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
    cells = [cell_of(values) for values in points]
    means = [float(f"{cell.mean:.5g}") for cell in cells]
    if len(curves) == 2:
        ends = [(min(values), max(values)) for values in points]
    else:
        errors = [cell.error or 0.0 for cell in cells] if len(curves) > 2 else []
        ends = [(mean - error, mean + error) for mean, error in zip(means, errors, strict=False)]
    low, high = ([float(f"{end[k]:.5g}") for end in ends] for k in (0, 1))
    return Curve(label, steps, means, low, high)


def _curves(frame: pl.DataFrame, chosen: Mapping[str, Choice]) -> tuple[list[Chart], list[Chart]]:
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
        more = {row: [more_curves(folder) for folder in part["folder"]] for row, part in parts.items()}
        for key in sorted({key for runs in more.values() for run in runs for key in run})[:EXTRAS]:
            having = {row: [run[key] for run in runs if key in run] for row, runs in more.items()}
            curves.append(Chart(_means(TITLES.get(key, key) + tail, having)))
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


def more_curves(folder: str) -> dict[str, dict[int, float]]:
    """Step to value for each further number in the records and in ``watch.jsonl``, such as ``osgr``.

    The ends of intervals (``osgr_low``, ``osgr_high``) and what is the same all the time are not curves.
    """
    curves: dict[str, dict[int, float]] = {}
    for record in [*read_lines(f"{folder}/{names.RECORDS}")[0], *watched(folder)]:
        step = record.get("step")
        if not isinstance(step, int):
            continue
        for key, value in record.items():
            if key not in PER_RECORD and not key.endswith(("_low", "_high", "_n")) and is_number(value):
                curves.setdefault(key, {})[step] = float(value)
    return curves


def _heats(chosen: Mapping[str, Choice]) -> dict[str, tuple[int, HeatmapData]]:
    """For each row how many chosen runs were watched, and their mean movement over the largest of the step."""
    by_row: dict[str, list[dict[int, list[float]]]] = {}
    for choice in chosen.values():
        lines = {line["step"]: line["heat"] for line in watched(choice.folder) if _is_heat(line.get("heat"))}
        if lines:
            by_row.setdefault(choice.row, []).append(lines)
    heats = {}
    for row, members in sorted(by_row.items()):
        sizes = {len(heat) for lines in members for heat in lines.values()}
        shared = sorted(set.intersection(*(set(lines) for lines in members)))
        if len(sizes) > 1 or not shared:
            continue  # networks of different sizes have no common groups
        steps = [shared[k] for k in thin(len(shared), COLUMNS)]
        shares = [zip(*(_shares(lines[step]) for lines in members), strict=True) for step in steps]
        values = [[round(total(group) / len(members), 3) for group in step] for step in shares]
        start = 2 * steps[0] - steps[1] if len(steps) > 1 else steps[0] - 1
        heats[row] = len(members), HeatmapData(start, steps, values, list(range(sizes.pop() + 1)), [], True)
    return heats


def _is_heat(values: Any) -> bool:
    return isinstance(values, list) and len(values) > 0 and all(map(is_number, values))


def _shares(row: Sequence[float]) -> list[float]:
    largest = max(row)
    return [value / largest if largest > 0 else 0.0 for value in row]


def _versions(folders: Sequence[str]) -> dict[tuple[str, str], int]:
    """(key, value) of ``meta.json`` and how many runs have it, sorted; a mapping inside is opened once."""
    count: Counter[tuple[str, str]] = Counter()
    for record in versions(folders):
        for key, value in record.items():
            inner = {f"{key}.{k}": x for k, x in value.items()} if isinstance(value, dict) else {key: value}
            count.update((name, str(x)) for name, x in inner.items() if isinstance(x, (str, int, float)))
    return dict(sorted(count.items()))
