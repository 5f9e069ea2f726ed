"""Compare rows (algorithm + optimizer) of finished runs: paired differences with intervals, budgets, noise."""

from __future__ import annotations

import argparse
import sys

from genie_dg.check import printable, whole_number

from ._shared import add_runs, load_runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which runs, which rows, and how the interval is made."""
    add_runs(parser)
    parser.add_argument(
        "--baseline",
        metavar="ROW",
        default="",
        help="what to compare with (default: adam with the same algorithm, otherwise the first row)",
    )
    parser.add_argument("--rows", nargs="+", metavar="ROW", default=[], help="compare these rows only")
    parser.add_argument("--resamples", type=int, default=2000, help="of the bootstrap (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap (default: %(default)s)")
    parser.add_argument("--format", choices=("md", "csv"), default="md", help="(default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Load, compare, print."""
    whole_number("--resamples", arguments.resamples)
    whole_number("--seed", arguments.seed, 0)
    frame = load_runs("Comparing", arguments.runs)
    from genie_dg.results.compare import compare_all
    from genie_dg.results.render import render_comparisons

    compared = compare_all(
        frame,
        arguments.rows,
        arguments.baseline,
        resamples=arguments.resamples,
        seed=arguments.seed,
        mix=arguments.mix_protocols,
    )
    for note in compared.notes:
        print(printable(f"Note: {note}"), file=sys.stderr)
    print(printable(render_comparisons(compared, arguments.format), keep="\n"))
    return 0
