"""Which parts and claims of the paper have numbers that were measured and kept in the repository.

``python -m genie_dg.paper.measured docs/figures/paper`` reads the ledgers (``claims-*.json``) and the numbers
of figures and tables (``<part>.csv``) of that folder into ``measured.csv`` beside this module, which an
installed package carries and `coverage` shows.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from .claims import CLAIMS
from .request import PaperError
from .trajectory_claims import NAMES
from .verdict import NOT_MEASURED

NAME = "measured.csv"
AT_THE_SAME_WEIGHTS = frozenset((*NAMES, "rate"))
"""Claims that ledgers without tables measured otherwise: each optimizer at its own weights, one formulation."""


@dataclass(frozen=True)
class Measured:
    """One claim or part with numbers.

    Args:
        kind: ``claim`` or ``part``.
        name: of the claim or part.
        verdict: of a claim; empty for a part.
        data: what it was measured on, and with how many trials; empty for a part.
        file: where the numbers are.
    """

    kind: str
    name: str
    verdict: str
    data: str
    file: str


def read_measured(folder: Path) -> list[Measured]:
    """What a folder of kept numbers holds, in the order of claims and parts."""
    from .registry import PAPER  # which lists the part that shows what is carried

    ledgers = sorted(folder.glob("claims-*.json"))
    if not ledgers:
        raise PaperError(f"Got {folder}, which has no claims-*.json; name the folder of kept ledgers.")
    judged = [one for path in ledgers for one in _judged(path)]
    order = {claim.name: at for at, claim in enumerate(CLAIMS)}
    judged.sort(key=lambda one: order[one.name])
    parts = [name for name in PAPER if (folder / f"{name}.csv").is_file()]
    return [*judged, *(Measured("part", name, "", "", f"{name}.csv") for name in parts)]


def _judged(path: Path) -> Iterator[Measured]:
    """The claims of a ledger that have a verdict and were measured as the claim is measured now."""
    whole: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    sets = sorted({config["dataset"] for config in whole["runs"].values()})
    data = f"{' and '.join(sets) or 'no data'}, {len(whole['seeds'])} trials"
    how = {claim.name: claim.how for claim in CLAIMS}
    before = frozenset() if "tables" in whole else AT_THE_SAME_WEIGHTS
    for entry in whole["claims"]:
        name, verdict = entry["claim"]["name"], entry["judged"]["verdict"]
        current = how.get(name) == entry["claim"]["how"] and name not in before
        if current and verdict != NOT_MEASURED:
            yield Measured("claim", name, verdict, data, path.name)


def text_of(rows: list[Measured]) -> str:
    """The rows as the text of a CSV file."""
    out = io.StringIO()
    writer = csv.DictWriter(out, [field.name for field in fields(Measured)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(asdict, rows))
    return out.getvalue()


def carried() -> list[Measured]:
    """What the package carries."""
    text = (files(__package__) / NAME).read_text(encoding="utf-8")
    return [Measured(**line) for line in csv.DictReader(text.splitlines())]


def main(arguments: list[str]) -> int:
    """Write ``measured.csv`` from the folder that is named."""
    if len(arguments) != 1:
        print(f"Got {len(arguments)} arguments; expected one, the folder of kept numbers.", file=sys.stderr)
        return 2
    target = Path(__file__).with_name(NAME)
    target.write_text(text_of(read_measured(Path(arguments[0]))), encoding="utf-8")
    print(f"wrote {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
