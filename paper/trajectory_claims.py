"""From what was measured along training runs to the numbers of claims.

Within a trial a claim about preconditioners averages over the runs of four optimizers: at each run's weights
all preconditioners are compared, and the differences are averaged. A ratio without a positive denominator is
left out, and the name of the part then says how many were.

Tables of what was measured along training runs: means over trials, each with its interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import fmean

import polars as pl

from .claim_runs import ClaimNumbers, ClaimRuns
from .figure_setup import OptimizerSetup
from .rules import RULES
from .trajectories import RunNumbers, run_numbers
from .trajectory_points import GRANULARITIES
from .verdict import NumbersTable, cell

PUBLISHED = ("SGD", "Adam", "SAM", "GENIE")
"""The optimizers of the paper's figures."""

Runs = dict[str, list[RunNumbers]]
"""By label, one for each trial."""

Value = Callable[[RunNumbers], float]

MEASURED = {
    "SGD": "measured/sgd/product",
    "Adam": "measured/adam/product",
    "trust": "measured/svag/product",
    "eq. 5 in closed form": "measured/eq. 5",
}
"""What the paper's formulas give at the measured moments, by the name that tables show."""

OF_RUNS = {
    "accuracy": "accuracy",
    "OSGR by the definition": "definition",
    "sharpness along training": "sharpness",
    "sharpness at the end": "end/sharpness",
    "class separation": "separation",
}
"""Numbers of a run with its own optimizer, by the column that shows them."""

SPANS = ("step", "window")


def value(name: str) -> Value:
    """The function that takes a number out of what was measured along a run."""
    return lambda run: run.numbers[name]


def over_runs(runs: Runs, of: Value, labels: Sequence[str] = PUBLISHED) -> list[float]:
    """For each trial the mean over runs of the numbers that exist; NaN where none does."""
    trials = zip(*(runs[label] for label in labels), strict=True)
    means = []
    for trial in trials:
        kept = [number for number in map(of, trial) if math.isfinite(number)]
        means.append(fmean(kept) if kept else math.nan)
    return means


def tables(runs: Runs) -> dict[str, NumbersTable]:
    """OSGR at the same weights by rule and run, Table 1's parts, balance in both senses, and the runs."""
    theorem = {rule: f"theorem/{rule}" for rule in RULES}
    theorem |= {f"{name}, measured moments": key for name, key in MEASURED.items()}
    return {
        "osgr-theorem": _by_run(
            runs, "OSGR in the theorem's form, by preconditioner, at the same weights", theorem
        ),
        "osgr-step": _by_run(
            runs, "OSGR to first order of each rule's next step, momentum included, at the same weights",
            {rule: f"step/{rule}" for rule in RULES},
        ),
        "table-1": _averaged(
            runs, "Table 1 measured: OSGR with a part of the preconditioner alone, and with both",
            ("convergence", "alignment", "product"),
            {"Adam": "measured/adam/{}", "GENIE (eq. 5)": "measured/genie/{}"},
        ),
        "gap": _averaged(
            runs, "Gini coefficient of the shares of the gap 1 - R, mean over the weights of four optimizers",
            GRANULARITIES, {rule: f"gap/{{}}/{rule}" for rule in (*RULES, "released, one mask")},
        ),
        "moves": _own(
            runs, "Gini coefficient of weight changes, over one step and over a window of steps",
            {f"{unit}, {span}": f"moves/{span}/{unit}" for span in SPANS for unit in GRANULARITIES},
        ),
        "runs": _own(runs, "The runs themselves", OF_RUNS),
    }  # fmt: skip


def _by_run(runs: Runs, title: str, rows: dict[str, str]) -> NumbersTable:
    """A column for the weights of each optimizer's runs."""
    columns = tuple(f"weights of {label}" for label in PUBLISHED)

    def cells(name: str) -> list[tuple[float, float]]:
        return [cell([run.numbers[name] for run in runs[label]]) for label in PUBLISHED]

    return NumbersTable(title, columns, {row: cells(name) for row, name in rows.items()})


def _averaged(runs: Runs, title: str, columns: Sequence[str], rows: dict[str, str]) -> NumbersTable:
    """Means over the weights of all four; a row names its numbers with a place for the column."""
    cells = {
        row: [cell(over_runs(runs, value(name.format(column)))) for column in columns]
        for row, name in rows.items()
    }
    return NumbersTable(title, tuple(columns), cells)


