"""Two rows of a table beside each other: paired differences and tuning budgets.

A split is (data set, test domains, trial). In a split a row has draws, one run each; training-domain validation
selects one, and the test accuracies of the selected draws (`draws`) are compared. Accuracies are from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from genie_dg.check import did_you_mean
from genie_dg.statistics import mean

from .draws import Candidate, Grouped, candidates, diverged, group
from .frame import ResultsError
from .stats import LEVEL, Budget, Interval, SplitKey, Trial, blocks_of, budget, interval, mean_best_of
from .tables import check_protocols

BASELINE = "adam"
"""The optimizer that others are compared with when nothing else is asked for."""

SAME = 1e-9
"""Test accuracies that differ by no more than this are a tie."""

ALL_DATA = "all"
"""The name of a comparison over several data sets."""


def find_row(name: str, rows: Sequence[str]) -> str:
    """The row of this name, in upper or lower case; an unknown name is refused with the nearest one.

    >>> find_row("erm + Genie", ["ERM + adam", "ERM + genie"])
    'ERM + genie'
    """
    for row in rows:
        if row.lower() == name.lower():
            return row
    raise ResultsError(f"There is no row {name!r}; the choice is {', '.join(rows)}{did_you_mean(name, rows)}")


def pairs_of(rows: Sequence[str], grouped: Grouped, baseline: str | None = None) -> list[tuple[str, str]]:
    """Each row with what it is compared with; no row with itself, no two rows twice.

    Unless told, that is Adam with the same algorithm (and backbone and protocol, where they tell rows apart),
    otherwise the first row.
    """
    kinds = {row: next(iter(grouped[row].values()))[0] for row in rows}
    pairs: list[tuple[str, str]] = []
    for row in rows:
        wanted = kinds[row].algorithm, BASELINE, _marks(kinds[row])
        adam = [r for r, c in kinds.items() if (c.algorithm, c.optimizer, _marks(c)) == wanted and r != row]
        other = baseline or [*adam, rows[0]][0]
        if other != row and (other, row) not in pairs:
            pairs.append((row, other))
    return pairs


def _marks(candidate: Candidate) -> str:
    """What stands in a row's name after algorithm and optimizer."""
    return candidate.row.removeprefix(f"{candidate.algorithm} + {candidate.optimizer}")


_Splits = Mapping[SplitKey, Sequence[Candidate]]


def budget_of(splits: _Splits) -> Budget:
    """What was spent on one row in these splits."""
    return budget({split: [c.steps for c in draws] for split, draws in splits.items()})


@dataclass(frozen=True)
class Paired:
    """The selected test accuracies of two rows in one split."""

    split: SplitKey
    row: float
    baseline: float

    @property
    def difference(self) -> float:
        """Positive where the row is better."""
        return self.row - self.baseline


@dataclass(frozen=True)
class Comparison:
    """A row against a baseline over the splits they share.

    Args:
        dataset: whose splits; ``"all"`` for several data sets.
        pairs: one for each shared split.
        mean: of the differences; every split counts the same.
        interval: see `stats`; ``None`` where there is nothing to resample.
        wins, ties, losses: in how many splits the row is better, equal (within 1e-9), worse.
        budgets: of the row and of the baseline, in the shared splits.
        notes: whole sentences about what cannot be computed or is not alike.
    """

    row: str
    baseline: str
    pairs: tuple[Paired, ...]
    mean: float
    interval: Interval | None
    wins: int
    ties: int
    losses: int
    budgets: tuple[Budget, Budget]
    notes: tuple[str, ...]
    dataset: str = ""


def compare(
    grouped: Grouped, row: str, baseline: str, resamples: int = 2000, seed: int = 0, level: float = LEVEL
) -> Comparison:
    """Paired differences of the selected test accuracies, their mean, its interval, and who wins how often.

    >>> listed = [Candidate("ERM + adam", "d", (0,), t, 0, 0.9, 0.5) for t in (0, 1)]
    >>> listed += [Candidate("ERM + genie", "d", (0,), t, 0, 0.9, 0.5 + t / 4) for t in (0, 1)]
    >>> result = compare(group(listed), "ERM + genie", "ERM + adam")
    >>> result.mean, result.wins, result.ties, result.losses
    (0.125, 1, 1, 0)
    """
    row, baseline = find_row(row, list(grouped)), find_row(baseline, list(grouped))
    shared = sorted(grouped[row].keys() & grouped[baseline].keys())
    if not shared:
        raise ResultsError(
            f"{row} and {baseline} share no split (data set, test domains, trial); run both on the same ones."
        )
    ours, theirs = ({split: grouped[name][split] for split in shared} for name in (row, baseline))
    pairs = tuple(Paired(split, ours[split][-1].test, theirs[split][-1].test) for split in shared)
    blocks = [
        [Trial(tuple(c.test for c in ours[s]), tuple(c.test for c in theirs[s])) for s in trials]
        for trials in blocks_of(shared).values()
    ]
    budgets = (budget_of(ours), budget_of(theirs))
    wins = sum(pair.difference > SAME for pair in pairs)
    losses = sum(pair.difference < -SAME for pair in pairs)
    names = sorted({split[0] for split in shared})
    return Comparison(
        row=row,
        baseline=baseline,
        pairs=pairs,
        mean=mean(pair.difference for pair in pairs),
        interval=interval(blocks, resamples, seed, level),
        wins=wins,
        ties=len(pairs) - wins - losses,
        losses=losses,
        budgets=budgets,
        notes=(*_notes(grouped, {baseline: theirs, row: ours}, budgets[::-1]), *_not_covered(blocks)),
        dataset=names[0] if len(names) == 1 else ALL_DATA,
    )


