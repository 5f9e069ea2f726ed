"""What the verbs share: optional packages, reading runs and models, writing files, what goes to the screen."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from genie_dg.arguments import path, path_text, some_text
from genie_dg.check import InputError, MissingPackage, printable, writable_folder

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from genie_dg.data.columns import Columns
    from genie_dg.data.domains import DomainSet
    from genie_dg.inference.model import Model

PRETRAINED = "efficientnet_lite0"
"""The network for pictures in files when none is named; its ImageNet weights come with the extra."""
QUICK = 96
"""Pixels at most on a CPU, where a larger picture costs minutes."""


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


def load_runs(folders: list[Path], problems: list[str] | None = None) -> pl.DataFrame:
    """The frame of some folders; what cannot be read goes to stderr, a folder without runs is refused."""
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


def add_model(parser: argparse.ArgumentParser, device: bool = True) -> None:
    """The model that a verb uses."""
    parser.add_argument(
        "model",
        type=path,
        metavar="MODEL",
        help="a model file, the folder of a run, or a folder of runs of which one is best (genie-dg best)",
    )
    if device:
        parser.add_argument(
            "--device", default="cpu", type=some_text, help="cpu, cuda or mps (default: %(default)s)"
        )
    parser.add_argument(
        "--plugin",
        action="append",
        type=path_text,
        default=[],
        metavar="FILE",
        help="a Python file that registers the rows the run was trained with; may be given several times",
    )


def read_model(arguments: argparse.Namespace) -> Model:
    """The model that was named, on the device that was asked for."""
    from genie_dg.bench.request import load_plugin, usable_device
    from genie_dg.inference.model import load_model

    for file in arguments.plugin:
        load_plugin(Path(file))
    return load_model(arguments.model, usable_device(getattr(arguments, "device", "cpu")))


def usual_size(data: DomainSet, device: str) -> int:
    """The size of pictures when none is named: what suits them, on a CPU at most `QUICK` pixels."""
    from genie_dg.bench.fit import PICTURE_SIZES, suiting_size

    return suiting_size(data, QUICK if device == "cpu" else PICTURE_SIZES[-1])


def read_labelled(what: str, root: str | None, model: Model, columns: Columns | None = None) -> DomainSet:
    """Pictures or rows with labels; what a reader should know of them goes to stderr."""
    from genie_dg.data.columns import Columns
    from genie_dg.inference.evaluate import open_labelled

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data = open_labelled(what, model, root, columns or Columns())
    for warning in caught:
        print(f"Note: {warning.message}", file=sys.stderr)
    return data


@contextmanager
def progress_bar(
    text: str, total: int | None = None, console: Console | None = None, unit: str = ""
) -> Iterator[Callable[..., None]]:
    """A progress bar with the time left, on a terminal only.

    It yields a function: ``bar(3)`` counts three more, ``bar(done=7)`` sets the count, ``bar(text="b")`` the
    text.

    Args:
        text: before the bar.
        total: what is counted to; ``None`` where nobody knows.
        console: where it is shown; by default stderr.
        unit: after the count.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = console or Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit)
    hidden = not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=hidden, transient=True) as progress:
        task = progress.add_task(text, total=total)

        def bar(more: int = 0, *, done: int | None = None, text: str | None = None) -> None:
            progress.update(task, advance=more, completed=done, description=text)

        yield bar
