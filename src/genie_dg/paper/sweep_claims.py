"""Claims at the paper's scale: the runs that sweeps of ``experiments/`` left, read back into numbers.

The sweeps of a table are looked for where its page tells to put them, ``<out>/paper/<table>/runs``. A number is
the difference of two rows of the table for one data set, test domains and trial; in each, training-domain
validation has chosen the draw. Pairs of which one side is not done are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from genie_dg.results.select import Case, SelectedRun, select

from .claim_runs import ClaimNumbers
from .claims import Claim
from .experiments import BETA, EXPERIMENTS, P
from .request import Request
from .runs import ExperimentRuns, read_experiment, seconds_until
from .tables import row_name, sweep_commands


class Pair(NamedTuple):
    """What two runs that are compared share."""

    dataset: str
    test_domains: tuple[int, ...]
    trial: int


Chosen = dict[str, dict[Pair, tuple[Case, SelectedRun]]]
"""By the row of the table, the run that counts in each pair."""


@dataclass(frozen=True)
class SweepClaim:
    """Which rows of a table a claim compares.

    Args:
        experiment: of which the sweeps are.
        parts: by the name of a part of the claim, our row and theirs.
        relative: whether the number is ours over theirs, of seconds, and not ours minus theirs, of accuracies.
    """

    experiment: str
    parts: dict[str, tuple[str, str]]
    relative: bool = False


def _against(ours: str, theirs: Iterable[str], prefix: str = "") -> dict[str, tuple[str, str]]:
    return {f"{prefix}{label}": (ours, label) for label in theirs}


GRID = (*(f"GENIE p={value}" for value in P), *(f"GENIE beta={value}" for value in BETA))
OTHERS = ("SGD", "Adam", "SAM")

FROM_SWEEPS = {
    "accuracy": SweepClaim("optimizers", _against("GENIE", OTHERS)),
    "cost": SweepClaim("iterations", _against("GENIE", OTHERS), relative=True),
    "preconditioning": SweepClaim("ablation", {"Adam": ("precondition", "none")}),
    "noise-and-mask": SweepClaim(
        "ablation", {"preconditioning alone": ("precondition+noise+mask", "precondition")}
    ),
    "robust": SweepClaim(
        "sensitivity",
        {f"{cell} against {label}": (cell, label) for cell in GRID for label in OTHERS},
    ),
    "algorithms": SweepClaim(
        "integration",
        {
            f"{algorithm} against {label}": (f"{algorithm}+GENIE", f"{algorithm}+{label}")
            for algorithm in ("CORAL", "RSC")
            for label in ("Adam", "AdamW", "SGD", "SAM")
        },
    ),
    "one-source": SweepClaim("single-source", _against("GENIE", ("Adam", "AdamW", "SGD", "SAM"))),
}
"""By the name of the claim. A part whose rows have no runs is left out."""


@dataclass
class SweepNumbers:
    """What finished sweeps say.

    Args:
        numbers: of each claim that has two pairs or more.
        trials: that were paired.
        runs: those that count, with what identifies them.
        notes: how far each table's sweeps are, and what could not be read.
    """

    numbers: dict[str, ClaimNumbers] = field(default_factory=dict)
    trials: list[int] = field(default_factory=list)
    runs: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def sweep_numbers(request: Request) -> SweepNumbers:
    """Read the sweeps of all tables that claims are about; runs nothing."""
    found = SweepNumbers()
    tables: dict[str, Chosen] = {}
    for name, claim in FROM_SWEEPS.items():
        if request.only and name not in request.only:
            continue
        if claim.experiment not in tables:
            runs = read_experiment(EXPERIMENTS[claim.experiment], request.out.parent / claim.experiment)
            found.notes += _notes(claim.experiment, runs)
            tables[claim.experiment] = chosen_runs(claim.experiment, runs)
        chosen = tables[claim.experiment]
        numbers = compared(claim, chosen)
        if numbers:
            found.numbers[name] = numbers
            _keep(found, claim, chosen)
    return found


def chosen_runs(experiment: str, runs: ExperimentRuns) -> Chosen:
    """The run that counts for each row and pair of a table."""
    chosen: Chosen = {}
    for part in runs.grids:
        for case, choice in select(part.frame).items():
            if not choice.missing:
                row = row_name(experiment, part, case.algorithm, case.optimizer)
                pair = Pair(case.dataset, case.test_domains, case.trial)
                chosen.setdefault(row, {})[pair] = case, choice
    return chosen


def compared(claim: SweepClaim, chosen: Chosen) -> ClaimNumbers:
    """The numbers of a claim, one for each pair of which both sides are done; parts with fewer than two go."""
    numbers: ClaimNumbers = {}
    for part, (ours, theirs) in claim.parts.items():
        mine, other = chosen.get(ours, {}), chosen.get(theirs, {})
        measured = [_number(claim, mine[pair][1], other[pair][1]) for pair in sorted(mine) if pair in other]
        values = [value for value in measured if value is not None]
        if len(values) >= 2:
            numbers[part] = values
    return numbers


def _number(claim: SweepClaim, ours: SelectedRun, theirs: SelectedRun) -> float | None:
    """Points of difference, or how many times as long; ``None`` where a run was not timed."""
    if not claim.relative:
        return 100 * (ours.score - theirs.score)
    last = max(EXPERIMENTS[claim.experiment].levels["paper"])
    mine, other = seconds_until(ours.folder, last), seconds_until(theirs.folder, last)
    return mine / other if mine and other else None


def _keep(found: SweepNumbers, claim: SweepClaim, chosen: Chosen) -> None:
    """Remember the runs behind the numbers of a claim."""
    for row in {row for rows in claim.parts.values() for row in rows}:
        for case, choice in chosen.get(row, {}).values():
            what = {"dataset": case.dataset, "test_domains": list(case.test_domains), "trial_seed": case.trial}
            found.runs[choice.run] = {**what, "algorithm": case.algorithm, "optimizer": case.optimizer}
    found.trials = sorted({run["trial_seed"] for run in found.runs.values()})


def _notes(experiment: str, runs: ExperimentRuns) -> list[str]:
    done = sum(int(part.frame["done"].sum()) for part in runs.grids)
    planned = sum(part.planned for part in runs.grids)
    told = [f"- {experiment}: {done:,} of {planned:,} runs of its sweeps are done"] if planned else []
    return [*told, *(f"- {problem}" for problem in runs.problems)]


def to_do(claim: Claim, request: Request) -> str:
    """The commands that would measure a claim at the paper's scale."""
    source = FROM_SWEEPS.get(claim.name)
    if source is None:
        return claim.paper
    experiment = EXPERIMENTS[source.experiment]
    commands = sweep_commands(experiment, request.out.parent / experiment.name, request.root)
    again = f"{request.command('claims')} --out {request.out.parent.parent}"
    return "\n".join([*(f"{command}  # {count:,} runs" for command, count in commands.items()), again])
