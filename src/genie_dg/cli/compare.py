"""Compare rows (algorithm + optimizer) of finished runs: paired differences with intervals, budgets, noise."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ._errors import UserError, require

if TYPE_CHECKING:
    from genie_dg.results.compare import Candidate, Comparison, Grouped, Noise

DRAWS = (1, 2, 5, 10, 20)
"""The numbers of draws of which the best-of-k table speaks."""

ALL = "all"
"""The name of the lines over several data sets."""

Lines = list[list[str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which runs, which rows, and how the interval is made."""
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS", help="a folder of runs")
    parser.add_argument(
        "--baseline",
        metavar="ROW",
        help="what to compare with (default: adam with the same algorithm, otherwise the first row)",
    )
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="compare these rows only (default: all)")
    parser.add_argument("--resamples", type=int, default=2000, help="of the bootstrap (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap (default: %(default)s)")
    parser.add_argument("--mix-protocols", action="store_true", help="compare across protocols all the same")
    parser.add_argument("--format", choices=("md", "csv"), default="md", help="(default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Load, compare, print."""
    require("Comparing", "bench", {"numpy": "numpy"})
    from genie_dg.results.schema import ResultsError

    if arguments.resamples < 1:
        raise UserError(f"--resamples {arguments.resamples} came; it must be at least 1, such as 2000.")
    if arguments.seed < 0:
        raise UserError(f"--seed {arguments.seed} came; it must be 0 or a larger whole number.")
    try:
        print(_compare(arguments))
    except ResultsError as error:
        raise UserError(str(error)) from error
    return 0


def _compare(arguments: argparse.Namespace) -> str:
    from genie_dg.results.compare import candidates, check_protocols, find_row, group
    from genie_dg.results.store import load

    runs, problems = load(*arguments.runs)
    found = candidates(runs)
    if not found:
        folders = ", ".join(map(str, arguments.runs))
        raise UserError(f"There is no complete run in {folders}; train some first, or name another folder.")
    if len(found) < len(runs):
        problems.append(
            f"{len(runs) - len(found)} of {len(runs)} runs are left out: not complete, or without a domain to "
            "validate on."
        )
    known = sorted({c.row for c in found})
    rows = [find_row(name, known) for name in arguments.rows or known]
    baseline = None if arguments.baseline is None else find_row(arguments.baseline, known)
    shown = list(dict.fromkeys([*rows, *([] if baseline is None else [baseline])]))
    if len(shown) < 2:
        raise UserError(f"There is one row, {shown[0]!r}, and a comparison needs two; name or run another.")
    found = [c for c in found if c.row in shown]
    check_protocols(found, arguments.mix_protocols)
    grouped = group(found)
    pairs = pairs_of(shown, baseline)
    near = [(a, b) for a, b in pairs if grouped[a].keys() & grouped[b].keys()]
    problems += [f"{a} and {b} share no split and are not compared." for a, b in pairs if (a, b) not in near]
    for problem in problems:
        print(f"Note: {problem}", file=sys.stderr)
    results = compare_all(grouped, near or pairs, arguments.resamples, arguments.seed)
    write = markdown if arguments.format == "md" else csv_text
    return write(results, grouped, shown, found)


def pairs_of(rows: list[str], baseline: str | None) -> list[tuple[str, str]]:
    """Each row with what it is compared with; no row with itself, no two rows twice.

    >>> pairs_of(["ERM + adabelief", "ERM + adam", "ERM + genie"], None)
    [('ERM + adabelief', 'ERM + adam'), ('ERM + genie', 'ERM + adam')]
    """
    from genie_dg.results.compare import baseline_of

    pairs: list[tuple[str, str]] = []
    for row in rows:
        other = baseline or baseline_of(row, rows)
        if other is not None and other != row and (other, row) not in pairs:
            pairs.append((row, other))
    return pairs


def compare_all(
    grouped: Grouped, pairs: list[tuple[str, str]], resamples: int, seed: int
) -> list[tuple[str, Comparison]]:
    """(data set, comparison) for each pair and each data set it shares, and over all of them if several."""
    from genie_dg.results.compare import compare

    results = []
    for row, baseline in pairs:
        whole = compare(grouped, row, baseline, resamples, seed)
        names = sorted({pair.split[0] for pair in whole.pairs})
        for name in names if len(names) > 1 else []:
            part = {r: {s: d for s, d in splits.items() if s[0] == name} for r, splits in grouped.items()}
            results.append((name, compare(part, row, baseline, resamples, seed)))
        results.append((ALL if len(names) > 1 else names[0], whole))
    return results


def markdown(
    results: list[tuple[str, Comparison]], grouped: Grouped, rows: list[str], found: list[Candidate]
) -> str:
    """Four tables and the notes; accuracies in percent, differences in points."""
    from genie_dg.results.compare import best_of_rows, budget_of

    differences = [
        [
            name,
            c.row,
            c.baseline,
            _signed(c.mean),
            _between(c),
            str(len(c.pairs)),
            f"{c.wins}/{c.ties}/{c.losses}",
        ]
        for name, c in results
    ]
    best = best_of_rows(grouped, rows)
    columns = [k for k in DRAWS if any(len(values) >= k for values in best.values())]
    best_lines = [
        [row, *(_percent(best[row][k - 1] if len(best[row]) >= k else None) for k in columns)] for row in rows
    ]
    noise = [
        [row, _percent(n.between, 2), str(n.repeats), _percent(n.within, 2), _percent(n.within_most, 2)]
        for row, n in noise_of(rows, found).items()
    ]
    several = {(c.row, c.baseline) for name, c in results if name == ALL}
    whole = [
        c for name, c in results if name == ALL or (c.row, c.baseline) not in several or c.interval is None
    ]
    notes = dict.fromkeys(f"Note: {note}" for c in whole for note in c.notes)
    blocks = [
        "Difference of the test accuracies of the selected draws, in points. The 95 % interval is about other "
        "trials and other outcomes of the search, not about other test domains or search spaces.",
        _table(
            ["data", "row", "baseline", "difference", "interval", "splits", "wins/ties/losses"], differences
        ),
        *notes,
        "Tuning budget of each row.",
        _table(["row", "budget"], [[row, str(budget_of(grouped[row]))] for row in rows]),
    ]
    if columns:
        blocks += [
            "Expected test accuracy (%) of the best of k draws, over the splits that all rows share.",
            _table(["row", *(f"k = {k}" for k in columns)], best_lines),
        ]
    else:
        blocks.append("Note: no split is shared by all rows, so there is no table of the best of k draws.")
    blocks += [
        "Noise floor in points: the standard deviation between repeats (runs alike but for their trial), and "
        "the largest minus the smallest test accuracy in the last quarter of a run.",
        _table(["row", "between repeats", "runs with repeats", "within a run", "at most"], noise),
    ]
    return "\n\n".join(blocks)


def csv_text(
    results: list[tuple[str, Comparison]], grouped: Grouped, rows: list[str], found: list[Candidate]
) -> str:
    """One number a line, accuracies from 0 to 1: table, data, row, baseline, name, value."""
    import csv
    import io

    from genie_dg.results.compare import best_of_rows, budget_of

    lines: list[tuple[object, ...]] = [("table", "data", "row", "baseline", "name", "value")]
    for name, c in results:
        low, high = (None, None) if c.interval is None else (c.interval.low, c.interval.high)
        facts = {"mean": c.mean, "low": low, "high": high, "splits": len(c.pairs)}
        facts |= {"wins": c.wins, "ties": c.ties, "losses": c.losses}
        lines += [("difference", name, c.row, c.baseline, *fact) for fact in facts.items()]
        lines += [("note", name, c.row, c.baseline, "note", note) for note in c.notes]
    for row in rows:
        lines += [("budget", "", row, "", *fact) for fact in vars(budget_of(grouped[row])).items()]
    for row, values in best_of_rows(grouped, rows).items():
        lines += [("best of", "", row, "", k, value) for k, value in enumerate(values, start=1)]
    for row, noise in noise_of(rows, found).items():
        lines += [("noise", "", row, "", *fact) for fact in vars(noise).items()]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue().rstrip("\n")


def noise_of(rows: list[str], found: list[Candidate]) -> dict[str, Noise]:
    """The noise floor of each row."""
    from genie_dg.results.compare import noise_floor

    return {row: noise_floor(c for c in found if c.row == row) for row in rows}


def _table(header: list[str], lines: Lines) -> str:
    """A table in Markdown whose columns are as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(header, *lines, strict=True)]
    drawn = [header, ["-" * width for width in widths], *lines]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in drawn
    )


def _percent(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{100 * value:.{digits}f}"


def _signed(value: float) -> str:
    return f"{round(100 * value, 2) + 0.0:+.2f}"  # no minus before zero


def _between(comparison: Comparison) -> str:
    found = comparison.interval
    return "-" if found is None else f"{_signed(found.low)} to {_signed(found.high)}"
