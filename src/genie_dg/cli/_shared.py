"""What the verbs share: optional packages, reading runs, writing files, what goes to the screen."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from genie_dg.arguments import path
from genie_dg.check import InputError, MissingPackage, writable_folder

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console


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
    parser.add_argument("runs", nargs="+", type=path, metavar="RUNS", help="a folder of runs")
    parser.add_argument(
        "--mix-protocols", action="store_true", help="show runs of several protocols side by side"
    )


def load_runs(purpose: str, folders: list[Path], problems: list[str] | None = None) -> pl.DataFrame:
    """The frame of some folders; what cannot be read goes to stderr, a folder without runs is refused."""
    require(purpose, "bench", {"numpy": "numpy", "polars": "polars", "msgspec": "msgspec"})
    from genie_dg.results.frame import load

    problems = [] if problems is None else problems
    frame = load(*folders, problems=problems)
    for problem in problems:
        print(f"genie-dg: {problem}", file=sys.stderr)
    if not len(frame):
        raise InputError(
            f"There are no runs in {', '.join(map(str, folders))}; name a folder that genie-dg train, sweep or "
            "import wrote."
        )
    return frame


def add_out(parser: argparse.ArgumentParser, default: str, what: str, metavar: str = "FOLDER") -> None:
    """Where a verb writes."""
    text = f"{what} (default: {default or 'the screen'})"
    parser.add_argument(
        "-o", "--out", type=path, default=Path(default) if default else None, metavar=metavar, help=text
    )


def write(file: Path, text: bytes) -> None:
    """Write a file that a user named."""
    try:
        file.write_bytes(text)
    except OSError as error:
        raise InputError(f"{file} cannot be written ({error.strerror}); name another file.") from error


def make_folder(folder: Path) -> Path:
    """A folder that a user named, made when missing."""
    writable_folder("--out", folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made ({error.strerror}); choose another folder.") from error
    return folder


def console_of(quiet: bool = False) -> Console:
    """Where a verb says things: lines are never cut, so that paths and numbers can be read by programs, too."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=True, quiet=quiet)


def to_json(data: object) -> str:
    """Data for programs: one JSON document; what is not a number is null."""
    return json.dumps(_plain(data), indent=1, ensure_ascii=False, allow_nan=False)


def _plain(data: object) -> object:
    if isinstance(data, Mapping):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data
