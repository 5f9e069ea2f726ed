"""``genie-dg``: find the verb, parse its arguments, run it, turn errors into exit codes.

Exit codes: 0 done; 1 a run failed, or its loss exploded; 2 the request was wrong (one sentence on stderr); 130
stopped by Ctrl-C; 141 the reader of the output closed it (`| head`), as for other programs.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NoReturn

from genie_dg import __version__
from genie_dg.check import GenieError, InputError, one_of, printable
from genie_dg.files import FileWarning

from ._shared import require

VERBS = {
    "best": "which models the tables speak of: run, step, file, accuracies",
    "compare": "compare rows of finished runs: paired differences, intervals, budgets",
    "completion": "print a script that completes verbs, options and names in a shell",
    "data": "list, download, verify, cache and look at data sets",
    "demo": "optimizers fine-tune a pretrained network: sweep, table and report (one to three minutes)",
    "diwa": "average the weights of finished runs that differ in their draw, and evaluate the mean",
    "env": "print the versions, devices and tools that matter to genie-dg",
    "evaluate": "how right a model is on labelled pictures: by domain and class, confusion, calibration",
    "export": "write a model as ONNX or safetensors, checked against the original",
    "fit": "make a model from a folder of pictures, with what to expect of it on a domain nobody has seen",
    "import": "read DomainBed's result folders as runs",
    "list": "list algorithms, optimizers, backbones and data sets",
    "lr-find": "find a learning rate for an optimizer, a network and data, with a picture",
    "pack": "put the records of complete runs into one small file that can be committed and read",
    "predict": "say what is on pictures, with probabilities",
    "report": "one page about runs that opens offline: tables, curves, draws, differences",
    "serve": "a web page on this machine: drop a picture, see what a model says",
    "status": "how far sweeps are: done, running, failed, missing, time left",
    "sweep": "run many trainings from a TOML file; stopped ones go on",
    "table": "tables of finished runs: three ways of selection, markdown, LaTeX or CSV",
    "train": "train one model without some domains, and test it on them",
}
"""Each verb is a module of this package with ``add_arguments(parser)`` and ``run(arguments) -> exit code``; the
module of ``lr-find`` is ``lr_find``."""

_NEEDED = {name: name for name in ("msgspec", "numpy", "polars", "rich", "jinja2", "matplotlib", "shtab")}
_NEEDED["PIL"] = "pillow"
"""What all verbs but ``env`` cannot do without: the module, and the package that has it."""


class _Parser(argparse.ArgumentParser):
    """argparse, except that a mistake becomes one sentence instead of a usage text."""

    def error(self, message: str) -> NoReturn:
        line = " ".join(message.split())
        raise InputError(f"{line[:1].upper()}{line[1:].rstrip('.')}; see {self.prog} --help.")


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The command line: of every verb, or with the options of one.

    A verb's module is imported for its options, so one that lacks a package does not stop the others.
    """
    parser = _Parser(
        prog="genie-dg", description="GENIE, an optimizer for domain generalization.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"genie-dg {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="verb", required=True, parser_class=_Parser)
    for name, summary in VERBS.items():
        if only not in (None, name):
            verbs.add_parser(name, help=summary, add_help=False)
            continue
        module = import_module(f"{__package__}.{name.replace('-', '_')}")
        child = verbs.add_parser(name, help=summary, description=module.__doc__, allow_abbrev=False)
        module.add_arguments(child)
        child.set_defaults(run=module.run)
    return parser


def verb_of(argv: Sequence[str]) -> str:
    """The verb, empty where only options were given; a missing or unknown one is refused."""
    if not argv:
        raise InputError(
            f"No verb was given; the choice is {', '.join(VERBS)}, and genie-dg --help explains them."
        )
    verb = next((word for word in argv if not word.startswith("-")), "")
    return one_of("verb", verb, VERBS) if verb else verb


@contextmanager
def _warnings_as_sentences() -> Iterator[None]:
    """Say once for each, on stderr, which file was damaged and what happens instead."""
    shown: set[str] = set()
    with warnings.catch_warnings():
        usual = warnings.showwarning
        warnings.simplefilter("always", FileWarning)

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if not issubclass(category, FileWarning):
                usual(message, category, *where, **more)
            elif str(message) not in shown:
                shown.add(str(message))
                print(f"genie-dg: {message}", file=sys.stderr)

        warnings.showwarning = show
        yield


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    words, verb = sys.argv[1:] if argv is None else list(argv), ""
    try:
        verb = verb_of(words)
        arguments = build_parser(verb).parse_args(words)
        arguments.command = ["genie-dg", *words]
        require(f"genie-dg {verb}", "bench", {} if verb == "env" else _NEEDED)
        with _warnings_as_sentences():
            code = int(arguments.run(arguments))
        sys.stdout.flush()
        return code
    except GenieError as error:
        print(printable(f"genie-dg: {error}"), file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == __name__.split(".")[0]:
            raise
        install = 'run pip install "genie-dg[bench]" and try again.'
        print(
            f"genie-dg: {verb} needs the package {error.name}, not installed here; {install}", file=sys.stderr
        )
        return 2
    except KeyboardInterrupt:
        print("\ngenie-dg: stopped by Ctrl-C.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `| head` has read enough; nobody is left to tell, not even at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        where = f"{error.filename} cannot be used" if error.filename else "The system refused"
        print(f"genie-dg: {where} ({error.strerror or error}).", file=sys.stderr)
        return 2
    except SystemExit as stop:  # argparse after --help or --version
        return int(stop.code or 0)


if __name__ == "__main__":
    sys.exit(main())
