"""Average the weights of finished runs that differ in their draw only, evaluate the mean, store it as a run."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from genie_dg.arguments import path_text, some_text
from genie_dg.bench.options import add_flags, options_from
from genie_dg.check import one_of, printable

from ._shared import console_of

if TYPE_CHECKING:
    from genie_dg.runs.config import RunConfig
    from genie_dg.runs.record import Record


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The data set, how runs are chosen, and where they are."""
    parser.add_argument(
        "data", type=path_text, help="the set of the runs: a name, or the path of your own folder"
    )
    text = "uniform: all runs; greedy: those that do not lower validation accuracy (default: %(default)s)"
    parser.add_argument("--choice", default="uniform", type=some_text, help=text)
    add_flags(parser, "diwa")


def run(arguments: argparse.Namespace) -> int:
    """Average, and say how right each mean is."""
    from genie_dg.bench.diwa import CHOICES, average_runs
    from genie_dg.bench.jobs import OpenSets
    from genie_dg.bench.request import check_here, usable_device

    options = options_from(arguments)
    one_of("choice", arguments.choice, CHOICES)
    check_here(options)
    options = replace(options, device=usable_device(options.device))
    opened, console = OpenSets(), console_of()
    opened.load_plugins(options)
    data = opened.open(arguments.data, options)
    names = [domain.name for domain in data.domains]

    def report(config: RunConfig, record: Record | None, kept: int, runs: int) -> None:
        without = printable(", ".join(names[k] for k in config.test_domains))
        reached = "was there already"
        if record is not None:
            validation, test = record.validation(config.test_domains), record.test(config.test_domains)
            reached = f"validation {validation:.3f}, test {test:.3f}"
        console.print(
            f"{config.algorithm}+DiWA with {config.optimizer}, without {without}, trial {config.trial_seed}: "
            f"{kept} of {runs} runs; {reached}; in {options.out}/{config.run_id}",
            markup=False,
        )

    for problem in average_runs(data, options, arguments.choice, report):
        console.print(printable(problem), markup=False)
    return 0
