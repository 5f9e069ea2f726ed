"""``genie-dg``: find the verb, parse its arguments, run it, turn errors into exit codes.

Exit codes: 0 done; 2 the request was wrong (one sentence on stderr); 130 stopped by Ctrl-C; 141 the
reader of the output closed it (`| head`), as for other programs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from genie_dg import __version__
from genie_dg.check import GenieError, InputError, one_of, printable

VERBS = {
    "compare": "compare rows of finished runs: paired differences, intervals, budgets, noise",
    "data": "list, download, verify, cache and look at data sets",
    "demo": "optimizers on rotated digits: a sweep, its table and its report (two minutes)",
    "diwa": "average the weights of finished runs that differ in their draw, and evaluate the mean",
    "env": "print the versions, devices and tools that matter to genie-dg",
    "import": "read DomainBed's result folders as runs",
    "list": "list algorithms, optimizers, backbones and data sets",
    "paper": "make the paper's tables and figures, published numbers beside measured ones",
    "report": "one page about runs that opens offline: tables, curves, draws, differences",
    "status": "how far sweeps are: done, running, failed, missing, time left",
    "sweep": "run many trainings from a TOML file; stopped ones go on",
    "table": "tables of finished runs: three ways of selection, markdown, LaTeX or CSV",
    "train": "train one model without some domains, and test it on them",
}
"""Each verb is a module of this package with ``add_arguments(parser)`` and ``run(arguments) -> exit code``."""


class _Parser(argparse.ArgumentParser):
    """argparse, except that a mistake becomes one sentence instead of a usage text."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message[:1].upper()}{message[1:].rstrip('.')}; see {self.prog} --help.")


def build_parser() -> argparse.ArgumentParser:
    """The whole command line. The modules of the verbs are cheap: what they need they import when run."""
    parser = _Parser(
        prog="genie-dg", description="GENIE, an optimizer for domain generalization.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"genie-dg {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="verb", required=True, parser_class=_Parser)
    for name, summary in VERBS.items():
        module = import_module(f"{__package__}.{name}")
        child = verbs.add_parser(name, help=summary, description=module.__doc__, allow_abbrev=False)
        module.add_arguments(child)
        child.set_defaults(run=module.run)
    return parser


def check_verb(argv: Sequence[str]) -> None:
    """Refuse a missing or unknown verb; what follows a known verb is argparse's affair."""
    if not argv:
        raise InputError(
            f"No verb was given; the choice is {', '.join(VERBS)}, and genie-dg --help explains them."
        )
    verb = next((word for word in argv if not word.startswith("-")), None)
    if verb is not None:
        one_of("verb", verb, VERBS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        check_verb(words)
        arguments = build_parser().parse_args(words)
        code = int(arguments.run(arguments))
        sys.stdout.flush()
        return code
    except GenieError as error:
        print(printable(f"genie-dg: {error}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ngenie-dg: stopped by Ctrl-C.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `| head` has read enough; nobody is left to tell, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except SystemExit as stop:  # argparse after --help or --version
        return int(stop.code or 0)


if __name__ == "__main__":
    sys.exit(main())
