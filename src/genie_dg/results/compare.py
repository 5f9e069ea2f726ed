"""Two rows of a table beside each other: paired differences, tuning budgets, and the noise they must exceed.

A row is "<algorithm> + <optimizer>". A split is (data set, test domains, trial). In a split a row has draws,
one run each; the draw with the highest validation accuracy is selected, of equals the one with the largest
seed. What is compared is the test accuracy of the selected draws. Accuracies are from 0 to 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt

from genie_dg.check import did_you_mean

from .best_of import Budget, Split, blocks_of, budget, mean_best_of
from .bootstrap import Interval, Trial, interval
from .schema import ResultsError, Run, in_acc, out_acc
from .select import Row, mean_of, row_of_run

BASELINE = "adam"
"""The optimizer that others are compared with when nothing else is asked for."""

SAME = 1e-9
"""Test accuracies that differ by no more than this are a tie."""


@dataclass(frozen=True)
class Candidate:
    """One run as training-domain validation sees it: one draw of one row in one split.

    Args:
        row: "<algorithm> + <optimizer>", and in brackets what else tells rows apart; see `candidates`.
        dataset, test_domains, trial: the split.
        draw: the seed of the hyper-parameters.
        validation: the highest mean ``out_acc`` of the training domains over the run's records.
        test: the mean ``in_acc`` of the test domains in the first record that has it.
        steps: of training.
        protocol: whose rules the run follows.
        science: what the run is, up to its trial; runs of equal science are repeats of each other.
        run_id: orders runs of one draw.
        spread: the largest minus the smallest test accuracy of the last quarter of the records.
    """

    row: str
    dataset: str
    test_domains: tuple[int, ...]
    trial: int
    draw: int
    validation: float
    test: float
    steps: int = 0
    protocol: str = ""
    science: str = ""
    run_id: str = ""
    spread: float | None = None

    @property
    def split(self) -> Split:
        """Where it is compared."""
        return self.dataset, self.test_domains, self.trial


def candidates(runs: Iterable[Run]) -> list[Candidate]:
    """One candidate for each complete run that has a record and a training domain, by (row, split, draw).

    With SWAD the one record of the averaged weights counts, and the algorithm is called "ERM+SWAD". Where runs
    have several backbones, names end in "(backbone)"; where a row has several protocols, in its protocol too.
    """
    usable = [run for run in runs if run.done and run.judged is not None and len(run.judged) and _sources(run)]
    rows = {run.run_id: row_of_run(run) for run in usable}
    backbones = len({row.backbone for row in rows.values()}) > 1
    protocols: dict[Row, set[str]] = defaultdict(set)
    for row in rows.values():
        protocols[replace(row, protocol="")].add(row.protocol)
    found = []
    for run in usable:
        row = rows[run.run_id]
        several = len(protocols[replace(row, protocol="")]) > 1
        marks = [row.backbone] * backbones + [row.protocol] * several
        name = f"{row.algorithm} + {row.optimizer}" + (f" ({', '.join(marks)})" if marks else "")
        found.append(_candidate(name, run))
    return sorted(found, key=lambda c: (c.row, c.split, c.draw, c.run_id))


def _sources(run: Run) -> list[int]:
    return [k for k in range(len(run.domains)) if k not in run.config.test_domains]


def _candidate(row: str, run: Run) -> Candidate:
    config, judged = run.config, run.numbers if run.judged is None else run.judged
    validations = mean_of(out_acc(judged), _sources(run))
    best = int(validations.argmax())  # the first of equals
    return Candidate(
        row=row,
        dataset=config.dataset,
        test_domains=config.test_domains,
        trial=config.trial_seed,
        draw=config.hparams_seed,
        validation=float(validations[best]),
        test=float(mean_of(in_acc(judged), config.test_domains)[best]),
        steps=config.steps,
        protocol=config.protocol,
        science=replace(config, trial_seed=0).run_id,
        run_id=run.run_id,
        spread=last_spread(mean_of(run.in_acc, config.test_domains).tolist()),
    )


def last_spread(tests: Sequence[float]) -> float | None:
    """Largest minus smallest of the last quarter (rounded up) of a run's values; ``None`` for a single one.

    >>> last_spread([0.1, 0.9, 0.2, 0.9, 0.2, 0.9, 0.5, 0.75]), last_spread([0.1, 0.2, 0.3, 0.4])
    (0.25, None)
    """
    last = tests[len(tests) - ceil(len(tests) / 4) :]
    return max(last) - min(last) if len(last) > 1 else None


def check_protocols(found: Iterable[Candidate], mix: bool = False) -> None:
    """Refuse runs of several protocols, whose numbers mean different things, unless ``mix``."""
    names = sorted({c.protocol for c in found})
    if len(names) > 1 and not mix:
        raise ResultsError(
            f"The runs follow several protocols ({', '.join(names)}), whose numbers are not comparable; "
            "give runs of one protocol, or ask for --mix-protocols."
        )


def find_row(name: str, rows: Sequence[str]) -> str:
    """The row of this name, in upper or lower case; another name is refused with the nearest one.

    >>> find_row("erm + Genie", ["ERM + adam", "ERM + genie"])
    'ERM + genie'
    """
    for row in rows:
        if row.lower() == name.lower():
            return row
    raise ResultsError(f"There is no row {name!r} (the choice is {', '.join(rows)}){did_you_mean(name, rows)}")


def baseline_of(row: str, rows: Sequence[str]) -> str | None:
    """What a row is compared with unless told: Adam with its algorithm, otherwise the first row; never itself.

    >>> rows = ["ERM + adam", "ERM + genie", "CORAL + genie"]
    >>> [baseline_of(row, rows) for row in rows]
    [None, 'ERM + adam', 'ERM + adam']
    """
    algorithm, _, rest = row.partition(" + ")
    adam = f"{algorithm} + {BASELINE}{''.join(rest.partition(' (')[1:])}"
    choice = adam if adam in rows and adam != row else rows[0]
    return None if choice == row else choice


Grouped = dict[str, dict[Split, list[Candidate]]]
"""By row and split the draws, from the worst validation to the best: the last one is selected."""


def group(found: Iterable[Candidate]) -> Grouped:
    """Sort candidates by row and split, one for each draw.

    Runs with one draw's seed but other settings, as by hand, are draws each. Of repeats the first counts.
    """
    first: dict[tuple[str, Split, int, str], Candidate] = {}
    for c in found:
        first.setdefault((c.row, c.split, c.draw, c.science), c)
    grouped: Grouped = {}
    for c in sorted(first.values(), key=lambda c: (c.row, c.split, c.validation, c.draw, c.run_id)):
        grouped.setdefault(c.row, {}).setdefault(c.split, []).append(c)
    return grouped


def budget_of(splits: Mapping[Split, Sequence[Candidate]]) -> Budget:
    """What was spent on one row in these splits."""
    return budget({split: [c.steps for c in draws] for split, draws in splits.items()})


@dataclass(frozen=True)
class Paired:
    """The selected test accuracies of two rows in one split."""

    split: Split
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
        pairs: one for each shared split.
        mean: of the differences; every split counts the same.
        interval: see `bootstrap`; ``None`` where there is nothing to resample.
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


def compare(grouped: Grouped, row: str, baseline: str, resamples: int = 2000, seed: int = 0) -> Comparison:
    """Paired differences of the selected test accuracies, their mean, its interval, and who wins how often.

    >>> found = [Candidate("ERM + adam", "d", (0,), t, 0, 0.9, 0.5) for t in (0, 1)]
    >>> found += [Candidate("ERM + genie", "d", (0,), t, 0, 0.9, 0.5 + t / 4) for t in (0, 1)]
    >>> result = compare(group(found), "ERM + genie", "ERM + adam")
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
    notes = [
        *_other_rules({row: ours, baseline: theirs}),
        *_other_budgets(row, baseline, budgets),
        *_not_covered(blocks),
    ]
    for name in (row, baseline):
        alone = len(grouped[name]) - len(shared)
        if alone:
            notes.insert(
                0, f"{alone} of {len(grouped[name])} splits of {name} are not shared and are left out."
            )
    return Comparison(
        row=row,
        baseline=baseline,
        pairs=pairs,
        mean=sum(pair.difference for pair in pairs) / len(pairs),
        interval=interval(blocks, resamples, seed),
        wins=wins,
        ties=len(pairs) - wins - losses,
        losses=losses,
        budgets=budgets,
        notes=tuple(notes),
    )


