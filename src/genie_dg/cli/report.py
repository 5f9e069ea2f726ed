"""Write one page about the runs of one or more folders: tables, curves, draws, differences; opens offline."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from genie_dg.check import printable, writable_file

from ._shared import add_out, add_runs, load_runs, write

if TYPE_CHECKING:
    from genie_dg.runs.config import RunConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which runs, and where the page goes."""
    add_runs(parser)
    add_out(parser, "report.html", "the page", "FILE")


def run(arguments: argparse.Namespace) -> int:
    """Read, count, write; problems of single files go to stderr and onto the page."""
    writable_file("--out", arguments.out)
    problems: list[str] = []
    frame = load_runs(arguments.runs, problems)
    from genie_dg.bench.sweep import runs_of
    from genie_dg.report.exact import Rules
    from genie_dg.report.page import report

    page = report(frame, problems, mix=arguments.mix_protocols, rules=Rules(runs_of, typed_run))
    write(arguments.out, page.encode("utf-8", "replace"))
    print(printable(f"{len(frame)} runs in {arguments.out}; open it in a browser."))
    return 0


def typed_run(words: Sequence[str], domains: Mapping[str, Sequence[str]]) -> RunConfig:
    """The run that ``genie-dg train`` with these words would train, without its data."""
    from genie_dg.bench.options import options_from
    from genie_dg.protocols.tasks import domain_index

    from . import main, train

    arguments = main.build_parser().parse_args(["train", *words])
    asked, names = train.typed_config(arguments, options_from(arguments)), domains[arguments.data]
    tested = tuple(domain_index(arguments.data, names, text) for text in arguments.test_domain)
    return replace(asked, test_domains=tested)
