r"""Which contender to train on all domains, and how well it should do on a domain nobody has seen.

A contender is a configuration that was trained once for each domain left out. Its score for a domain v is its
accuracy there, at the record that validation chose; its mean score chooses the winner. The same runs choose and
measure, so the winner's own mean is too good. The forecast is not: for each domain v the contender is chosen
without looking at v, and its accuracy on v is noted. With mean m and deviation s of these n numbers, and t
Student's quantile with n - 1 degrees of freedom, a new domain is expected in

.. math:: m \pm t\, s\, \sqrt{1 + 1/n},

if it differs from the others as they differ from one another. With three or four domains that is wide, and it
should be.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import polars as pl

from genie_dg.check import one_of
from genie_dg.statistics import t_quantile

from .draws import Candidate, as_candidates
from .frame import ResultsError
from .select import best_records

CHOICE_RULES = ("leave-one-domain-out", "held-back")
"""What a contender is chosen by: its accuracy on domains left out, or on held-back data of those trained on."""


@dataclass(frozen=True)
class Contender:
    """A configuration, trained once for each domain left out.

    Args:
        name: optimizer and settings.
        config: of one of its runs; they differ in their test domains only.
        runs: by domain left out, the run.
    """

    name: str
    config: Any
    runs: Mapping[int, Candidate]

    @property
    def scores(self) -> dict[int, float]:
        """By domain left out, the accuracy there."""
        return {k: run.test for k, run in self.runs.items()}

    @property
    def validation(self) -> dict[int, float]:
        """By domain left out, the accuracy on held-back data of the domains trained on."""
        return {k: run.validation for k, run in self.runs.items()}

    @property
    def score(self) -> float:
        """The mean over the domains left out."""
        return statistics.fmean(self.scores.values())


@dataclass(frozen=True)
class Forecast:
    """What to expect on a domain nobody has seen.

    Args:
        expected: the mean over domains.
        low, high: the interval for one new domain; 0 and 1 where one or no domain could be left out.
        scores: by domain left out, the accuracy of the contender that was chosen without it.
        chosen: by domain left out, the name of that contender.
        level: the probability that the interval stands for.
    """

    expected: float
    low: float
    high: float
    scores: Mapping[int, float]
    chosen: Mapping[int, str]
    level: float


def contenders_of(frame: pl.DataFrame) -> list[Contender]:
    """The contenders among finished runs, in the order of their first run; each must have all domains."""
    by_config: dict[bytes, dict[int, Candidate]] = {}
    for run in as_candidates(best_records(frame)):
        shared = msgspec.json.encode({**msgspec.to_builtins(run.config), "test_domains": ()})
        (left_out,) = run.test_domains
        by_config.setdefault(shared, {})[left_out] = run
    everywhere = sorted(set().union(*by_config.values()))
    contenders = []
    for runs in by_config.values():
        config = next(iter(runs.values())).config
        name = contender_name(config)
        if missing := [k for k in everywhere if k not in runs]:
            raise ResultsError(
                f"{name} has no finished run without domain {missing[0]}; run the command again."
            )
        contenders.append(Contender(name, config, {k: runs[k] for k in everywhere}))
    return contenders


def contender_name(config: Any) -> str:
    """Optimizer and settings of a configuration.

    >>> from genie_dg.runs.config import RunConfig
    >>> contender_name(RunConfig("digits", (0,), optimizer="adam", optimizer_settings={"lr": 0.0005}))
    'adam lr=0.0005'
    """
    settings = (f"{name}={value}" for name, value in config.optimizer_settings.items())
    return " ".join([config.optimizer, *settings])


def choose_contender(contenders: Sequence[Contender], rule: str = CHOICE_RULES[0]) -> Contender:
    """The contender with the highest mean; at a tie the first."""
    one_of("rule", rule, CHOICE_RULES, ResultsError)
    by_score = rule == CHOICE_RULES[0]
    return max(
        contenders, key=lambda one: statistics.fmean((one.scores if by_score else one.validation).values())
    )


def forecast(contenders: Sequence[Contender], rule: str = CHOICE_RULES[0], level: float = 0.95) -> Forecast:
    """The accuracy to expect on a new domain, with an interval; see the formula of this module."""
    one_of("rule", rule, CHOICE_RULES, ResultsError)
    domains = list(contenders[0].runs)
    chosen = {v: max(contenders, key=partial(_without, domain=v, rule=rule)) for v in domains}
    scores = {v: chosen[v].scores[v] for v in domains}
    expected, low, high = statistics.fmean(scores.values()), 0.0, 1.0
    if len(domains) > 1:
        spread = statistics.stdev(scores.values()) * math.sqrt(1 + 1 / len(domains))
        reach = t_quantile(level, len(domains) - 1) * spread
        low, high = max(0.0, expected - reach), min(1.0, expected + reach)
    return Forecast(expected, low, high, scores, {v: one.name for v, one in chosen.items()}, level)


def _without(contender: Contender, domain: int, rule: str) -> float:
    """What a contender is worth to somebody who has never seen a domain."""
    others = [score for k, score in contender.scores.items() if k != domain]
    return statistics.fmean(others) if others and rule == CHOICE_RULES[0] else contender.validation[domain]
