"""Name the models that the tables speak of: for each row, test domain and trial run, step and file."""

from __future__ import annotations

import argparse

from genie_dg.arguments import some_text

from ._shared import add_runs, load_runs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which runs, and how they are selected."""
    add_runs(parser)
    parser.add_argument(
        "--select",
        default="training-domain",
        type=some_text,
        metavar="METHOD",
        help="training-domain, leave-one-domain-out or oracle (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="as JSON, accuracies from 0 to 1")


def run(arguments: argparse.Namespace) -> int:
    """Read, select, look for the files, print."""
    frame = load_runs(arguments.runs)
    from genie_dg.inference.best import best_models, render_best
    from genie_dg.results.tables import check_protocols

    check_protocols(frame, arguments.mix_protocols)
    models = best_models(frame, arguments.select)
    print(render_best(models, "json" if arguments.json else "md"), end="")
    return 0
