r"""Which candidate to train on all domains, and how well it should do on a domain nobody has seen.

A candidate is a configuration that was trained once for each domain left out. Its score for a domain v is its
accuracy there, at the record that validation chose; its mean score chooses the winner. The same runs choose and
measure, so the winner's own mean is too good. The forecast is not: for each domain v the candidate is chosen
without looking at v, and its accuracy on v is noted. With mean m and deviation s of these n numbers, and t
Student's quantile with n - 1 degrees of freedom, a new domain is expected in

.. math:: m \pm t\, s\, \sqrt{1 + 1/n},

if it differs from the others as they differ from one another. With three or four domains that is wide, and it
should be.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from genie_dg.check import one_of
from genie_dg.statistics import t_quantile

from .frame import ResultsError
from .select import best_records

RULES = ("leave-one-domain-out", "held-back")
"""What a candidate is chosen by: its accuracy on domains left out, or on held-back data of those trained on."""


@dataclass(frozen=True)
class Candidate:
    """A configuration, trained once for each domain left out.

    Args:
        config: what its runs have in common, as JSON without the test domains.
        name: optimizer and settings.
        scores: by domain left out, the accuracy there.
        validation: by domain left out, the accuracy on held-back data of the domains trained on.
        steps: by domain left out, the step of the record that validation chose.
    """

    config: str
    name: str
    scores: Mapping[int, float]
    validation: Mapping[int, float]
    steps: Mapping[int, int]

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
        scores: by domain left out, the accuracy of the candidate that was chosen without it.
        chosen: by domain left out, the name of that candidate.
        level: the probability that the interval stands for.
    """

    expected: float
    low: float
    high: float
    scores: Mapping[int, float]
    chosen: Mapping[int, str]
    level: float


def candidates_of(frame: pl.DataFrame) -> list[Candidate]:
    """The candidates among finished runs, in the order of their first run; each must have all domains."""
    runs: dict[str, dict[int, tuple[float, float, int]]] = {}
    for row in best_records(frame).iter_rows(named=True):
        config = json.loads(row["config"])
        (left_out,) = config.pop("test_domains")
        shared = runs.setdefault(json.dumps(config, sort_keys=True), {})
        shared[left_out] = (row["score"], row["value"], row["chosen_step"])
    everywhere = set().union(*(set(by_domain) for by_domain in runs.values()))
    for config, by_domain in runs.items():
        if missing := sorted(everywhere - set(by_domain)):
            raise ResultsError(
                f"{name_of(config)} has no finished run without domain {missing[0]}; start the same command "
                "again."
            )
    return [
        Candidate(
            config,
            name_of(config),
            {k: of[k][0] for k in sorted(of)},
            {k: of[k][1] for k in sorted(of)},
            {k: of[k][2] for k in sorted(of)},
        )
        for config, of in runs.items()
    ]


def name_of(config: str) -> str:
    """Optimizer and settings of a configuration in JSON.

    >>> name_of('{"optimizer": "adam", "optimizer_settings": {"lr": 0.0005}}')
    'adam lr=0.0005'
    """
    data = json.loads(config)
    settings = (f"{name}={value}" for name, value in data["optimizer_settings"].items())
    return " ".join([data["optimizer"], *settings])


def choose(candidates: Sequence[Candidate], rule: str = RULES[0]) -> Candidate:
    """The candidate with the highest mean; at a tie the first."""
    one_of("rule", rule, RULES, ResultsError)
    return max(candidates, key=lambda one: statistics.fmean(_seen(one, rule).values()))


def forecast(candidates: Sequence[Candidate], rule: str = RULES[0], level: float = 0.95) -> Forecast:
    """The accuracy to expect on a new domain, with an interval; see the formula of this module."""
    one_of("rule", rule, RULES, ResultsError)
    domains = list(candidates[0].scores)
    chosen = {v: max(candidates, key=_without(v, rule)) for v in domains}
    scores = {v: chosen[v].scores[v] for v in domains}
    expected, low, high = statistics.fmean(scores.values()), 0.0, 1.0
    if len(domains) > 1:
        spread = statistics.stdev(scores.values()) * math.sqrt(1 + 1 / len(domains))
        reach = t_quantile(level, len(domains) - 1) * spread
        low, high = max(0.0, expected - reach), min(1.0, expected + reach)
    return Forecast(expected, low, high, scores, {v: one.name for v, one in chosen.items()}, level)


def _seen(candidate: Candidate, rule: str) -> Mapping[int, float]:
    return candidate.scores if rule == RULES[0] else candidate.validation


def _without(domain: int, rule: str) -> Callable[[Candidate], float]:
    """What a candidate is worth to somebody who has never seen a domain."""

    def worth(candidate: Candidate) -> float:
        if rule == RULES[0]:
            others = [score for k, score in candidate.scores.items() if k != domain]
            if others:
                return statistics.fmean(others)
        return candidate.validation[domain]

    return worth