def _own(runs: Runs, title: str, columns: dict[str, str]) -> NumbersTable:
    """A row for each optimizer's own runs."""
    cells = {
        label: [cell([run.numbers[name] for run in some]) for name in columns.values()]
        for label, some in runs.items()
    }
    return NumbersTable(title, tuple(columns), cells)


SCALE_FREE = OptimizerSetup("scale_free", "genie", {"scale_free": True})
THEOREM = OptimizerSetup("eq. 5", "genie", {"scale_free": True, "formulation": "theorem"})
"""What is not in the paper, and what its theory asks for; neither has a rate to tune."""

NO_MASK = "GENIE without mask"


def at_same_weights(
    runs: Runs, ours: str, theirs: dict[str, str], labels: Sequence[str] = PUBLISHED
) -> ClaimNumbers:
    """Ours minus each other at the weights of each run; for each trial the mean over runs."""

    def minus(other: str) -> Value:
        return lambda run: run.numbers[ours] - run.numbers[other]

    return {part: over_runs(runs, minus(other), labels) for part, other in theirs.items()}


def between_runs(
    runs: Runs, name: str, ours: str = "GENIE", theirs: Sequence[str] = PUBLISHED[:3]
) -> ClaimNumbers:
    """One optimizer's number minus that of each other, paired by trial."""
    pairs = {label: zip(runs[ours], runs[label], strict=True) for label in theirs}
    return {label: [a.numbers[name] - b.numbers[name] for a, b in some] for label, some in pairs.items()}


def defined(parts: ClaimNumbers) -> ClaimNumbers:
    """Without the numbers that do not exist; a part that lost some says so, one with fewer than two is gone.

    >>> defined({"SGD": [0.5, math.nan, 0.25], "Adam": [math.nan, 1.0, math.nan]})
    {'SGD (1 of 3 left out: no positive denominator)': [0.5, 0.25]}
    """
    kept = {}
    for part, numbers in parts.items():
        finite = [number for number in numbers if math.isfinite(number)]
        missing = len(numbers) - len(finite)
        if len(finite) >= 2:
            said = f" ({missing} of {len(numbers)} left out: no positive denominator)" if missing else ""
            kept[part + said] = finite
    return kept


