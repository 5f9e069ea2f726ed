"""How long work says that it proceeds: what is called, and bars on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Advance: TypeAlias = "Callable[[int], object]"
"""Called with the number of samples that were finished since the last call."""

Progress: TypeAlias = "Callable[[int, int | None], object]"
"""Called with how much is done and how much there is in all, or None where that is not known."""

StageProgress: TypeAlias = "Callable[[str, int, int | None], object]"
"""The same, with what is being done before it."""


def silent(*what: object) -> None:
    """Progress and sentences that nobody wants to see."""


@contextmanager
def progress_bars() -> Iterator[StageProgress]:
    """A bar on the terminal for each piece of work; silent without rich."""
    try:
        from rich import progress as rich
    except ImportError:
        yield silent
        return
    columns = rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TaskProgressColumn()
    with rich.Progress(*columns, rich.TimeRemainingColumn()) as bars:
        tasks: dict[str, rich.TaskID] = {}

        def report(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield report
