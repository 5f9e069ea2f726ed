"""The paper's tables, made: measured numbers beside the published ones, every number with its origin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

from genie_dg import __version__
from genie_dg.report.curves import COLOURS, DASHES
from genie_dg.results.table import Cell

from ._base import SCALES, Made, PaperError, PaperRow, Request
from ._measure import Measurement, Part, cells, measure, recall, seconds_until, until
from ._picture import panels, save_picture
from ._sheet import COMPUTED, MEASURED, QUOTED, Entry, csv_text, markdown, quotes
from .experiments import EXPERIMENTS, Experiment, runs_of, sweeps
from .published import PUBLISHED

PRINTED = {
    "adam": "Adam",
    "adamw": "AdamW",
    "sgd": "SGD",
    "yogi": "Yogi",
    "adabelief": "AdaBelief",
    "adahessian": "AdaHessian",
    "sam": "SAM",
    "gam": "GAM",
    "fad": "FAD",
    "genie": "GENIE",
}
"""What the paper calls an optimizer."""

Sheets = list[tuple[str, list[Entry]]]


def make_table(name: str, request: Request) -> Made:
    """A table of the paper: at scales ``smoke`` and ``cpu`` it is run, at ``paper`` the commands are told.

    At scale ``paper`` runs that the told commands left in ``request.out / "runs"`` are shown.
    """
    experiment = EXPERIMENTS[name]
    if request.scale not in SCALES:
        raise PaperError(f"scale={request.scale!r} came; the choice is {', '.join(SCALES)}.")
    if request.scale == "paper" and request.data:
        raise PaperError(
            f"data={request.data!r} came with the scale paper, which has the paper's data sets; leave it out, "
            "or choose the scale cpu."
        )
    found = recall(experiment, request.out) if request.scale == "paper" else measure(experiment, request)
    build = {"iterations": iteration_sheets, "sensitivity": sensitivity_sheets}.get(name, accuracy_sheets)
    sheets = build(experiment, found.parts, request)
    text = "\n".join([head(experiment, found, request), *(markdown(title, rows) for title, rows in sheets)])
    request.out.mkdir(parents=True, exist_ok=True)
    page, numbers = request.out / f"{name}.md", request.out / f"{name}.csv"
    page.write_text(text, encoding="utf-8")
    numbers.write_text(csv_text(sheets), encoding="utf-8")
    drawn = draw_sensitivity(sheets[0][1], request) if name == "sensitivity" and found.parts else ()
    return Made(text, (page, numbers, *found.files, *drawn))


def head(experiment: Experiment, found: Measurement, request: Request) -> str:
    """What the page is, how it was made, and what went wrong."""
    lines = [f"# {experiment.name}", "", experiment.about.replace("\n", " "), ""]
    lines += [f"- made by: `{request.typed(experiment.name)}`, genie-dg {__version__}"]
    lines += [f"- {MEASURED}: training-domain selection; {QUOTED}: printed in the paper, nothing corrected"]
    if request.scale == "paper":
        total, root = 0, request.root or "DATA"
        for _, sweep in sweeps(experiment, "paper"):
            total += (count := runs_of(sweep))
            told = f"genie-dg sweep experiments/{sweep.name}.toml --root {root} --out {request.out / 'runs'}"
            lines.append(f"- `{told}`: {count:,} runs")
        lines.append(f"- {total:,} runs in all; this command starts none of them, it shows those that are done")
    else:
        lines.append("- a miniature: its numbers compare with one another, not with the published ones")
    for part in found.parts:
        done = sum(run.done for run in part.runs)
        if done < part.planned:
            lines.append(f"- {part.grid.suffix or experiment.name}: {done} of {part.planned} runs are done")
    return "\n".join([*lines, *(f"- {problem}" for problem in found.problems)]) + "\n"


def row_name(experiment: str, part: Part, algorithm: str, optimizer: str) -> str:
    """What the paper's main table calls a row.

    >>> from .experiments import EXPERIMENTS
    >>> part = Part(EXPERIMENTS["integration"].grids[0], (), 0)
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


def _entry(row: str, column: str, cell: Cell, dataset: str) -> Entry:
    value = None if cell.mean is None else 100 * cell.mean
    error = None if cell.error is None or cell.trials < 2 else 100 * cell.error
    note = cell.note if cell.mean is None else ""
    return Entry(row, column, MEASURED, value, error, dataset, cell.trials, cell.draws[1], note)


def accuracy_sheets(experiment: Experiment, parts: Sequence[Part], request: Request) -> Sheets:
    """The main table by data set, then a table by domain for each data set, measured or quoted or both."""
    name = experiment.name
    main: list[Entry] = []
    details: dict[str, list[Entry]] = {}
    for part in parts:
        for dataset, rows in cells(part.runs).items():
            for (algorithm, optimizer), columns in rows.items():
                row = row_name(name, part, algorithm, optimizer)
                main.append(_entry(row, dataset, columns["Avg"], dataset))
                details.setdefault(dataset, []).extend(
                    _entry(row, column, cell, dataset) for column, cell in columns.items()
                )
    sheets: Sheets = []
    if (name, "") in PUBLISHED:
        quoted = PUBLISHED[name, ""]
        sheets.append((f"{name}: average accuracy by data set ({quoted.place})", main + quotes(quoted)))
    drop = "ERM+" if name == "single-source" else ""
    listed = [d for e, d in PUBLISHED if e == name and d and ((name, "") in PUBLISHED or not details)]
    for dataset in dict.fromkeys((*details, *listed)):
        rows_of = list(details.get(dataset, []))
        place = ""
        if (name, dataset) in PUBLISHED:
            quoted = PUBLISHED[name, dataset]
            place = f" ({quoted.place})"
            rows_of += quotes(quoted, drop=drop)
        elif (name, "") not in PUBLISHED:  # the only published table stands beside other data, too
            for (_, other), quoted in (item for item in PUBLISHED.items() if item[0][0] == name):
                place = f" ({quoted.place})"
                rows_of += quotes(quoted, prefix=f"{other} ")
        by = "source" if experiment.task == "single-source" else "test domain"
        sheets.append((f"{name}: {dataset} by {by}{place}", rows_of))
    return sheets