def rank_correlation(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Spearman's, with mean ranks for ties; 0 when all of one are equal, which says nothing about the other.

    >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.5
    """
    frame = pl.DataFrame({"x": list(xs), "y": list(ys)})
    found = frame.select(pl.corr("x", "y", method="spearman")).item()
    return round(found, 12) if math.isfinite(found) else 0.0


def conjecture(runs: Runs) -> ClaimNumbers:
    """In each trial, over optimizers: even shares of the gap against accuracy on the domain left out.

    Both by weight and by group; 1 - Gini is how even they are.
    """
    trials = [list(trial) for trial in zip(*runs.values(), strict=True)]

    def correlation(trial: list[RunNumbers], unit: str) -> float:
        even = [1 - run.numbers[f"gap/{unit}/own"] for run in trial]
        return rank_correlation(even, [run.numbers["accuracy"] for run in trial])

    return {f"shares by {unit}": [correlation(t, unit) for t in trials] for unit in ("weight", "group")}


def _theorem(runs: Runs) -> dict[str, ClaimNumbers]:
    """The claims about the OSGR at the same weights."""
    sgd_adam = {"SGD": "theorem/SGD", "Adam": "theorem/Adam"}
    measured = {"SGD": "measured/sgd/product", "Adam": "measured/adam/product"}
    with_genie = {"GENIE": "theorem/released", **sgd_adam}
    steps = {"SGD": "step/SGD", "Adam": "step/Adam", "the averaged gradient": "step/averaged gradient"}
    near = over_runs(runs, lambda run: run.numbers["theorem/SGD"] - run.numbers["theorem/Adam"])
    return {
        "osgr-preconditioner": at_same_weights(runs, "theorem/released", sgd_adam),
        "osgr-trust": at_same_weights(runs, "measured/svag/product", measured),
        "osgr-corollary": at_same_weights(runs, "measured/eq. 5", measured),
        "theorem-osgr": at_same_weights(runs, "theorem/eq. 5", with_genie, ("GENIE",)),
        "osgr-step": at_same_weights(runs, "step/released", steps),
        "gsnr-variance": {"all four optimizers' weights": over_runs(runs, value("correlation"))},
        "sgd-adam": {"SGD minus Adam": near, "Adam minus SGD": [-difference for difference in near]},
        "uniform-weights": {o: over_runs(runs, value(f"weights/{o.lower()}")) for o in ("SGD", "Adam")},
        "dominance": {"SGD": over_runs(runs, value("dominance"))},
    }  # fmt: skip


def _balance(runs: Runs) -> dict[str, ClaimNumbers]:
    """The claims about balance: of weight changes, and of shares of the gap."""
    others = (*PUBLISHED, NO_MASK)
    sgd_adam = {"SGD": "gap/weight/SGD", "Adam": "gap/weight/Adam"}
    by_group = {"SGD": "gap/group/SGD", "Adam": "gap/group/Adam"}
    return {
        "balance": between_runs(runs, "moves/window/weight"),
        "balance-tensor": between_runs(runs, "moves/window/tensor"),
        "balance-group": between_runs(runs, "moves/window/group"),
        "balance-step": between_runs(runs, "moves/step/weight"),
        "balance-no-mask": between_runs(runs, "moves/window/weight", NO_MASK),
        "gap-balance": at_same_weights(runs, "gap/weight/released", sgd_adam),
        "gap-balance-group": at_same_weights(runs, "gap/group/released", by_group),
        "theorem-gap-balance": at_same_weights(runs, "gap/weight/eq. 5", sgd_adam),
        "theorem-balance": between_runs(runs, "moves/window/weight", THEOREM.label, others[:4]),
    }


def _generalization(runs: Runs) -> dict[str, ClaimNumbers]:
    """The conjecture, flatness, class separation and the PAC-Bayes bound."""
    adapted = [run.numbers["risk/adapted"] for run in runs["GENIE"]]
    plain = [run.numbers["risk/plain"] for run in runs["GENIE"]]
    return {
        "osgr": between_runs(runs, "definition"),
        "conjecture": conjecture(runs),
        "flatness": between_runs(runs, "end/sharpness"),
        "flatness-along": between_runs(runs, "sharpness"),
        "class-separation": between_runs(runs, "separation", theirs=("SGD", "Adam")),
        "pac-bayes-value": {"q of the theorem": adapted, "q = 1": plain},
        "pac-bayes-tighter": {"q = 1": [a - b for a, b in zip(adapted, plain, strict=True)]},
    }


NAMES = (
    "osgr", "osgr-preconditioner", "osgr-trust", "osgr-corollary", "theorem-osgr", "osgr-step", "gsnr-variance",
    "sgd-adam", "uniform-weights", "dominance", "balance", "balance-tensor", "balance-group", "balance-step",
    "balance-no-mask", "gap-balance", "gap-balance-group", "theorem-gap-balance", "theorem-balance",
    "conjecture", "flatness", "flatness-along", "class-separation", "pac-bayes-value", "pac-bayes-tighter",
)  # fmt: skip
"""The claims that one set of runs serves."""


def along_training(runs: ClaimRuns) -> list[ClaimNumbers]:
    """Train, measure along the way, and give the numbers of `NAMES`; tables go to ``runs.tables``."""
    without = replace(runs.tuned("GENIE").having(dropout=0.0), label=NO_MASK)
    measured = by_label(run_numbers(runs, (*map(runs.tuned, PUBLISHED), without, THEOREM)))
    runs.tables |= tables(measured)
    runs.notes.append(undefined_note(measured))
    claims = _theorem(measured) | _balance(measured) | _generalization(measured)
    return [defined(claims[name]) for name in NAMES]


def undefined_note(runs: Runs) -> str:
    """A sentence that counts the ratios without a positive denominator.

    >>> undefined_note({"SGD": [RunNumbers("SGD", 0, {}, {"step/Adam": 2})]})
    'Ratios without a positive denominator, left out of their means: step/Adam in 1 of 1 runs.'
    """
    every = [run for some in runs.values() for run in some]
    names = sorted({name for run in every for name in run.undefined})
    if not names:
        return f"Every ratio in {len(every)} runs had a positive denominator."
    counts = [f"{name} in {sum(name in run.undefined for run in every)} of {len(every)} runs" for name in names]
    return f"Ratios without a positive denominator, left out of their means: {', '.join(counts)}."


def by_label(runs: Iterable[RunNumbers]) -> Runs:
    """The runs of each label, in the order of trials."""
    grouped: Runs = {}
    for run in runs:
        grouped.setdefault(run.label, []).append(run)
    return {label: sorted(some, key=lambda run: run.seed) for label, some in grouped.items()}
