"""The paper's tables, made: measured numbers beside quoted and logged ones, every number with its origin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from genie_dg import __version__
from genie_dg.check import one_of

from . import sourced
from .experiments import EXPERIMENTS, Experiment, runs_of, sweeps
from .fig_sensitivity import GRID_SET, draw_sensitivity, logged_sensitivity
from .iteration_tables import iteration_tables
from .logged import committed
from .published import PRINTED, PUBLISHED
from .request import ROOT, SCALES, PaperError, Request, Result
from .runs import ExperimentRuns, GridRuns, accuracies, run_experiment
from .sourced import LOGGED, MEASURED, QUOTED, Numbers, Tables, logged, measured, quoted


def make_table(name: str, request: Request) -> Result:
    """A table of the paper: at scales ``smoke`` and ``cpu`` it is run, at ``paper`` the commands are shown.

    What is quoted and logged is shown at every scale.
    """
    experiment = EXPERIMENTS[name]
    one_of("scale", request.scale, SCALES, PaperError)
    if request.scale == "paper" and request.data:
        raise PaperError(f"Got data={request.data!r} at the scale paper, which has its own sets; leave it out.")
    published = request.scale == "paper"
    runs = ExperimentRuns() if published else run_experiment(experiment, request)
    build = {"iterations": iteration_tables, "sensitivity": sensitivity_tables}.get(name, accuracy_tables)
    tables = build(experiment, runs.grids, request)
    text = "\n".join([head(experiment, runs, request), *(sourced.markdown(*table) for table in tables)])
    page, numbers = request.write(f"{name}.md", text), request.write(f"{name}.csv", sourced.numbers_csv(tables))
    pictures = draw_sensitivity(tables[0][1] if runs.grids else [], request) if name == "sensitivity" else ()
    return Result(text, (page, numbers, *runs.files, *pictures))


def head(experiment: Experiment, runs: ExperimentRuns, request: Request) -> str:
    """What the page is, how it was made, and what went wrong."""
    lines = [f"# {experiment.name}", "", experiment.about.replace("\n", " "), ""]
    lines += [f"- made by: `{request.command(experiment.name)}`, genie-dg {__version__}"]
    lines += [f"- {MEASURED}: training-domain selection; {QUOTED}: printed in the paper, nothing corrected"]
    lines += [
        f"- {LOGGED}: computed from the logs of the authors' runs, {committed().place}; mostly one run a domain"
    ]
    if request.scale == "paper":
        counts = sweep_commands(experiment, request.out, request.root)
        lines += [f"- `{command}`: {count:,} runs" for command, count in counts.items()]
        total = sum(counts.values())
        lines.append(f"- {total:,} runs in all; this command starts none of them")
        as_done = f"experiments/as-done/{experiment.name}-*.toml"
        if differs := len(list(ROOT.glob(as_done))):
            lines.append(f"- as the authors did it: `{as_done}`, {differs} sweeps")
    else:
        lines.append("- a miniature: its numbers compare with one another, not with the published ones")
    for part in runs.grids:
        done = part.frame["done"].sum()
        if done < part.planned:
            lines.append(f"- {part.grid.suffix or experiment.name}: {done} of {part.planned} runs are done")
    return "\n".join([*lines, *(f"- {problem}" for problem in runs.problems)]) + "\n"


def sweep_commands(experiment: Experiment, out: Path, root: Path | None) -> dict[str, int]:
    """What runs the sweeps of a table at scale ``paper``, into the folder it is read from, with their runs."""
    where = f"--root {root or 'DATA'} --out {out / 'runs'}"
    listed = [sweep for _, sweep in sweeps(experiment, "paper")]
    return {f"genie-dg sweep experiments/{one.name}.toml {where}": runs_of(one) for one in listed}


def row_name(experiment: str, part: GridRuns, algorithm: str, optimizer: str) -> str:
    """What the paper's main table calls a row.

    >>> import polars as pl
    >>> part = GridRuns(EXPERIMENTS["integration"].grids[0], pl.DataFrame(), 0)
    >>> [row_name("integration", part, *row) for row in (("ERM", "adam"), ("ERM", "genie"), ("RSC", "sgd"))]
    ['ERM', 'GENIE', 'RSC+SGD']
    """
    if optimizer in part.grid.row:
        return part.grid.row[optimizer]
    if experiment == "integration" and optimizer == "adam" and algorithm not in ("RSC", "CORAL"):
        return algorithm
    if experiment == "integration" and optimizer != "genie":
        return f"{algorithm}+{PRINTED[optimizer]}"
    return PRINTED[optimizer] if algorithm == "ERM" else f"{algorithm}+{PRINTED[optimizer]}"


def accuracy_tables(experiment: Experiment, parts: Sequence[GridRuns], request: Request) -> Tables:
    """The main table by data set, then a table by domain for each data set, measured or quoted or both."""
    name = experiment.name
    main: Numbers = []
    details: dict[str, Numbers] = {}
    for part in parts:
        for dataset, rows in accuracies(part.frame).items():
            for (algorithm, optimizer), columns in rows.items():
                row = row_name(name, part, algorithm, optimizer)
                main.append(measured(row, dataset, columns["Avg"], dataset))
                by_domain = [measured(row, column, cell, dataset) for column, cell in columns.items()]
                details.setdefault(dataset, []).extend(by_domain)
    tables: Tables = []
    if (name, "") in PUBLISHED:
        whole = PUBLISHED[name, ""]
        drop = "ERM+" if name == "single-source" else ""
        beside = quoted(whole) + sourced.logged_averages(name, drop)
        tables.append((f"{name}: average accuracy by data set ({whole.place})", main + beside))
    listed = [d for e, d in PUBLISHED if e == name and d and ((name, "") in PUBLISHED or not details)]
    by = "source" if experiment.task == "single-source" else "test domain"
    for dataset in dict.fromkeys((*details, *listed)):
        place, numbers = _quoted_beside(name, dataset)
        tables.append((f"{name}: {dataset} by {by}{place}", details.get(dataset, []) + numbers))
    return tables


def _quoted_beside(name: str, dataset: str) -> tuple[str, Numbers]:
    """What is quoted and logged in the table of a data set by domain, and where it stands in the paper."""
    if (name, dataset) in PUBLISHED:
        table, drop = PUBLISHED[name, dataset], "ERM+" if name == "single-source" else ""
        return f" ({table.place})", quoted(table, drop=drop) + logged(name, dataset, drop=drop)
    place, numbers = "", []
    if (name, "") not in PUBLISHED:  # the only published table stands beside other data, too
        for (experiment, other), table in PUBLISHED.items():
            if experiment == name:
                place = f" ({table.place})"
                numbers += quoted(table, prefix=f"{other} ") + logged(name, other, prefix=f"{other} ")
    return place, numbers


def sensitivity_tables(experiment: Experiment, parts: Sequence[GridRuns], request: Request) -> Tables:
    """Accuracy for each p and each beta; the paper shows a figure, and its numbers are in the logs alone."""
    title = f"sensitivity: {GRID_SET} by test domain ({committed().place})"
    return [*accuracy_tables(experiment, parts, request), (title, logged_sensitivity())]
