"""Make one table or figure of the paper, or all: published numbers beside what is measured here."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

from genie_dg.arguments import MANY, path, path_text, some_text, whole
from genie_dg.check import InputError, folder, one_of, writable_folder

from ._shared import add_out, console_of, require

if TYPE_CHECKING:
    from genie_dg.paper.request import PaperRow

SAVED = 10.0
"""Seconds between two saves of how long a part has taken."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What, how large, where to."""
    parser.add_argument(
        "name", nargs="?", type=some_text, default="list", help="a table or figure, all, or list (default)"
    )
    parser.add_argument(
        "--scale",
        default="smoke",
        type=some_text,
        help="smoke (seconds), cpu (a miniature, minutes to an hour) or paper (default: %(default)s)",
    )
    add_out(parser, "runs/paper", "the folder of what is made")
    parser.add_argument(
        "--data", type=path_text, help="a set or a folder of pictures, instead of the embedded set"
    )
    parser.add_argument(
        "--root", type=path, metavar="FOLDER", help="for published sets, the folder that holds them"
    )
    parser.add_argument(
        "--workers", type=whole(1, MANY), default=1, help="runs at a time (default: %(default)s)"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="CLAIM",
        type=some_text,
        help="of the claims, this one and what is measured with it; may be given several times",
    )
    parser.add_argument(
        "--study",
        type=path,
        metavar="FOLDER",
        help="read the claims from the packed runs of a study, such as studies/pacs, and train nothing",
    )
    parser.add_argument(
        "--clone",
        type=path,
        metavar="FOLDER",
        help="for the part logged, a clone of the authors' repository whose logs are read again",
    )


def run(arguments: argparse.Namespace) -> int:
    """Make what was asked for; every part leaves its files in its own folder."""
    require("The paper", "bench", {"numpy": "numpy", "sklearn": "scikit-learn", "rich": "rich"})
    require("The paper", "report", {"matplotlib": "matplotlib"})
    from genie_dg.paper.request import SCALES

    one_of("--scale", arguments.scale, SCALES)
    if arguments.only and arguments.name != "claims":
        raise InputError(
            f"--only is for claims, and {arguments.name} has none; leave it out, or ask for claims."
        )
    if arguments.clone is not None and arguments.name != "logged":
        raise InputError(
            f"--clone is for logged, and {arguments.name} reads no clone; leave it out, or ask for logged."
        )
    if arguments.study is not None and arguments.name != "claims":
        raise InputError(
            f"--study is for claims, and {arguments.name} reads no study; leave it out, or ask for claims."
        )
    writable_folder("--out", arguments.out)
    if arguments.study is not None:
        folder(arguments.study, "give --study the folder of a study")
    if arguments.root is not None:
        folder(arguments.root, "give --root the folder that holds the data sets")
    import torch

    from genie_dg.paper.registry import PAPER

    own = arguments.name in PAPER and arguments.data in PAPER[arguments.name].extra_sets
    if arguments.data and not own:
        from genie_dg.data.registry import open_data

        open_data(arguments.data, arguments.root)  # what is not there is refused before anything is made
    if arguments.name == "list":
        for row in PAPER.values():
            print(f"{row.name:15} {row.where:24} {row.summary}")
        return 0
    one_of("name", arguments.name, ["all", "list", *PAPER])
    if arguments.scale == "smoke":
        torch.set_num_threads(1)  # its networks are too small to share
    if arguments.name == "all":
        return make_all(list(PAPER.values()), arguments)
    _make(PAPER[arguments.name], arguments, arguments.data or "")
    return 0


def make_all(rows: list[PaperRow], arguments: argparse.Namespace) -> int:
    """Make every part; one that cannot be made is told and does not stop the others.

    A figure at scale paper whose data set is not here is no failure: its command is printed, as tables print
    theirs. At the end stands how long each part took, all calls of the command together: what is stopped and
    goes on later has its whole time there.
    """
    from genie_dg.paper.request import NeedsData

    failed = {}
    times = Times(arguments.out / arguments.scale / "times.json")
    for number, row in enumerate(rows, 1):
        own = row.own_sets and arguments.scale == "paper"
        print(f"Part {number} of {len(rows)}", flush=True)
        try:
            with times.of(row.name):
                _make(row, arguments, "" if own else arguments.data or "")
        except NeedsData as error:
            command = f"genie-dg paper {row.name} --scale paper --root DATA"
            print(f"Not made: {error}\nThe command: {command} --out {arguments.out}\n")
        except InputError as error:
            failed[row.name] = str(error)
            print(f"Not made: {error}\n")
    print(times.table())
    if failed:
        first, why = next(iter(failed.items()))
        names = ", ".join(failed)
        raise InputError(f"{len(failed)} of {len(rows)} parts could not be made: {names}. {first}: {why}")
    return 0


class Times:
    """Seconds by part, added up over calls in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, float]:
        """What has been added up; nothing where the file is damaged."""
        try:
            known = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return {name: float(seconds) for name, seconds in known.items() if isinstance(seconds, (int, float))}

    @contextmanager
    def of(self, part: str) -> Iterator[None]:
        """Add the time of what is done inside, however it ends; saved now and then, for a kill."""
        from genie_dg.files import write_json

        start, before, ended = time.monotonic(), self.read().get(part, 0.0), Event()

        def save() -> None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, {**self.read(), part: before + time.monotonic() - start})

        def save_now_and_then() -> None:
            while not ended.wait(SAVED):
                save()

        saving = Thread(target=save_now_and_then, daemon=True)
        saving.start()
        try:
            yield
        finally:
            ended.set()
            saving.join()
            save()

    def table(self) -> str:
        """A line for each part, and the whole."""
        from genie_dg.bench.status import duration

        known = self.read()
        lines = [f"{name:15} {duration(seconds)}" for name, seconds in known.items()]
        return "\n".join(["Time, all calls together:", *lines, f"{'all':15} {duration(sum(known.values()))}"])


def _make(row: PaperRow, arguments: argparse.Namespace, data: str) -> None:
    """Make one part, print what it says and name the files that it wrote."""
    from genie_dg.paper.request import Request

    out = arguments.out / arguments.scale / row.name
    print(f"## {row.name}: {row.summary} ({row.where})\n", flush=True)
    try:
        with _progress() as (say, tick):
            asked = Request(
                arguments.scale, out, data, arguments.root, arguments.workers, say, tick, tuple(arguments.only),
                arguments.clone, arguments.study,
            )  # fmt: skip
            result = row.make(asked)
    except InputError:
        raise
    except (ValueError, ImportError, OSError) as error:
        raise InputError(str(error)) from error
    print(result.text)
    for file in result.files:
        print(f"wrote {file}")
    print()


EVERY = 60.0
"""Seconds between lines where there is no terminal for a bar."""


@contextmanager
def _progress() -> Iterator[tuple[Callable[[str], None], Callable[[float, float, str], None]]]:
    """A way to say a line, and one to tell how far a part is: a bar, or now and then a line."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = console_of()
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=None)
        last = [time.monotonic()]

        def say(line: str) -> None:
            console.print(line, markup=False)

        def tick(done: float, total: float, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)
            if not console.is_terminal and time.monotonic() - last[0] > EVERY:
                last[0] = time.monotonic()
                say(f"{what}: {done / total:.0%}")

        yield say, tick
