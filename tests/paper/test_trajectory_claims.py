"""From runs to claims and tables, on hand-written numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy import stats

from paper.claims import CLAIMS
from paper.measures import MEASURES
from paper.trajectories import RunNumbers
from paper.trajectory_claims import (
    at_same_weights,
    conjecture,
    defined,
    rank_correlation,
)
from paper.verdict import NumbersTable


def run(label: str, seed: int, **numbers: float) -> RunNumbers:
    return RunNumbers(label, seed, numbers, {})


def runs(**by_label_values: list[float]) -> Any:
    return {
        label: [run(label, seed, r=value, s=0.5) for seed, value in enumerate(values)]
        for label, values in by_label_values.items()
    }


def test_at_the_same_weights_the_runs_of_a_trial_are_averaged() -> None:
    some = runs(SGD=[0.1, 0.2], Adam=[0.3, math.nan], SAM=[0.5, 0.6], GENIE=[0.7, 1.0])
    found = at_same_weights(some, "r", {"other": "s"})
    assert found["other"] == pytest.approx([0.4 - 0.5, 0.6 - 0.5])  # the second trial has three numbers
    assert at_same_weights(some, "r", {"other": "s"}, ("Adam",))["other"][0] == pytest.approx(-0.2)


def test_what_does_not_exist_is_counted_in_the_name() -> None:
    found = defined({"a": [1.0, 2.0], "b": [1.0, math.nan, 3.0], "c": [math.nan, 1.0]})
    assert found == {"a": [1.0, 2.0], "b (1 of 3 left out: no positive denominator)": [1.0, 3.0]}


@pytest.mark.parametrize("seed", range(5))
def test_the_rank_correlation_is_scipys(seed: int) -> None:
    import random

    draw = random.Random(seed)
    x, y = ([float(draw.randint(0, 4)) for _ in range(9)] for _ in range(2))
    assert rank_correlation(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)


def test_the_conjecture_holds_where_even_runs_are_accurate() -> None:
    ginis, accuracies = [0.9, 0.5, 0.7], [60.0, 80.0, 70.0]
    some = {
        str(k): [RunNumbers(str(k), 0, {"gap/weight/own": g, "gap/group/own": 1 - g, "accuracy": a}, {})]
        for k, (g, a) in enumerate(zip(ginis, accuracies, strict=True))
    }
    assert conjecture(some) == {"shares by weight": [1.0], "shares by group": [-1.0]}


def test_a_table_shows_means_and_dashes() -> None:
    table = NumbersTable("Two", ("a", "b"), {"x": [(0.5, 0.25), (math.nan, math.nan)]})
    assert table.markdown() == "Two:\n\n|  | a | b |\n| --- | --- | --- |\n| x | 0.500 ± 0.250 | - |"
    assert table.as_json()["rows"] == {"x": [[0.5, 0.25], [None, None]]}


def test_every_claim_is_measured_once_and_says_what_would_change_it() -> None:
    measured = [name for names, _ in MEASURES for name in names]
    assert sorted(measured) == sorted(claim.name for claim in CLAIMS)
    for claim in CLAIMS:
        assert claim.change.endswith(".")
        assert "|" not in claim.says + claim.how + claim.change  # they are cells of a table
        assert claim.side in ("above", "below")