def _other_rules(rows: Mapping[str, Mapping[Split, Sequence[Candidate]]]) -> list[str]:
    names = {
        row: ", ".join(sorted({c.protocol for draws in splits.values() for c in draws}))
        for row, splits in rows.items()
    }
    if len(set(names.values())) == 1:
        return []
    told = " and ".join(f"{row} follows {name}" for row, name in names.items())
    return [f"{told}; numbers of different protocols mean different things."]


def _other_budgets(row: str, baseline: str, budgets: tuple[Budget, Budget]) -> list[str]:
    if budgets[0] == budgets[1]:
        return []
    return [
        f"The budgets differ, so part of the difference may be tuning: {row} had {budgets[0]}; "
        f"{baseline} had {budgets[1]}."
    ]


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
class Noise:
    """How much test accuracies move when nothing that matters changes.

    Args:
        between: the pooled standard deviation between repeats; ``None`` without repeats.
        repeats: how many runs have a repeat, themselves included.
        within: the mean over runs of `last_spread`; ``None`` where runs are too short.
        within_most: the largest of them.
    """

    between: float | None
    repeats: int
    within: float | None
    within_most: float | None


def noise_floor(found: Iterable[Candidate]) -> Noise:
    r"""The noise between and within runs.

    Runs that are the same but for their trial, or re-runs of one trial, are repeats. With groups g of
    :math:`n_g` repeats, :math:`s^2 = \sum_g \sum_i (x_{gi} - \bar x_g)^2 / \sum_g (n_g - 1)`.

    >>> tests = [0.4, 0.6]
    >>> runs = [Candidate("ERM + adam", "d", (0,), trial, 0, 0.9, x) for trial, x in enumerate(tests)]
    >>> round(noise_floor(runs).between, 6)
    0.141421
    """
    kept = list(dict.fromkeys(found))  # a copy of a run is no repeat
    groups: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for c in kept:
        groups[c.row, c.dataset, c.test_domains, c.draw, c.science].append(c.test)
    repeated = [tests for tests in groups.values() if len(tests) > 1]
    between = None
    if repeated:
        squares = sum((x - sum(tests) / len(tests)) ** 2 for tests in repeated for x in tests)
        between = sqrt(squares / sum(len(tests) - 1 for tests in repeated))
    spreads = [c.spread for c in kept if c.spread is not None]
    return Noise(
        between=between,
        repeats=sum(map(len, repeated)),
        within=sum(spreads) / len(spreads) if spreads else None,
        within_most=max(spreads, default=None),
    )
