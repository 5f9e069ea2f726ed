"""The statistics of a comparison: exact answers, twins by enumeration, and what intervals hold."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from genie_dg.results.frame import ResultsError
from genie_dg.results.stats import (
    Trial,
    best_of,
    blocks_of,
    budget,
    chances,
    interval,
    mean_best_of,
    resampled_means,
)


def test_resampled_means_follow_the_law() -> None:
    """Three draws against a constant: each value comes as often as enumeration says (6 standard errors)."""
    count = 40_000
    trial = Trial((1.0, 10.0, 100.0), (0.0, 0.0))
    means = resampled_means([[trial]], count, np.random.default_rng(0))
    for value, chance in zip((1.0, 10.0, 100.0), (1 / 27, 7 / 27, 19 / 27), strict=True):
        assert abs((means == value).mean() - chance) < 6 * math.sqrt(chance * (1 - chance) / count)


def test_trials_are_resampled_together_and_weighed_by_splits() -> None:
    """One draw each: the pairs of a trial stay together, so differences are means of those of the trials."""
    first = [Trial((0.9,), (0.8,)), Trial((0.2,), (0.0,))]
    means = resampled_means([first, [Trial((0.5,), (0.1,))]], 200, np.random.default_rng(1))
    assert set(means.round(9)) == {0.2, round(0.7 / 3, 9), round(0.8 / 3, 9)}


def test_the_interval_holds_a_known_difference_as_often_as_it_says() -> None:
    """Two rows differ by 0.03; quality, validation and test vary by draw, and trials by themselves.

    Of 150 repeats 142.5 are expected to hold it, with a standard error of 2.67 (binomial); four of these below
    are allowed. Above, all but one: the interval is wider than it must be where the search decides.
    """
    generator, held, repeats = np.random.default_rng(5), 0, 150

    def search(mean: float) -> tuple[float, ...]:
        quality = generator.normal(mean, 0.02, 10)
        test = quality + generator.normal(0, 0.02, 10) + generator.normal(0, 0.02)
        return tuple(test[np.argsort(quality + generator.normal(0, 0.02, 10))])

    for repeat in range(repeats):
        blocks = [[Trial(search(0.63), search(0.60)) for _ in range(5)] for _ in range(4)]
        found = interval(blocks, resamples=200, seed=repeat)
        assert found is not None
        held += found.low <= 0.03 <= found.high
    error = math.sqrt(0.05 * 0.95 * repeats)
    assert 0.95 * repeats - 4 * error < held
    assert held < repeats  # an interval that holds everything would say nothing


@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_the_best_of_k_is_the_mean_over_all_choices(count: int) -> None:
    generator = np.random.default_rng(count)
    validation, test = generator.random(count), generator.random(count)
    twin = [
        np.mean([test[max(some, key=lambda k: validation[k])] for some in combinations(range(count), taken)])
        for taken in range(1, count + 1)
    ]
    np.testing.assert_allclose(best_of(test[np.argsort(-validation)].tolist()), twin, rtol=1e-12)


def test_chances_add_up_to_one_and_impossible_numbers_are_refused() -> None:
    for taken in (1, 7, 20):
        assert chances(20, taken).sum() == pytest.approx(1)
    for taken in (0, 4):
        with pytest.raises(ResultsError, match=rf"^got taken={taken}; expected a whole number from 1 to 3\.$"):
            chances(3, taken)
    for splits in ([], [[0.5], []]):
        with pytest.raises(ResultsError, match="There is no split, or one without draws"):
            mean_best_of(splits)


def test_a_budget_with_holes_says_so() -> None:
    spent = budget({("d", (0,), 0): [5, 5], ("d", (0,), 1): [5], ("d", (1,), 0): [5, 5], ("e", (1,), 0): [5]})
    assert (spent.runs, spent.steps, spent.fewest, spent.most) == (6, 30, 1, 2)
    assert str(spent) == "1 to 2 draws x 2 trials x 3 test domains, not all of them: 6 runs, 30 steps"
    uneven = budget({("d", (0,), 0): [5], ("d", (0,), 1): [5], ("d", (1,), 0): [5]})
    assert str(uneven).startswith("1 draw x 2 trials x 2 test domains, not all of them: 3 runs")


def test_an_interval_needs_resamples_and_something_to_resample() -> None:
    assert interval([[Trial((0.5,), (0.4,))], [Trial((0.5,), (0.3,))]]) is None
    for resamples in (0, -1, 2.5):
        with pytest.raises(ResultsError, match=r"^got resamples=.*; expected a whole number of at least 1\.$"):
            interval([[Trial((0.5, 0.6), (0.4,))]], resamples)  # type: ignore[arg-type]


def test_blocks_are_the_trials_of_one_choice_of_test_domains() -> None:
    splits = [("d", (1,), 0), ("d", (0,), 1), ("d", (0,), 0), ("c", (0,), 0)]
    assert blocks_of(splits) == {
        ("c", (0,)): [("c", (0,), 0)],
        ("d", (0,)): [("d", (0,), 0), ("d", (0,), 1)],
        ("d", (1,)): [("d", (1,), 0)],
    }
    assert list(blocks_of(splits)) == [("c", (0,)), ("d", (0,)), ("d", (1,))]
