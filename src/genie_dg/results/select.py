"""Which run, and which record of it, counts: DomainBed's three rules, as functions of records.

Fixed are data set, row (algorithm, optimizer, backbone, protocol), test domains T and trial. With S the
training domains, a run's value at a record and its score there are

    training-domain        value = mean of out_acc[s] over s in S
    leave-one-domain-out   value = mean over s in S of in_acc[s] of the run that leaves out T and s
    oracle                 value = mean of out_acc[t] over t in T
    score                  in_acc[t] for each t in T

The first record with the highest value stands for its run (the oracle of some protocols sees the last record
only: `ORACLE`). Then the run with the highest value is chosen; at a tie the one with the largest hparams seed.
Runs that are not complete take no part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from genie_dg.check import did_you_mean

from .schema import Numbers, ResultsError, Run, in_acc, out_acc

METHODS = ("training-domain", "leave-one-domain-out", "oracle")
"""The methods by name."""

ORACLE = {"domainbed": "last", "genie-paper": "best"}
"""Which records the oracle sees, by protocol: "last" for the last one only, "best" for all; else "last"."""


@dataclass(frozen=True, order=True)
class Row:
    """What a row of a table stands for; with SWAD the algorithm is called ``ERM+SWAD``."""

    algorithm: str
    optimizer: str
    backbone: str
    protocol: str


@dataclass(frozen=True, order=True)
class Case:
    """One choice to make: the runs of a row that leave out the same domains in the same trial."""

    dataset: str
    domains: tuple[str, ...]
    row: Row
    test_domains: tuple[int, ...]
    trial: int


@dataclass(frozen=True, eq=False)
class Chosen:
    """What was chosen.

    Args:
        run, step: the run, and the step of the record.
        value: what the method saw.
        scores: ``in_acc`` of the test domains, in order.
        draws: how many runs could have been chosen.
        note: which runs could not, and why; empty when all could.
    """

    run: Run
    step: int
    value: float
    scores: tuple[float, ...]
    draws: int
    note: str = ""


@dataclass(frozen=True)
class Missing:
    """Nothing could be chosen, for a reason."""

    reason: str


def row_of_run(run: Run) -> Row:
    """The row that a run belongs to."""
    config = run.config
    algorithm = f"{config.algorithm}+SWAD" if config.swad else config.algorithm
    return Row(algorithm, config.optimizer, config.backbone, config.protocol)


def cases(runs: Sequence[Run]) -> dict[Case, list[Run]]:
    """Runs by case; within a case by hparams seed, then by run_id."""
    found: dict[Case, list[Run]] = {}
    for run in runs:
        config = run.config
        case = Case(config.dataset, run.domains, row_of_run(run), config.test_domains, config.trial_seed)
        found.setdefault(case, []).append(run)
    for members in found.values():
        members.sort(key=lambda run: (run.config.hparams_seed, run.run_id))
    return found


def select(runs: Sequence[Run], method: str = "training-domain") -> dict[Case, Chosen | Missing]:
    """The choice of a method for every case that it is defined for.

    Leave-one-domain-out answers for cases with one test domain, the other two for all.
    """
    if method not in METHODS:
        raise ResultsError(
            f"{method!r} is no selection method; the choice is {', '.join(METHODS)}{did_you_mean(method, METHODS)}"
        )
    by_case = cases(runs)
    if method != "leave-one-domain-out":
        return {case: _alone(case, members, method) for case, members in by_case.items()}
    return {
        case: _in_turn(case, members, by_case)
        for case, members in by_case.items()
        if len(case.test_domains) == 1
    }


def mean_of(columns: Numbers, which: Sequence[int]) -> Numbers:
    """The mean of some columns, added from left to right.

    >>> mean_of(np.array([[0.5, 0.0, 1.0]]), [0, 2]).tolist()
    [0.75]
    """
    total = columns[:, which[0]]
    for k in which[1:]:
        total = total + columns[:, k]
    return total / len(which)


def _alone(case: Case, members: Sequence[Run], method: str) -> Chosen | Missing:
    """Training-domain and oracle: each run is judged by its own records."""
    candidates, left_out = _complete(members)
    sources = [k for k in range(len(case.domains)) if k not in case.test_domains]
    if method == "training-domain" and not sources:
        return Missing("no domain was trained on")
    last_only = method == "oracle" and ORACLE.get(case.row.protocol.partition("/")[0], "last") == "last"
    best: tuple[float, Run, Numbers] | None = None
    for run, numbers in candidates:
        if last_only:
            numbers = numbers[-1:]
        values = mean_of(out_acc(numbers), sources if method == "training-domain" else case.test_domains)
        at = int(values.argmax())
        if best is None or values[at] >= best[0]:
            best = float(values[at]), run, numbers[at]
    return _answer(case, best, len(candidates), left_out)


def _in_turn(case: Case, members: Sequence[Run], by_case: Mapping[Case, list[Run]]) -> Chosen | Missing:
    """Leave-one-domain-out: a run is judged by its partners, which leave out one more domain each."""
    if len(case.domains) < 3:
        return Missing("leave-one-domain-out needs at least two training domains")
    candidates, left_out = _complete(members)
    partners: dict[int, dict[str, Numbers]] = {}
    for other in range(len(case.domains)):
        if other not in case.test_domains:
            pair = tuple(sorted((*case.test_domains, other)))
            of_pair = by_case.get(Case(case.dataset, case.domains, case.row, pair, case.trial), [])
            partners[other] = {draw_of(run): numbers for run, numbers in _complete(of_pair)[0]}
    best: tuple[float, Run, Numbers] | None = None
    draws, lacking = 0, []
    for run, numbers in candidates:
        draw = draw_of(run)
        absent = [case.domains[k] for k, found in partners.items() if draw not in found]
        if absent:
            lacking.append((run.config.hparams_seed, ", ".join(absent)))
            continue
        own, values = _common(numbers, {k: found[draw] for k, found in partners.items()})
        if not len(own):
            lacking.append((run.config.hparams_seed, "any domain at the same step"))
            continue
        draws += 1
        at = int(values.argmax())
        if best is None or values[at] >= best[0]:
            best = float(values[at]), run, own[at]
    told = [left_out] if left_out else []
    if lacking:
        seed, names = lacking[0]
        count = (
            f"{len(lacking)} of {len(candidates)} draws lack complete runs that also leave out one more domain"
        )
        told.append(f"{count} (hparams seed {seed}: {names})")
    return _answer(case, best, draws, "; ".join(told))


def _common(numbers: Numbers, others: Mapping[int, Numbers]) -> tuple[Numbers, Numbers]:
    """The records of a run at the steps that all partners have, and the value at each."""
    steps = numbers[:, 0]
    for partner in others.values():
        steps = np.intersect1d(steps, partner[:, 0], assume_unique=True)
    total = np.zeros(len(steps))
    for k, partner in others.items():
        total = total + in_acc(partner)[np.searchsorted(partner[:, 0], steps), k]
    return numbers[np.searchsorted(numbers[:, 0], steps)], total / len(others)


def _answer(case: Case, best: tuple[float, Run, Numbers] | None, draws: int, told: str) -> Chosen | Missing:
    if best is None:
        return Missing(told or "no run")
    value, run, record = best
    scores = in_acc(record[None])[0]
    return Chosen(run, int(record[0]), value, tuple(float(scores[k]) for k in case.test_domains), draws, told)


def _complete(members: Sequence[Run]) -> tuple[list[tuple[Run, Numbers]], str]:
    """The runs that may be chosen, with the records that are judged, and words for the others."""
    usable: list[tuple[Run, Numbers]] = []
    failure, unfinished, empty = "", 0, 0
    for run in members:
        numbers = run.judged
        if not run.done:
            unfinished += 1
            failure = run.failures[-1] if run.failures else failure
        elif numbers is None or not len(numbers):
            empty += 1
        else:
            usable.append((run, numbers))
    if len(usable) == len(members):
        return usable, ""
    words = [f"{unfinished} of {len(members)} runs unfinished"] if unfinished else []
    words += [f"{empty} of {len(members)} runs without records"] if empty else []
    words += [f"the last failure was: {failure.splitlines()[0][:120].rstrip('.')}"] if failure.strip() else []
    return usable, ", ".join(words)


def draw_of(run: Run) -> str:
    """What partners of leave-one-domain-out have in common: hparams seed, settings and length."""
    c = run.config
    settings = [dict(c.algorithm_settings), dict(c.optimizer_settings)]
    return json.dumps(
        [c.hparams_seed, *settings, c.batch_size, c.dropout, c.steps], sort_keys=True, default=str
    )
