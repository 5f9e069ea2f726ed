"""What the verbs share: the error for a wrong request, the check for optional packages, reading runs."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from genie_dg.check import InputError, MissingPackage, printable

if TYPE_CHECKING:
    import polars as pl


def require(purpose: str, extra: str, modules: dict[str, str]) -> None:
    """Refuse early when an optional package is missing, and name the extra that brings it.

    Args:
        purpose: the subject of the sentence, for example "The demo".
        extra: the name of the extra in this package.
        modules: what to look for, as {name of the module: name of the package that has it}.
    """
    missing = [package for module, package in modules.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise MissingPackage(
            f"{purpose} needs {' and '.join(missing)}, not installed here; "
            f'run pip install "genie-dg[{extra}]" and try again.'
        )


def add_runs(parser: argparse.ArgumentParser) -> None:
    """The folders of runs that a verb reads."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="a folder of runs")
    parser.add_argument(
        "--mix-protocols", action="store_true", help="show runs of several protocols side by side"
    )


def load_runs(purpose: str, folders: list[Path], problems: list[str] | None = None) -> pl.DataFrame:
    """The frame of some folders; what cannot be read goes to stderr, a folder without runs is refused."""
    require(purpose, "bench", {"numpy": "numpy", "polars": "polars", "msgspec": "msgspec"})
    from genie_dg.results.frame import load

    problems = [] if problems is None else problems
    frame = load(*folders, problems=problems)
    tell_problems(problems)
    if not len(frame):
        raise InputError(
            f"There are no runs in {', '.join(map(str, folders))}; name a folder that genie-dg train, sweep or "
            "import wrote."
        )
    return frame


def tell_problems(problems: Iterable[str]) -> None:
    """A line on stderr for each file that cannot be used."""
    for problem in problems:
        print(printable(f"genie-dg: {problem}"), file=sys.stderr)


def write(path: Path, text: bytes) -> None:
    """Write a file that a user named."""
    try:
        path.write_bytes(text)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); name another file.") from error
