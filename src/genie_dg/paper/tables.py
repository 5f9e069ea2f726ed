"""The paper's tables, made: measured numbers beside the published ones, every number with its origin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import polars as pl

from genie_dg import __version__
from genie_dg.check import one_of
from genie_dg.report.figures import COLOURS, DASHES

from .experiments import EXPERIMENTS, Experiment, runs_of, sweeps
from .figure_setup import panels, save
from .published import PUBLISHED
from .request import SCALES, PaperError, Request, Result
from .runs import ExperimentRuns, GridRuns, accuracies, read_experiment, run_experiment, seconds_until, until
from .sourced import COMPUTED, MEASURED, QUOTED, Numbers, SourcedNumber, markdown, measured, numbers_csv, quoted

PRINTED = {
    "adam": "Adam", "adamw": "AdamW", "sgd": "SGD", "yogi": "Yogi", "adabelief": "AdaBelief",
    "adahessian": "AdaHessian", "sam": "SAM", "gam": "GAM", "fad": "FAD", "genie": "GENIE",
}  # fmt: skip
"""What the paper calls an optimizer."""

Tables = list[tuple[str, Numbers]]
"""Titles and numbers."""


def make_table(name: str, request: Request) -> Result:
    """A table of the paper: at scales ``smoke`` and ``cpu`` it is run, at ``paper`` the commands are shown.

    At scale ``paper`` runs that these commands left in ``request.out / "runs"`` are shown.
    """
    experiment = EXPERIMENTS[name]
    one_of("scale", request.scale, SCALES, PaperError)
    if request.scale == "paper" and request.data:
        raise PaperError(
            f"Got data={request.data!r} with the scale paper, which has the paper's data sets; leave it out, "
            "or choose the scale cpu."
        )
    published = request.scale == "paper"
    runs = read_experiment(experiment, request.out) if published else run_experiment(experiment, request)
    build = {"iterations": iteration_tables, "sensitivity": sensitivity_tables}.get(name, accuracy_tables)
    tables = build(experiment, runs.grids, request)
    text = "\n".join([head(experiment, runs, request), *(markdown(title, rows) for title, rows in tables)])
    request.out.mkdir(parents=True, exist_ok=True)
    page, numbers = request.out / f"{name}.md", request.out / f"{name}.csv"
    page.write_text(text, encoding="utf-8")
    numbers.write_text(numbers_csv(tables), encoding="utf-8")
    pictures = draw_sensitivity(tables[0][1], request) if name == "sensitivity" and runs.grids else ()
    return Result(text, (page, numbers, *runs.files, *pictures))


def head(experiment: Experiment, runs: ExperimentRuns, request: Request) -> str:
    """What the page is, how it was made, and what went wrong."""
    lines = [f"# {experiment.name}", "", experiment.about.replace("\n", " "), ""]
    lines += [f"- made by: `{request.command(experiment.name)}`, genie-dg {__version__}"]
    lines += [f"- {MEASURED}: training-domain selection; {QUOTED}: printed in the paper, nothing corrected"]
    if request.scale == "paper":
        total, root = 0, request.root or "DATA"
        for _, sweep in sweeps(experiment, "paper"):
            total += (count := runs_of(sweep))
            command = f"genie-dg sweep experiments/{sweep.name}.toml --root {root} --out {request.out / 'runs'}"
            lines.append(f"- `{command}`: {count:,} runs")
        lines.append(f"- {total:,} runs in all; this command starts none of them, it shows those that are done")
    else:
        lines.append("- a miniature: its numbers compare with one another, not with the published ones")
    for part in runs.grids:
        done = part.frame["done"].sum()
        if done < part.planned:
            lines.append(f"- {part.grid.suffix or experiment.name}: {done} of {part.planned} runs are done")
    return "\n".join([*lines, *(f"- {problem}" for problem in runs.problems)]) + "\n"


def row_name(experiment: str, part: GridRuns, algorithm: str, optimizer: str) -> str:
    """What the paper's main table calls a row.

    >>> from .experiments import EXPERIMENTS
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
        tables.append((f"{name}: average accuracy by data set ({whole.place})", main + quoted(whole)))
    listed = [d for e, d in PUBLISHED if e == name and d and ((name, "") in PUBLISHED or not details)]
    by = "source" if experiment.task == "single-source" else "test domain"
    for dataset in dict.fromkeys((*details, *listed)):
        place, numbers = _quoted_beside(name, dataset)
        tables.append((f"{name}: {dataset} by {by}{place}", details.get(dataset, []) + numbers))
    return tables


def _quoted_beside(name: str, dataset: str) -> tuple[str, Numbers]:
    """What is quoted in the table of a data set by domain, and where it stands in the paper."""
    if (name, dataset) in PUBLISHED:
        table = PUBLISHED[name, dataset]
        return f" ({table.place})", quoted(table, drop="ERM+" if name == "single-source" else "")
    place, numbers = "", []
    if (name, "") not in PUBLISHED:  # the only published table stands beside other data, too
        for (experiment, other), table in PUBLISHED.items():
            if experiment == name:
                place = f" ({table.place})"
                numbers += quoted(table, prefix=f"{other} ")
    return place, numbers


