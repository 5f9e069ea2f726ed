"""The statistics of a comparison: exact answers, twins by enumeration, and what intervals hold."""

from __future__ import annotations

import math
from itertools import combinations, product

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
    selection_law,
)


@pytest.mark.parametrize("draws", [1, 2, 3, 4])
def test_the_law_of_selection_is_that_of_all_resamples(draws: int) -> None:
    counts = np.zeros(draws)
    for resample in product(range(draws), repeat=draws):
        counts[max(resample)] += 1
    np.testing.assert_allclose(selection_law(draws), counts / draws**draws, atol=1e-15)


def test_resampled_means_follow_the_law() -> None:
    """Three draws against a constant: each value comes as often as enumeration says (6 standard errors)."""
    count = 40_000
    trial = Trial((1.0, 10.0, 100.0), (0.0, 0.0))
    means = resampled_means([[trial]], count, np.random.default_rng(0))
    for value, chance in zip((1.0, 10.0, 100.0), selection_law(3), strict=True):
        assert abs((means == value).mean() - chance) < 6 * math.sqrt(chance * (1 - chance) / count)


def test_trials_are_resampled_together_and_weighed_by_splits() -> None:
    """One draw each: the pairs of a trial stay together, so differences are means of those of the trials."""
    first = [Trial((0.9,), (0.8,)), Trial((0.2,), (0.0,))]
    means = resampled_means([first, [Trial((0.5,), (0.1,))]], 200, np.random.default_rng(1))
    assert set(means.round(9)) == {0.2, round(0.7 / 3, 9), round(0.8 / 3, 9)}


def test_splits_with_different_numbers_of_draws_are_resampled() -> None:
    trials = [Trial((0.1, 0.2, 0.3), (0.0,)), Trial((0.5,), (0.0, 0.0))]
    means = resampled_means([trials], 40_000, np.random.default_rng(2))
    assert np.isfinite(means).all()
    assert set((2 * means).round(9)) == {0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0}


def test_the_interval_of_a_row_with_itself_holds_zero_in_its_middle() -> None:
    generator = np.random.default_rng(3)
    values = [tuple(generator.uniform(0.5, 0.9, 20)) for _ in range(12)]
    blocks = [[Trial(v, v) for v in values[k : k + 3]] for k in range(0, 12, 3)]
    found = interval(blocks, resamples=20_000)
    assert found is not None
    assert found.low < 0 < found.high
    assert abs(found.low + found.high) < 0.06 * (found.high - found.low)


def noise_draws(generator: np.random.Generator, mean: float) -> tuple[float, ...]:
    """Twenty draws whose validation says nothing: in the order of validation, tests are in random order."""
    return tuple(generator.normal(mean, 0.02, 20))


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


def test_a_search_among_pure_noise_gains_nothing_and_the_interval_says_so() -> None:
    """The best draw of a search looks better by two standard deviations; its selected draw is not.

    An interval that keeps the selected draws fixed takes luck for a gain far more often than one in twenty; the
    one that repeats the selection does not.
    """
    generator, repeats = np.random.default_rng(6), 100
    looks, claims, naive_claims = [], 0, 0
    for repeat in range(repeats):
        trials = [Trial(noise_draws(generator, 0.6), noise_draws(generator, 0.6)[:1]) for _ in range(3)]
        looks.append(np.mean([max(t.row) - t.baseline[0] for t in trials]))
        found = interval([trials], resamples=300, seed=repeat)
        naive = interval([[Trial(t.row[-1:], t.baseline[-1:]) for t in trials]], resamples=300, seed=repeat)
        assert found is not None
        assert naive is not None
        claims += not found.low <= 0 <= found.high
        naive_claims += not naive.low <= 0 <= naive.high
    assert np.mean(looks) > 0.03
    assert naive_claims > 15
    assert claims < naive_claims / 2


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


def test_the_mean_of_the_best_of_k_ends_at_the_shortest_split() -> None:
    np.testing.assert_allclose(mean_best_of([[0.9, 0.6, 0.3], [0.5, 0.7]]), [0.6, 0.65 + 0.0])
    assert best_of([0.25]).tolist() == [0.25]