def _notes(grouped: Grouped, rows: Mapping[str, _Splits], budgets: Sequence[Budget]) -> list[str]:
    """Sentences about what is not alike: splits, protocols, budgets; of the baseline first."""
    notes, protocols = [], {}
    for row, splits in rows.items():
        if left := len(grouped[row]) - len(splits):
            notes.append(f"{left} of {len(grouped[row])} splits of {row} are not shared and are left out.")
        protocols[row] = ", ".join(sorted({c.protocol for draws in splits.values() for c in draws}))
    (baseline, row), (theirs, ours) = rows, budgets
    if protocols[row] != protocols[baseline]:
        both = f"{row} follows {protocols[row]} and {baseline} follows {protocols[baseline]}"
        notes.append(f"{both}; numbers of different protocols mean different things.")
    if ours != theirs:
        both = f"{row} had {ours}; {baseline} had {theirs}"
        notes.append(f"The budgets differ, so part of the difference may be tuning: {both}.")
    return notes


def _not_covered(blocks: Sequence[Sequence[Trial]]) -> list[str]:
    """What the interval cannot cover because there is one of it."""
    one_trial = all(len(trials) == 1 for trials in blocks)
    one_draw = all(len(t.row) == len(t.baseline) == 1 for trials in blocks for t in trials)
    if one_trial and one_draw:
        return ["No interval can be computed from one trial and one draw for each test domain."]
    if one_trial:
        return ["With one trial for each test domain the interval leaves out the spread between trials."]
    if one_draw:
        return ["With one draw in each split nothing is selected; the interval is about trials alone."]
    return []


def best_of_rows(grouped: Grouped, rows: Sequence[str]) -> dict[str, list[float]]:
    """For each row the expected selected test accuracy of k = 1, 2, ... draws, over the splits all rows share.

    A list ends where a split has no more draws; all are empty when no split is shared by all rows.
    """
    shared = sorted(set.intersection(*(set(grouped[row]) for row in rows)))
    if not shared:
        return {row: [] for row in rows}
    return {
        row: mean_best_of([[c.test for c in reversed(grouped[row][split])] for split in shared]).tolist()
        for row in rows
    }


@dataclass(frozen=True)
class Comparisons:
    """All that is compared of some rows.

    Args:
        rows: their names.
        grouped: their draws.
        differences: of each pair, by data set and then over all of them where there are several.
        best_of: by row, the expected test accuracy of the best of k = 1, 2, ... draws.
        notes: whole sentences about what is left out.
    """

    rows: list[str]
    grouped: Grouped
    differences: list[Comparison]
    best_of: dict[str, list[float]]
    notes: list[str]


def compare_all(
    frame: pl.DataFrame,
    rows: Sequence[str] = (),
    baseline: str = "",
    *,
    resamples: int = 2000,
    seed: int = 0,
    mix: bool = False,
) -> Comparisons:
    """Every row against its baseline.

    Args:
        frame: from `genie_dg.results.frame.load`.
        rows: names of the rows; all when empty.
        baseline: what to compare with; by default see `pairs_of`.
        resamples: of the bootstrap.
        seed: of the bootstrap.
        mix: compare across protocols all the same.
    """
    listed, worst = candidates(frame), diverged(frame)
    notes = []
    if left := len(frame) - len(listed) - len(worst):
        notes.append(
            f"{left} of {len(frame)} runs are left out: not complete, or without a domain to validate on."
        )
    if worst:
        notes.append(
            f"{len(worst)} of {len(frame)} runs diverged; each is a draw that is selected last, with the test "
            "accuracy of its last record."
        )
    known = sorted({c.row for c in listed})
    chosen = [find_row(name, known) for name in rows or known]
    base = find_row(baseline, known) if baseline else None
    shown = list(dict.fromkeys([*chosen, *([] if base is None else [base])]))
    if len(shown) < 2:
        one = f"There is one row, {shown[0]!r}," if shown else "There is no complete run,"
        raise ResultsError(f"{one} and a comparison needs two rows; name or run another.")
    check_protocols(frame.filter(pl.col("row").is_in(shown), pl.col("done")), mix)
    listed = [c for c in listed if c.row in shown]
    grouped = group([*listed, *(c for c in worst if c.row in shown)])
    pairs = pairs_of(shown, grouped, base)
    near = [(a, b) for a, b in pairs if grouped[a].keys() & grouped[b].keys()]
    notes += [f"{a} and {b} share no split and are not compared." for a, b in pairs if (a, b) not in near]
    differences = [c for a, b in near or pairs for c in _by_dataset(grouped, a, b, resamples, seed)]
    return Comparisons(shown, grouped, differences, best_of_rows(grouped, shown), notes)


def _by_dataset(grouped: Grouped, row: str, baseline: str, resamples: int, seed: int) -> list[Comparison]:
    """A comparison for each data set that two rows share, and one over all of them where there are several."""
    whole = compare(grouped, row, baseline, resamples, seed)
    names = sorted({pair.split[0] for pair in whole.pairs})
    parts = []
    for name in names if len(names) > 1 else ():
        part = {r: {s: d for s, d in splits.items() if s[0] == name} for r, splits in grouped.items()}
        parts.append(compare(part, row, baseline, resamples, seed))
    return [*parts, whole]
