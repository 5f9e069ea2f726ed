"""The width of the range of learning rates: exact on parabolas, and as by a plain fit."""

from __future__ import annotations

import math

import numpy as np
import pytest

from genie_dg.results.draws import Candidate
from genie_dg.results.sensitivity import rate_of, width
from genie_dg.results.stats import SplitKey

from .build import config


def draw(trial: int, number: int, lr: object, test: float) -> Candidate:
    what = config([0], optimizer_settings={"lr": lr})
    return Candidate("ERM + adam", "d", (trial % 2,), trial, number, 0.5, test, config=what)


def splits_of(points: dict[int, list[tuple[float, float]]]) -> dict[SplitKey, list[Candidate]]:
    """By trial, (log10 of the rate, accuracy)."""
    return {
        ("d", (trial % 2,), trial): [draw(trial, k, 10**x, y) for k, (x, y) in enumerate(some)]
        for trial, some in points.items()
    }


def test_a_parabola_has_its_width_whatever_the_height_of_each_split() -> None:
    """The curve h - 0.04 (x + 3)^2 is a point below its top at x = -3 -/+ 0.5."""
    random = np.random.default_rng(0)
    points = {
        trial: [(x, 0.5 + trial / 20 - 0.04 * (x + 3) ** 2) for x in random.uniform(-4, -2, 5)]
        for trial in range(4)
    }
    found = width(splits_of(points), resamples=50)
    assert (found.decades, found.low, found.high) == pytest.approx((1.0, 1.0, 1.0))
    assert (found.best, found.runs) == (pytest.approx(1e-3), 20)
    assert width(splits_of(points), within=0.04, resamples=2).decades == pytest.approx(2.0)


@pytest.mark.parametrize("seed", range(5))
def test_the_fit_is_that_of_a_plain_least_squares_with_one_column_a_split(seed: int) -> None:
    random = np.random.default_rng(seed)
    points = {
        trial: [
            (x, float(random.normal(0.6 - 0.05 * (x + 3) ** 2, 0.01)))
            for x in random.uniform(-4, -2, int(random.integers(2, 6)))
        ]
        for trial in range(6)
    }
    flat = [(trial, x, y) for trial, some in points.items() for x, y in some]
    columns = [[float(trial == t) for t in range(6)] + [x, x * x] for trial, x, _ in flat]
    fitted = np.linalg.lstsq(np.array(columns), np.array([y for *_, y in flat]), rcond=None)[0]
    found = width(splits_of(points), resamples=20)
    assert found.decades == pytest.approx(2 * math.sqrt(0.01 / -fitted[-1]))
    assert found.best == pytest.approx(10 ** (-fitted[-2] / (2 * fitted[-1])))
    assert found.low <= found.decades <= found.high


def test_without_a_top_the_width_is_infinite_and_without_rates_unknown() -> None:
    rising = {trial: [(x, 0.5 + 0.1 * x * x) for x in (-1.0, 0.0, 1.0)] for trial in (0, 2)}
    assert width(splits_of(rising), resamples=5).decades == math.inf
    one = {("d", (0,), 0): [draw(0, 0, 0.1, 0.5)]}
    assert math.isnan(width(one, resamples=5).decades)
    assert rate_of(draw(0, 0, "fast", 0.5)) is None
    assert math.isnan(width({("d", (0,), 0): [draw(0, k, None, 0.5) for k in range(3)]}, resamples=5).low)
