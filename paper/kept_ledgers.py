"""Ledgers that were measured and kept, ``claims-*.json``: read back, and judged anew from their numbers.

A kept ledger is what `ledger.write_ledger` wrote. ``setting`` (what was trained, in a sentence), ``data``,
``pretrained``, ``notes`` and ``tables`` may be missing; ``claims`` with their ``numbers`` and ``runs`` may not.
The packed runs of a study (`study`) are a ledger, too; its intervals include the selection of draws.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .claims import CLAIMS
from .ledger import LedgerEntry, entries, markdown, study_entries
from .numbers_table import NumbersTable
from .request import ROOT, PaperError
from .study import read_study, study_note

KEPT = Path("docs", "figures", "paper")
"""Where ledgers and the numbers of figures and tables are kept in a checkout."""

RANDOM, PRETRAINED = "training from random weights", "training from pretrained weights"
REGIMES = {
    "theory": "theory, exact or on a toy problem",
    "dynamics": "dynamics of a small network",
    "random": RANDOM,
    "pretrained": PRETRAINED,
    "time": "time of a step",
}
"""Where a verdict applies, in words. Claims about training have two: the weights that training starts from."""

DIGITS = {"points": 1, "times": 2, "exponent": 2, "log10": 1}
"""Behind the point, by the unit of a claim; 3 for all others."""


@dataclass(frozen=True)
class MeasuredClaim:
    """A claim with numbers that were kept.

    Args:
        name: of the claim.
        verdict: from the numbers.
        data: what it was measured on, and with how many trials.
        regime: where the verdict applies, a name in `REGIMES`.
        result: the number and interval of each part of the claim, in words.
    """

    name: str
    verdict: str
    data: str
    regime: str
    result: str


@dataclass(frozen=True)
class KeptLedger:
    """One file.

    Args:
        file: its name.
        setting: what was trained, in a sentence; may be empty.
        data: the sets.
        pretrained: whether training started from pretrained weights.
        judged: the claims with numbers that are measured so today.
        otherwise: names of those that are measured otherwise today, and so do not count.
        notes: sentences under the table.
        tables: of what was measured along training.
        pairs: what a number is measured in.
    """

    file: str
    setting: str
    data: str
    pretrained: bool
    judged: tuple[LedgerEntry, ...]
    otherwise: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tables: tuple[NumbersTable, ...] = ()
    pairs: str = "trials"

    def regime(self, entry: LedgerEntry) -> str:
        """A name in `REGIMES`."""
        about = entry.claim.about
        return ("pretrained" if self.pretrained else "random") if about == "training" else about

    def measured_on(self, entry: LedgerEntry) -> str:
        """The data and the number of trials, in words."""
        if all(interval.low == interval.high for interval, _ in entry.judged.parts.values()):
            return "exact"
        count = max(map(len, entry.numbers.values()))
        if entry.claim.about == "time" and not self.pretrained:
            return f"one machine, {count} repeats"
        return f"{'no data' if entry.claim.about == 'theory' else self.data}, {count} {self.pairs}"

    def measured(self) -> list[MeasuredClaim]:
        """The claims that have a verdict."""
        return [
            MeasuredClaim(
                entry.claim.name, entry.judged.verdict, self.measured_on(entry), self.regime(entry),
                result_in_words(entry),
            )
            for entry in self.judged
        ]  # fmt: skip

    def markdown(self) -> str:
        """What a page shows of it: a table for each regime, with a heading where there are several."""
        by_regime = {name: [e for e in self.judged if self.regime(e) == name] for name in REGIMES}
        shown = {words: by_regime[name] for name, words in REGIMES.items() if by_regime[name]}
        blocks = [self.setting]
        for words, ledger in shown.items():
            blocks += [f"### Claims about {words}", markdown(ledger)] if len(shown) > 1 else [markdown(ledger)]
        if self.tables and len(shown) > 1:
            blocks.append("### What was measured along training")
        blocks += self.notes
        if self.otherwise:
            names = ", ".join(self.otherwise)
            blocks.append(f"Not shown, as these claims are measured otherwise now: {names}.")
        return "\n\n".join([*filter(None, blocks), *(table.markdown() for table in self.tables)])


def result_in_words(entry: LedgerEntry) -> str:
    """Each part of a claim with its number and interval, in the order in which they were measured.

    >>> accuracy, *_ = entries({"accuracy": {"SGD": [1.0, 2.0], "Adam": [0.5, 0.5]}})
    >>> result_in_words(accuracy)
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


def read_kept(folder: Path) -> list[KeptLedger]:
    """All ledgers of a folder, by name."""
    paths = sorted(folder.glob("claims-*.json"))
    if not paths:
        raise PaperError(f"Got {folder}, which has no claims-*.json; name the folder of kept ledgers.")
    return [kept_ledger(path.name, json.loads(path.read_text(encoding="utf-8"))) for path in paths]


def kept_ledger(file: str, whole: Mapping[str, Any]) -> KeptLedger:
    """A ledger from its JSON; verdicts follow from the numbers, not from what the file says about them."""
    how = {claim.name: claim.how for claim in CLAIMS}
    numbered = {row["claim"]["name"]: row for row in whole["claims"] if row["numbers"]}
    current = {name: row["numbers"] for name, row in numbered.items() if how.get(name) == row["claim"]["how"]}
    runs = whole["runs"].values()
    sets = sorted({run["dataset"] for run in runs})
    return KeptLedger(
        file,
        whole.get("setting", ""),
        whole.get("data") or " and ".join(sets) or "no data",
        whole.get("pretrained", any(run.get("pretrained") for run in runs)),
        tuple(entry for entry in entries(current) if entry.judged.parts),
        tuple(name for name in numbered if name not in current),
        tuple(whole.get("notes", ())),
        tuple(map(NumbersTable.from_json, whole.get("tables", {}).values())),
    )


def study_ledger(folder: Path) -> KeptLedger:
    """The ledger of a study, from its packed runs."""
    study = read_study(folder)
    ledger = tuple(study_entries(study))
    none = f"No two rows are complete: {len(study.frame)} of {study.planned * len(study.names)} runs are done."
    setting, data = study_note(study) if ledger else none, str(study.frame["dataset"][0])
    name = f"{folder.parent.name}/{folder.name}"
    return KeptLedger(name, setting, data, study.pretrained, ledger, pairs="splits")


@cache
def all_ledgers(root: Path = ROOT) -> list[KeptLedger]:
    """The kept ledgers of a checkout, then those of its studies."""
    packed = sorted((root / "studies").glob("*/runs.tar.xz"))
    return [*read_kept(root / KEPT), *(study_ledger(path.parent) for path in packed)]


def measured_claims(ledgers: Sequence[KeptLedger]) -> list[MeasuredClaim]:
    """What ledgers measured, in the order of claims."""
    order = {claim.name: at for at, claim in enumerate(CLAIMS)}
    return sorted((one for ledger in ledgers for one in ledger.measured()), key=lambda one: order[one.name])
