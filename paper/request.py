"""What a table or figure of the paper is asked for and what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from genie_dg.check import InputError

Scale = Literal["smoke", "cpu", "paper"]
SCALES: tuple[Scale, ...] = ("smoke", "cpu", "paper")
"""``smoke`` runs in seconds and is for tests, ``cpu`` is a faithful miniature for two cores, ``paper`` is the
published protocol."""

ROOT = Path(__file__).parent.parent
"""The checkout."""


class PaperError(InputError):
    """A part of the paper cannot be made as asked."""


class NeedsData(PaperError):
    """The scale paper needs a published set, and no folder was named that holds it."""


@dataclass(frozen=True)
class Request:
    """How a part of the paper is to be made.

    Args:
        scale: how large.
        out: the folder for everything that is written; runs go to ``out / "runs"``.
        data: the name of a set or the path of a folder, instead of the embedded set of the scale.
        root: for published sets, the folder that holds them.
        workers: runs at a time.
        only: names of claims, for the ledger; all when empty.
        study: a folder as `paper.study` reads it, whose runs the claims are read from.
    """

    scale: Scale
    out: Path
    data: str = ""
    root: Path | None = None
    workers: int = 1
    only: tuple[str, ...] = ()
    study: Path | None = None

    def command(self, name: str) -> str:
        """What a user types to make a part again.

        >>> Request("cpu", Path("out"), data="my/folder", workers=2).command("umap")
        'python -m paper umap --scale cpu --data my/folder --workers 2'
        """
        only = "".join(f" --only {claim}" for claim in self.only)
        if self.study:
            return f"python -m paper {name} --study {self.study.as_posix()}{only}"
        data = f" --data {self.data}" if self.data else ""
        root = f" --root {self.root}" if self.root else ""
        workers = f" --workers {self.workers}" if self.workers > 1 else ""
        return f"python -m paper {name} --scale {self.scale}{data}{root}{workers}{only}"

    def write(self, name: str, text: str) -> Path:
        """A text as a file of the folder."""
        self.out.mkdir(parents=True, exist_ok=True)
        path = self.out / name
        path.write_text(text, encoding="utf-8")
        return path


@dataclass(frozen=True)
class Result:
    """A text to print (markdown) and the files that were written."""

    text: str
    files: tuple[Path, ...] = ()
