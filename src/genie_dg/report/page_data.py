"""From loaded runs to everything a page shows, as plain numbers and words; nothing here knows of markup.

Curves and draws are those of training-domain selection, which needs no look at the test domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from genie_dg.results.compare import Comparison, baseline_of, budget_of, candidates, compare, group
from genie_dg.results.schema import ResultsError, Run
from genie_dg.results.select import METHODS, Row, row_of_run
from genie_dg.results.table import Table, tables

from .page_curves import Chart, Heat, charts, heats
from .page_files import versions
from .rerun import rerun

DRAWS = 500
"""The most draws of a row that are listed: those with the highest validation accuracy."""


@dataclass(frozen=True)
class Draw:
    """One run as the search saw it; ``where`` names its test domains."""

    where: str
    trial: int
    draw: int
    validation: float
    test: float
    chosen: bool
    settings: str


@dataclass(frozen=True)
class Selection:
    """The tables of one way of selection, or in one sentence why there are none."""

    method: str
    tables: list[Table]
    reason: str = ""


@dataclass(frozen=True)
class RowStory:
    """What was spent on a row, its draws (of ``count``), and how to run it again."""

    label: str
    budget: str
    draws: list[Draw]
    count: int
    rerun: str


@dataclass(frozen=True)
class SetStory:
    """All about one data set."""

    name: str
    domains: tuple[str, ...]
    runs: int
    selections: list[Selection]
    charts: list[Chart]
    rows: list[RowStory]
    differences: list[Comparison]
    notes: list[str]
    heats: list[Heat] = field(default_factory=list)


@dataclass(frozen=True)
class Page:
    """The whole page. ``labels`` gives each row its name and, by its place, its colour."""

    runs: int
    done: int
    protocols: list[str]
    labels: dict[Row, str]
    sets: list[SetStory]
    averages: list[Selection]
    versions: dict[tuple[str, str], int]
    unfinished: list[tuple[str, str, str, str]]
    problems: list[str]


def page_data(runs: Sequence[Run], problems: Sequence[str] = (), *, mix: bool = False) -> Page:
    """Everything a page shows.

    Args:
        runs: from `genie_dg.results.store.load`.
        problems: from there too.
        mix: allow several protocols, each in rows of its own.
    """
    protocols = sorted({run.config.protocol for run in runs})
    if not runs or (len(protocols) > 1 and not mix):
        tables(runs)  # refuses both, in words
    names = labels(runs)
    sets: dict[tuple[str, tuple[str, ...]], list[Run]] = {}
    for run in runs:
        sets.setdefault((run.config.dataset, run.domains), []).append(run)
    averages = [selection(runs, method, "averages") for method in METHODS] if len(sets) > 1 else []
    return Page(
        runs=len(runs),
        done=sum(run.done for run in runs),
        protocols=protocols,
        labels=names,
        sets=[_story(*key, members, names) for key, members in sorted(sets.items())],
        averages=averages,
        versions=versions(runs),
        unfinished=[
            (run.run_id, run.config.dataset, names[row_of_run(run)], " / ".join(run.failures) or "not complete")
            for run in runs
            if not run.done
        ],
        problems=list(problems),
    )


def labels(runs: Sequence[Run]) -> dict[Row, str]:
    """Rows by name, sorted: "<algorithm> + <optimizer>", and in brackets the backbone, where there are
    several, and the protocol, where there are several.
    """
    rows = sorted({row_of_run(run) for run in runs})
    backbones, protocols = ({getattr(row, name) for row in rows} for name in ("backbone", "protocol"))
    named = {}
    for row in rows:
        marks = [row.backbone] * (len(backbones) > 1) + [row.protocol] * (len(protocols) > 1)
        named[row] = f"{row.algorithm} + {row.optimizer}" + (f" ({', '.join(marks)})" if marks else "")
    return named


def selection(runs: Sequence[Run], method: str, kind: str = "") -> Selection:
    """The tables of one method (all but averages, or only the ``kind``); none when every cell is missing."""
    try:
        found = [
            t for t in tables(runs, method, mix=True) if (t.kind == kind if kind else t.kind != "averages")
        ]
    except ResultsError as error:
        return Selection(method, [], str(error))
    cells = [cell for table in found for line in table.lines for cell in line.cells if not cell.blank]
    if all(cell.mean is None for cell in cells):
        why = next((cell.note for cell in cells if cell.note), "no run")
        return Selection(method, [], f"Nothing can be selected: {why}.")
    return Selection(method, found)


def _story(dataset: str, domains: tuple[str, ...], runs: list[Run], names: Mapping[Row, str]) -> SetStory:
    by_id = {run.run_id: run for run in runs}
    found = [replace(c, row=names[row_of_run(by_id[c.run_id])]) for c in candidates(runs)]
    grouped = group(found)
    rows = list(grouped)
    differences: list[Comparison] = []
    notes: list[str] = []
    for row in rows:
        other = baseline_of(row, rows)
        if other is None or any((d.baseline, d.row) == (row, other) for d in differences):
            continue
        if grouped[row].keys() & grouped[other].keys():
            differences.append(compare(grouped, row, other))
        else:
            notes.append(f"{row} and {other} share no split and are not compared.")
    stories = []
    for label in rows:
        picked = {draws[-1].run_id for draws in grouped[label].values()}
        members = sorted(
            (c for draws in grouped[label].values() for c in draws),
            key=lambda c: (c.run_id not in picked, -c.validation),
        )
        shown = [
            Draw(
                " + ".join(domains[k] for k in c.test_domains),
                c.trial,
                c.draw,
                c.validation,
                c.test,
                c.run_id in picked,
                settings_of(by_id[c.run_id]),
            )
            for c in members[:DRAWS]
        ]
        own = [run for run in runs if names[row_of_run(run)] == label]
        stories.append(RowStory(label, str(budget_of(grouped[label])), shown, len(members), rerun(own)))
    return SetStory(
        dataset,
        domains,
        len(runs),
        [selection(runs, method) for method in METHODS],
        charts(runs, names),
        stories,
        differences,
        notes,
        heats(runs, names),
    )


def settings_of(run: Run) -> str:
    """The hyper-parameters of a run in one line."""
    c = run.config
    told: dict[str, Any] = {**c.algorithm_settings, **c.optimizer_settings, "batch_size": c.batch_size}
    told["dropout before the head"] = c.dropout
    return ", ".join(f"{k}={f'{v:.4g}' if isinstance(v, float) else v}" for k, v in told.items())
