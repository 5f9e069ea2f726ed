"""Compare rows (algorithm + optimizer) of finished runs: paired differences with intervals and budgets."""

from __future__ import annotations

import argparse
import sys

from genie_dg.arguments import some_text, whole
from genie_dg.check import printable

from ._shared import add_runs, load_runs, to_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which runs, which rows, and how the interval is made."""
    add_runs(parser)
    parser.add_argument(
        "--baseline",
        metavar="ROW",
        type=some_text,
        help="what to compare with (default: adam with the same algorithm, otherwise the first row)",
    )
    parser.add_argument(
        "--rows", nargs="+", metavar="ROW", default=[], type=some_text, help="compare these rows only"
    )
    parser.add_argument(
        "--resamples", type=whole(1, 10**6), default=2000, help="of the bootstrap (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=whole(0, 2**32 - 1), default=0, help="of the bootstrap (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON document, for programs")


def run(arguments: argparse.Namespace) -> int:
    """Load, compare, print."""
    frame = load_runs(arguments.runs)
    from genie_dg.results.compare import compare_all
    from genie_dg.results.render import comparison_data, render_comparisons

    compared = compare_all(
        frame,
        arguments.rows,
        arguments.baseline or "",
        resamples=arguments.resamples,
        seed=arguments.seed,
        mix=arguments.mix_protocols,
    )
    for note in compared.notes:
        print(printable(f"Note: {note}"), file=sys.stderr)
    if arguments.json:
        print(to_json(comparison_data(compared)))
    else:
        print(printable(render_comparisons(compared), keep="\n"))
    return 0