def sensitivity_tables(experiment: Experiment, parts: Sequence[GridRuns], request: Request) -> Tables:
    """Accuracy for each p and each beta; the paper shows a figure and prints no numbers of it."""
    return accuracy_tables(experiment, parts, request) or [
        ("sensitivity: the paper shows a figure and prints no numbers", [])
    ]


def iteration_tables(experiment: Experiment, parts: Sequence[GridRuns], request: Request) -> Tables:
    """Time and accuracy at a third, two thirds and the end; times divided by Adam's at the same level.

    Seconds are those that the runs noted: loading and evaluation are part of them, as of the paper's.
    """
    levels = experiment.levels[request.scale]
    numbers = [number for part in parts for number in _measured_levels(part.frame, levels)]
    numbers += _quoted_levels()
    order = [_level(PRINTED[o], n) for o in ("sgd", "adam", "sam", "genie") for n in range(3)]
    numbers.sort(key=lambda number: (order.index(number.row), number.origin != MEASURED))
    whole = PUBLISHED["iterations", ""]
    tables: Tables = [(f"iterations: time and average accuracy ({whole.place})", numbers)]
    for (name, dataset), table in PUBLISHED.items():
        if name == "iterations" and dataset:
            tables.append((f"iterations: {dataset} by test domain ({table.place})", quoted(table)))
    return tables


def _measured_levels(frame: pl.DataFrame, levels: Sequence[int]) -> Numbers:
    numbers: Numbers = []
    folders = {
        optimizer: frame.filter(pl.col("optimizer") == optimizer)["folder"]
        for optimizer in frame["optimizer"].unique(maintain_order=True)
    }
    for n, level in enumerate(levels):
        times = {o: mean(seconds_until(folder, level) for folder in some) for o, some in folders.items()}
        for dataset, rows in accuracies(until(frame, level)).items():
            for (_, optimizer), columns in rows.items():
                row, spent = _level(PRINTED[optimizer], n), times[optimizer]
                numbers.append(SourcedNumber(row, "steps", MEASURED, level, digits=0))
                numbers.append(SourcedNumber(row, "s per step", MEASURED, spent / (level + 1), digits=4))
                if "adam" in times:
                    ratio = spent / times["adam"]
                    numbers.append(SourcedNumber(row, "time / Adam's", MEASURED, ratio, digits=2))
                numbers.append(measured(row, dataset, columns["Avg"], dataset))
    return numbers


def _quoted_levels() -> Numbers:
    numbers: Numbers = []
    table = PUBLISHED["iterations", ""]
    for name, values in table.rows.items():
        optimizer, _, steps = name.partition("@")
        row, place = _level(optimizer, int(steps) // 5000 - 1), table.place
        numbers.append(SourcedNumber(row, "steps", QUOTED, float(steps), place=place, digits=0))
        for column, cell in zip(table.columns, values, strict=True):
            digits = 0 if column == "Time" else 1
            numbers.append(SourcedNumber(row, column, QUOTED, cell.value, None, place, digits=digits))
        ratio = values[0].value / table.cell(f"Adam@{steps}", "Time").value
        numbers.append(SourcedNumber(row, "time / Adam's", COMPUTED, ratio, place=place, digits=2))
    return numbers


def _level(optimizer: str, n: int) -> str:
    return f"{optimizer}, {('1/3', '2/3', 'all')[n]} of the steps"


def draw_sensitivity(numbers: Numbers, request: Request) -> tuple[Path, ...]:
    """A panel for p and one for beta: the average accuracy, with other optimizers as level lines."""
    averages = {
        number.row: (number.value, number.error or 0.0)
        for number in numbers
        if number.column == "Avg" and number.origin == MEASURED and number.value is not None
    }
    others = [(row, average) for row, average in averages.items() if not row.startswith("GENIE ")]
    figure, axes = panels(1, 2, 11, 4.6, sharey=True)
    for name, ax in zip(("p", "beta"), axes, strict=True):
        start = f"GENIE {name}="
        points = sorted(
            (float(row.removeprefix(start)), *y) for row, y in averages.items() if row.startswith(start)
        )
        xs = range(len(points))  # evenly: beta's values lie too close together
        ax.errorbar(
            xs, [y for _, y, _ in points], [e for _, _, e in points],
            marker="o", capsize=4, color=COLOURS[0], label="GENIE",
        )  # fmt: skip
        ax.set_xticks(list(xs), [f"{x:g}" for x, _, _ in points])
        for k, (row, (y, error)) in enumerate(others, 1):
            ax.axhline(y, color=COLOURS[k], linestyle=DASHES[k % len(DASHES)], label=row)
            ax.axhspan(y - error, y + error, color=COLOURS[k], alpha=0.12, linewidth=0)
        ax.set_xlabel(f"{name} ({'beta = 0.95' if name == 'p' else 'p = 0.4'})")
    axes[0].set_ylabel("average accuracy on the domain left out, %")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    several = any(error for _, error in averages.values())
    errors = "bars and bands: standard error over trials" if several else "one trial, so no errors"
    figure.suptitle(f"{numbers[0].place}; {errors}", fontsize="medium")
    return save(figure, request.out, "sensitivity")