def sensitivity_sheets(experiment: Experiment, parts: Sequence[Part], request: Request) -> Sheets:
    """Accuracy for each p and each beta; the paper shows a figure and prints no numbers of it."""
    return accuracy_sheets(experiment, parts, request) or [
        ("sensitivity: the paper shows a figure and prints no numbers", [])
    ]


def iteration_sheets(experiment: Experiment, parts: Sequence[Part], request: Request) -> Sheets:
    """Time and accuracy at a third, two thirds and the end; times divided by Adam's at the same level.

    Seconds are those of ``timings.jsonl``: loading and evaluation are part of them, as of the paper's.
    """
    levels, entries = experiment.levels[request.scale], []
    for part in parts:
        times = {
            (o, n): mean(seconds_until(run, level) for run in part.runs if run.config.optimizer == o)
            for o in dict.fromkeys(run.config.optimizer for run in part.runs)
            for n, level in enumerate(levels)
        }
        for n, level in enumerate(levels):
            for dataset, rows in cells([until(run, level) for run in part.runs]).items():
                for (_, optimizer), columns in rows.items():
                    row = _level(PRINTED[optimizer], n)
                    entries.append(Entry(row, "steps", MEASURED, level, digits=0))
                    seconds = times[optimizer, n]
                    entries.append(Entry(row, "s per step", MEASURED, seconds / (level + 1), digits=4))
                    if ("adam", n) in times:
                        ratio = seconds / times["adam", n]
                        entries.append(Entry(row, "time / Adam's", MEASURED, ratio, digits=2))
                    entries.append(_entry(row, dataset, columns["Avg"], dataset))
    quoted = PUBLISHED["iterations", ""]
    for name, values in quoted.rows.items():
        optimizer, _, level_text = name.partition("@")
        row = _level(optimizer, int(level_text) // 5000 - 1)
        entries.append(Entry(row, "steps", QUOTED, float(level_text), place=quoted.place, digits=0))
        for column, value in zip(quoted.columns, values, strict=True):
            digits = 0 if column == "Time" else 1
            entries.append(Entry(row, column, QUOTED, value.value, None, quoted.place, digits=digits))
        ratio = values[0].value / quoted.cell(f"Adam@{level_text}", "Time").value
        entries.append(Entry(row, "time / Adam's", COMPUTED, ratio, place=quoted.place, digits=2))
    order = [_level(PRINTED[o], n) for o in ("sgd", "adam", "sam", "genie") for n in range(3)]
    entries.sort(key=lambda entry: order.index(entry.row))
    sheets: Sheets = [(f"iterations: time and average accuracy ({quoted.place})", _in_columns(entries))]
    for (name, dataset), table in PUBLISHED.items():
        if name == "iterations" and dataset:
            sheets.append((f"iterations: {dataset} by test domain ({table.place})", quotes(table)))
    return sheets


def _level(optimizer: str, n: int) -> str:
    return f"{optimizer}, {('1/3', '2/3', 'all')[n]} of the steps"


def _in_columns(entries: Sequence[Entry]) -> list[Entry]:
    """Measured columns first; rows keep their order."""
    rows = list(dict.fromkeys(entry.row for entry in entries))
    return sorted(entries, key=lambda entry: (rows.index(entry.row), entry.origin != MEASURED))


def draw_sensitivity(entries: Sequence[Entry], request: Request) -> tuple[Path, ...]:
    """A panel for p and one for beta: the average accuracy, with other optimizers as level lines."""
    averages = {
        entry.row: (entry.value, entry.error or 0.0)
        for entry in entries
        if entry.column == "Avg" and entry.origin == MEASURED and entry.value is not None
    }
    others = [(row, found) for row, found in averages.items() if not row.startswith("GENIE ")]
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
    figure.suptitle(f"{entries[0].place}; {errors}", fontsize="medium")
    return save_picture(figure, request.out, "sensitivity")


def _maker(name: str) -> Callable[[Request], Made]:
    return lambda request: make_table(name, request)


ROWS = (
    PaperRow(
        "optimizers",
        "Table 2, Tables 9-13",
        "optimizers under ERM: averages by data set, and accuracy by test domain",
        _maker("optimizers"),
    ),
    PaperRow(
        "iterations",
        "Table 3, Tables 14-16",
        "training time and accuracy after a third, two thirds and all of the steps",
        _maker("iterations"),
    ),
    PaperRow(
        "single-source",
        "Table 4, Tables 21-24",
        "train on one domain, test on the others",
        _maker("single-source"),
    ),
    PaperRow(
        "integration", "Table 5, Tables 17-20", "GENIE and others inside DG algorithms", _maker("integration")
    ),
    PaperRow(
        "ablation", "Table 6", "GENIE with preconditioning, noise and mask switched off", _maker("ablation")
    ),
    PaperRow("sensitivity", "Figure 2", "accuracy against GENIE's p and beta", _maker("sensitivity")),
)
"""The tables in the order of the paper."""
