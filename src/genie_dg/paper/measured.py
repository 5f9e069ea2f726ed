"""Which parts and claims of the paper have numbers that were measured and kept in the repository.

They are read from the ledgers (``claims-*.json``) and the numbers of figures and tables (``<part>.csv``) of
``docs/figures/paper``. ``measured.csv`` beside this module, which `claims_pages` writes, has them for an
installed package; `coverage` and `summary` show them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from pathlib import Path

from .claims import CLAIMS
from .kept_ledgers import KeptLedger, read_kept
from .ledger import LedgerEntry

NAME = "measured.csv"


@dataclass(frozen=True)
class Measured:
    """One claim or part with numbers.

    Args:
        kind: ``claim`` or ``part``.
        name: of the claim or part.
        verdict: of a claim; empty for a part, like all that follows except for the file.
        data: what it was measured on, and with how many trials.
        file: where the numbers are.
        regime: where the verdict applies, a name in `REGIMES`.
        result: the number and interval of each part of the claim, in words.
    """

    kind: str
    name: str
    verdict: str
    data: str
    file: str
    regime: str = ""
    result: str = ""


def read_measured(folder: Path, ledgers: Sequence[KeptLedger] = ()) -> list[Measured]:
    """What a folder of kept numbers holds, in the order of claims and parts.

    Args:
        folder: ``docs/figures/paper``.
        ledgers: that are kept elsewhere.
    """
    from .registry import PAPER  # which lists the part that shows what is carried

    judged = [one for ledger in (*read_kept(folder), *ledgers) for one in _judged(ledger)]
    order = {claim.name: at for at, claim in enumerate(CLAIMS)}
    judged.sort(key=lambda one: order[one.name])
    parts = [name for name in PAPER if (folder / f"{name}.csv").is_file()]
    return [*judged, *(Measured("part", name, "", "", f"{name}.csv") for name in parts)]


def _judged(ledger: KeptLedger) -> Iterator[Measured]:
    """The claims of a ledger that have a verdict and were measured as the claim is measured now."""
    for entry in ledger.judged:
        yield Measured(
            "claim", entry.claim.name, entry.judged.verdict, ledger.measured_on(entry), ledger.file,
            ledger.regime(entry), told(entry),
        )  # fmt: skip


DIGITS = {"points": 1, "times": 2, "exponent": 2, "log10": 1}
"""Behind the point, by the unit of a claim; 3 for all others."""


def told(entry: LedgerEntry) -> str:
    """Each part of a claim with its number and interval, in words, in the order in which they were measured.

    >>> from .ledger import entries
    >>> accuracy, *_ = entries({"accuracy": {"SGD": [1.0, 2.0], "Adam": [0.5, 0.5]}})
    >>> told(accuracy)
    'SGD +1.5 (-11.2 to +14.2), Adam +0.5 (exact); 97.5 % intervals'
    """
    digits = DIGITS.get(entry.claim.unit, 3)

    def number(value: float) -> str:
        shown = round(value, digits) + 0.0  # no minus zero
        return f"{shown:.{digits}f}" if entry.claim.unit == "times" else f"{shown:+.{digits}f}"

    parts = []
    for part, (one, _) in entry.judged.parts.items():
        ends = "exact" if one.low == one.high else f"{number(one.low)} to {number(one.high)}"
        parts.append(f"{part} {number(one.value)} ({ends})")
    first, _ = next(iter(entry.judged.parts.values()))
    level = f"; {100 * first.level:.3g} % interval{'s' * (len(parts) > 1)}"
    return ", ".join(parts) + level * any(one.low < one.high for one, _ in entry.judged.parts.values())


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
