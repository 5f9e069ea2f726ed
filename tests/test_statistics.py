"""Student's t against scipy, to ten digits."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from genie_dg.check import InputError
from genie_dg.statistics import probability_within, t_quantile


@pytest.mark.parametrize("level", [0.01, 0.5, 0.8, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 7, 10, 19, 30, 99, 1000, 4999])
def test_quantiles_are_those_of_scipy(level: float, freedom: int) -> None:
    assert t_quantile(level, freedom) == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=1e-10)


@pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 4.0, 60.0])
@pytest.mark.parametrize("freedom", [1, 2, 3, 6, 11, 250])
def test_probabilities_are_those_of_scipy(t: float, freedom: int) -> None:
    inside = 1 - 2 * stats.t.sf(t, freedom)
    assert probability_within(t, freedom) == pytest.approx(inside, abs=1e-12)


@pytest.mark.parametrize("level", [0.0, 1.0, -0.5, math.nan, 95])
def test_a_level_is_between_0_and_1(level: float) -> None:
    with pytest.raises(InputError, match=rf"^got level={level}; expected a number above 0 and below 1\.$"):
        t_quantile(level, 3)


@pytest.mark.parametrize("freedom", [0, -1, 2.5])
def test_degrees_of_freedom_are_a_count(freedom: int) -> None:
    with pytest.raises(InputError, match=rf"^got freedom={freedom}; expected a whole number of at least 1\.$"):
        t_quantile(0.95, freedom)
