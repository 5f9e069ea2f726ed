"""What an interrupted piece of work has finished already: a small file that is replaced as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .domains import DataError


@dataclass
class Stages:
    """Stages that are done, by name, and what the finished work has counted.

    Args:
        path: the file; an unreadable one raises `DataError`.
    """

    path: Path
    done: list[str] = field(default_factory=list, init=False)
    counts: dict[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if not self.path.exists():
            return
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            self.done = [str(stage) for stage in content["done"]]
            self.counts = {str(domain): int(count) for domain, count in content["counts"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{self.path} cannot be read ({error!r}); remove it and try again.") from error

    def run(self, stage: str, action: Callable[[], None]) -> None:
        """Do a stage unless it is done. The action must bear being repeated after a crash in the middle."""
        if stage not in self.done:
            action()
            self.done.append(stage)
            self.save()

    def forget(self) -> None:
        """Start again from the beginning."""
        self.done, self.counts = [], {}
        self.path.unlink(missing_ok=True)

    def save(self) -> None:
        """Write all of it to a draft and let that take the place of the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(self.path.name + ".new")
        draft.write_text(json.dumps({"done": self.done, "counts": self.counts}, indent=1), encoding="utf-8")
        draft.replace(self.path)
