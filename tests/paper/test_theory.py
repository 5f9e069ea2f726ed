"""The Gaussian toy against fractions and sampled draws, and each claim of the paper with its limits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from genie_dg.diagnostics import MeasurementError, claims, theory
from paper.theory import PRECONDITIONERS, genie_osgr, osgr, signal_to_noise, weights

SGD, ADAM, SVAG, GENIE = (PRECONDITIONERS[name] for name in ("sgd", "adam", "svag", "genie"))


def tensor(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@dataclasses.dataclass(frozen=True)
class Toy:
    mean: Tensor
    variance: Tensor
    n: float

    def osgr(self, preconditioner: theory.Preconditioner) -> float:
        return osgr(self.mean, self.variance, preconditioner, self.n)

    def weights(self, preconditioner: theory.Preconditioner) -> Tensor:
        return weights(self.mean, self.variance, preconditioner, self.n)

    @property
    def gsnr(self) -> Tensor:
        return signal_to_noise(self.mean, self.variance)


positive = st.floats(1e-3, 1e3)
fair = settings(deadline=None, derandomize=True)
many = settings(fair, max_examples=300)


@st.composite
def toys(draw: st.DrawFn, most: int = 6) -> Toy:
    size = draw(st.integers(1, most))
    sign = draw(st.lists(st.sampled_from([-1.0, 1.0]), min_size=size, max_size=size))
    mean = draw(st.lists(positive, min_size=size, max_size=size))
    variance = draw(st.lists(positive, min_size=size, max_size=size))
    return Toy(tensor(mean) * tensor(sign), tensor(variance), draw(st.floats(0.5, 1e4)))


def fixed(p: list[float]) -> theory.Preconditioner:
    return lambda mean, variance, n: tensor(p)


def twin_osgr(mean: list[Fraction], variance: list[Fraction], p: list[Fraction], n: int) -> Fraction:
    """R in the form of the theorem, 1 - 1/n sum W / (r + 1/n), in exact arithmetic."""
    second = [m * m + v / n for m, v in zip(mean, variance, strict=True)]
    total = sum((a * b for a, b in zip(p, second, strict=True)), Fraction(0))
    gap = Fraction(0)
    for a, s, m, v in zip(p, second, mean, variance, strict=True):
        gap += a * s / total / (m * m / v + Fraction(1, n))
    return 1 - gap / n


TWIN_FACTORS: dict[str, Callable[[Fraction, Fraction, int], Fraction]] = {
    "sgd": lambda m, v, n: Fraction(1),
    "adam": lambda m, v, n: Fraction(1 / math.sqrt(m * m + v / n)),
    "svag": lambda m, v, n: n * (m * m / v) / (n * (m * m / v) + 1),
    "genie": lambda m, v, n: (m * m / v + Fraction(1, n)) / (m * m + v / n),
}


@pytest.mark.parametrize("name", PRECONDITIONERS)
@pytest.mark.parametrize("n", [1, 3, 64])
def test_ratio_and_weights_match_exact_fractions(name: str, n: int) -> None:
    mean = [Fraction(1, 2), Fraction(-3), Fraction(2, 7)]
    variance = [Fraction(5), Fraction(1, 3), Fraction(1, 10)]
    p = [TWIN_FACTORS[name](m, v, n) for m, v in zip(mean, variance, strict=True)]
    m, v = tensor([float(x) for x in mean]), tensor([float(x) for x in variance])
    torch.testing.assert_close(
        PRECONDITIONERS[name](m, v, n), tensor([float(x) for x in p]), rtol=1e-12, atol=0
    )
    assert osgr(m, v, PRECONDITIONERS[name], n) == pytest.approx(
        float(twin_osgr(mean, variance, p, n)), rel=1e-12
    )
    share = [a * (b * b + c / n) for a, b, c in zip(p, mean, variance, strict=True)]
    expected = tensor([float(s / sum(share)) for s in share])
    torch.testing.assert_close(weights(m, v, PRECONDITIONERS[name], n), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", PRECONDITIONERS)
def test_ratio_is_the_expected_loss_change_on_new_data_over_that_on_old(name: str) -> None:
    """The definition itself: two draws of n samples each, one preconditioned step, many times over."""
    mean, variance, n = tensor([1.0, 0.3, -0.5]), tensor([2.0, 0.5, 4.0]), 5
    generator = torch.Generator().manual_seed(1)
    samples = torch.randn(2, 40_000, n, 3, generator=generator, dtype=torch.float64)
    old, new = (mean + variance.sqrt() * samples).mean(2)
    step = PRECONDITIONERS[name](mean, variance, n) * old
    measured = (step * new).sum(1).mean() / (step * old).sum(1).mean()
    assert osgr(mean, variance, PRECONDITIONERS[name], n) == pytest.approx(measured.item(), abs=0.01)


@fair
@given(toys())
def test_ratio_lies_in_the_unit_interval_and_weights_add_up_to_one(toy: Toy) -> None:
    for p in PRECONDITIONERS.values():
        assert 0 <= toy.osgr(p) <= 1
        assert toy.weights(p).sum().item() == pytest.approx(1)


@fair
@given(toys(), st.floats(1e-6, 1e6))
def test_only_the_ratios_of_the_preconditioner_matter(toy: Toy, scale: float) -> None:
    for p in PRECONDITIONERS.values():
        scaled = toy.osgr(lambda mean, variance, n, p=p: scale * p(mean, variance, n))
        assert scaled == pytest.approx(toy.osgr(p), rel=1e-12)


@fair
@given(toys())
def test_the_closed_form_is_the_ratio_of_the_theorem_and_its_factor_is_the_inverse_variance(toy: Toy) -> None:
    assert genie_osgr(toy.gsnr, toy.n) == pytest.approx(toy.osgr(GENIE), rel=1e-9)
    torch.testing.assert_close(GENIE(toy.mean, toy.variance, toy.n), 1 / toy.variance, rtol=1e-12, atol=0)


@fair
@given(toys())
def test_genie_makes_the_shares_of_the_gap_uniform_and_not_the_weights(toy: Toy) -> None:
    x = toy.gsnr + 1 / toy.n
    torch.testing.assert_close(toy.weights(GENIE), x / x.sum())
    gap = toy.weights(GENIE) / (toy.n * x)
    torch.testing.assert_close(
        gap, torch.full_like(gap, (1 - toy.osgr(GENIE)) / len(gap)), rtol=1e-6, atol=1e-9
    )


@fair
@given(toys())
def test_uniform_weights_are_sufficient_by_jensen(toy: Toy) -> None:
    """1 / E[g_D^2] makes the weights uniform, so the theorem's ratio is at least its ratio."""
    balanced = fixed((1 / theory.second_moment(toy.mean, toy.variance, toy.n)).tolist())
    assert claims.uniform_weights_hold(toy.mean, toy.variance, balanced, toy.n)
    assert toy.osgr(GENIE) >= toy.osgr(balanced) - 1e-12
    x = toy.gsnr + 1 / toy.n
    assert (1 / x).mean() >= 1 / x.mean() - 1e-12


@fair
@given(toys(), st.floats(0.05, 0.95))
def test_sgd_with_uniform_weights_is_never_above_genie(toy: Toy, share: float) -> None:
    """One second moment for all; each parameter has its own share of signal in it."""
    size = toy.mean.numel()
    parts = torch.linspace(share / size, share, size, dtype=torch.float64)
    even = Toy(parts.sqrt(), toy.n * (1 - parts), toy.n)
    assert claims.uniform_weights_hold(even.mean, even.variance, SGD, even.n)
    assert even.osgr(GENIE) >= even.osgr(SGD) - 1e-12


@fair
@given(toys())
def test_the_sign_of_the_excess_decides_and_for_sgd_it_is_a_covariance(toy: Toy) -> None:
    for p in (SGD, ADAM, SVAG):
        excess = claims.gsnr_excess(toy.mean, toy.variance, p, toy.n)
        average = toy.gsnr.mean().item() + excess
        assert toy.osgr(p) == pytest.approx(toy.n * average / (toy.n * average + 1), rel=1e-9)
        margin = toy.osgr(GENIE) - toy.osgr(p)
        assert abs(margin) < 1e-12 or (margin > 0) == (excess < 0)
    covariance = (toy.gsnr * toy.variance).mean() - toy.gsnr.mean() * toy.variance.mean()
    sgd = claims.gsnr_excess(toy.mean, toy.variance, SGD, toy.n)
    assert sgd == pytest.approx(
        (covariance / toy.variance.mean()).item(), rel=1e-6, abs=1e-9 * toy.gsnr.max().item()
    )


@fair
@given(toys())
def test_the_implemented_factor_needs_no_assumption(toy: Toy) -> None:
    """Trust grows with GSNR, so it beats SGD; without 1/n the theorem's form beats the theorem's."""
    assert toy.osgr(SVAG) >= toy.osgr(SGD) - 1e-12
    printed = toy.osgr(
        lambda mean, variance, n: signal_to_noise(mean, variance) / theory.second_moment(mean, variance, n)
    )
    assert printed >= toy.osgr(GENIE) - 1e-12


@fair
@given(toys())
def test_no_preconditioner_beats_the_one_that_moves_the_best_parameter_alone(toy: Toy) -> None:
    highest = theory.highest_osgr(toy.gsnr, toy.n)
    best = torch.zeros_like(toy.mean)
    best[toy.gsnr.argmax()] = 1.0
    assert toy.osgr(fixed(best.tolist())) == pytest.approx(highest, rel=1e-9)
    assert all(toy.osgr(p) <= highest + 1e-12 for p in PRECONDITIONERS.values())


def test_genie_is_below_the_maximum_unless_all_gsnr_are_equal() -> None:
    assert theory.highest_osgr(tensor([4.0, 0.5]), 2) - genie_osgr(tensor([4.0, 0.5]), 2) > 0.07
    assert theory.highest_osgr(tensor([4.0, 4.0]), 2) == genie_osgr(tensor([4.0, 4.0]), 2)


def test_the_counterexample_in_exact_numbers() -> None:
    example = claims.counterexample()
    toy = Toy(example.mean, example.variance, example.n)
    assert example.sgd == pytest.approx(float(Fraction(65, 74)), rel=1e-14)
    assert example.genie == pytest.approx(float(Fraction(9, 11)), rel=1e-14)
    assert toy.osgr(ADAM) == pytest.approx(float(Fraction(5, 6)), rel=1e-14)
    assert example.sgd > toy.osgr(ADAM) > example.genie
    torch.testing.assert_close(toy.weights(SGD), tensor([36 / 37, 1 / 37]))
    torch.testing.assert_close(toy.weights(GENIE), tensor([9 / 11, 2 / 11]))
    assert not claims.uniform_weights_hold(toy.mean, toy.variance, SGD, toy.n)
    assert not claims.dominance_holds(toy.mean, toy.variance, SGD, toy.n)
    with pytest.raises(dataclasses.FrozenInstanceError):
        example.sgd = 0.0  # type: ignore[misc]


@fair
@given(st.floats(1e-2, 1e6))
def test_the_condition_as_printed_is_not_sufficient_for_any_n(n: float) -> None:
    example = claims.dropped_term_counterexample(n)
    assert claims.dominance_holds(example.mean, example.variance, SGD, n)
    assert not claims.dominance_holds(example.mean, example.variance, SGD, n, drop=False)
    assert example.sgd > example.genie


def test_the_gap_of_the_dropped_term_does_not_shrink_faster_than_the_ratios_approach_one() -> None:
    example = claims.dropped_term_counterexample(1e6)
    assert 1e6 * (example.sgd - example.genie) == pytest.approx(15 / 16, rel=1e-3)


@st.composite
def dominated(draw: st.DrawFn) -> tuple[Toy, list[float]]:
    """One large GSNR among small ones, and a preconditioner with any weights."""
    size = draw(st.integers(2, 5))
    small = draw(st.lists(st.floats(1e-3, 1.0), min_size=size - 1, max_size=size - 1))
    r = tensor([draw(st.floats(1.0, 1e4)), *small])
    variance = tensor(draw(st.lists(positive, min_size=size, max_size=size)))
    p = draw(st.lists(st.floats(1e-3, 1.0), min_size=size, max_size=size))
    return Toy((r * variance).sqrt(), variance, draw(st.floats(0.5, 100.0))), p


@many
@given(dominated())
def test_with_one_over_n_the_condition_is_sufficient(case: tuple[Toy, list[float]]) -> None:
    toy, p = case
    for preconditioner in (SGD, ADAM, fixed(p)):
        if claims.dominance_holds(toy.mean, toy.variance, preconditioner, toy.n, drop=False):
            assert toy.osgr(GENIE) >= toy.osgr(preconditioner) - 1e-12


@many
@given(dominated())
def test_for_sgd_the_printed_condition_is_sufficient_with_the_weights_of_infinite_n(
    case: tuple[Toy, list[float]],
) -> None:
    toy, _ = case
    signal = toy.mean.square()
    share = (signal / signal.sum())[0]
    assume(bool((1 - share) * toy.gsnr[0] >= toy.gsnr.numel() * toy.gsnr[1:].max()))
    assert toy.osgr(GENIE) >= toy.osgr(SGD) - 1e-12


def test_dominance_in_hand_made_cases() -> None:
    """W is (1/4, 3/4) and n is 1: as printed 0.75 r >= 2 r', and 0.75 (r + 1) >= 2 (r' + 1) with the 1/n."""

    def holds(r: float, second: float, drop: bool) -> bool:
        mean, variance = tensor([math.sqrt(r), math.sqrt(second)]), tensor([1.0, 1.0])
        return claims.dominance_holds(mean, variance, fixed([1 / (r + 1), 3 / (second + 1)]), 1, drop=drop)

    assert holds(8.0, 2.9, True)
    assert not holds(8.0, 3.1, True)
    assert holds(8.0, 2.3, False)
    assert not holds(8.0, 2.4, False)
    assert claims.dominance_holds(
        tensor([1.0]), tensor([1.0]), SGD, 1, drop=False
    )  # alone: the ratios are equal
    for p in (SGD, GENIE):  # without noise GENIE's ratio is 1
        assert claims.dominance_holds(tensor([1.0, 1.0]), tensor([0.0, 1.0]), p, 1)


def test_dominance_uses_the_weight_of_the_largest_gsnr_wherever_it_stands() -> None:
    """GSNR (2, 8) with n = 1 and W = (3/4, 1/4), then W = (1/4, 3/4): 0.75 * 8 >= 2 * 2 > 0.25 * 8."""
    mean, variance = tensor([math.sqrt(2.0), math.sqrt(8.0)]), tensor([1.0, 1.0])
    assert claims.dominance_holds(mean, variance, fixed([3 / 3, 1 / 9]), 1)
    assert not claims.dominance_holds(mean, variance, fixed([1 / 3, 3 / 9]), 1)


@pytest.mark.parametrize(("tolerance", "answer"), [(0.19, False), (0.21, True)])
def test_uniformity_has_a_tolerance_in_units_of_the_uniform_weight(tolerance: float, answer: bool) -> None:
    mean, variance = tensor([1.0, 1.0, 0.0]), tensor([1.0, 2.0, 0.0])  # W is (0.4, 0.6); the third is absent
    assert claims.uniform_weights_hold(mean, variance, SGD, 1, tolerance) is answer


def test_every_weight_has_to_be_uniform() -> None:
    mean, variance = tensor([1.0, 1.0, 0.5]), tensor([1.0, 2.0, 0.75])  # W is (1/3, 1/2, 1/6)
    assert not claims.uniform_weights_hold(mean, variance, SGD, 1)


def test_what_the_preconditioner_says_of_an_absent_parameter_is_ignored() -> None:
    mean, variance = tensor([2.0, 1.0, 0.0]), tensor([1.0, 5.0, 0.0])
    inverse = osgr(mean, variance, lambda mean, variance, n: 1 / variance, 2)
    assert inverse == pytest.approx(genie_osgr(tensor([4.0, 0.2]), 2), rel=1e-12)


def test_without_noise_the_limit_is_taken_and_without_a_gradient_a_parameter_is_absent() -> None:
    mean, variance = tensor([2.0, 1.0, 3.0]), tensor([0.0, 5.0, 0.0])
    assert osgr(mean, variance, GENIE, 2) == 1.0 == genie_osgr(signal_to_noise(mean, variance), 2)
    torch.testing.assert_close(weights(mean, variance, GENIE, 2), tensor([4 / 13, 0.0, 9 / 13]))
    nearly = tensor([1e-12, 5.0, 1e-12])
    torch.testing.assert_close(
        weights(mean, nearly, GENIE, 2), tensor([4 / 13, 0.0, 9 / 13]), rtol=1e-9, atol=1e-9
    )
    for p in PRECONDITIONERS.values():
        with_absent = osgr(tensor([2.0, 1.0, 0.0]), tensor([1.0, 5.0, 0.0]), p, 2)
        assert with_absent == osgr(tensor([2.0, 1.0]), tensor([1.0, 5.0]), p, 2)


def test_any_shape_and_dtype_gives_the_same_numbers() -> None:
    mean, variance = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[4.0, 3.0], [2.0, 1.0]])
    flat = tensor([1.0, 2.0, 3.0, 4.0]), tensor([4.0, 3.0, 2.0, 1.0])
    for p in PRECONDITIONERS.values():
        assert osgr(mean, variance, p, 3) == pytest.approx(osgr(*flat, p, 3), rel=1e-14)
        assert weights(mean.half(), variance.half(), p, 3).shape == (2, 2)
        assert claims.dominance_holds(mean, variance, p, 3) == claims.dominance_holds(*flat, p, 3)


ONE = torch.ones(2)
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "n": (
        lambda: osgr(ONE, ONE, SGD, 0),
        "got n=0; expected a number above 0.",
    ),
    "infinite n": (
        lambda: genie_osgr(ONE, math.inf),
        "got n=inf; expected a number above 0.",
    ),
    "n of the predicate": (
        lambda: claims.dominance_holds(ONE, ONE, SGD, 0, drop=False),
        "got n=0; expected a number above 0.",
    ),
    "n of the example": (
        lambda: claims.dropped_term_counterexample(-1.0),
        "got n=-1.0; expected a number above 0.",
    ),
    "shapes": (
        lambda: theory.second_moment(torch.ones(2), torch.ones(3), 1),
        "mean has shape (2,) and variance (3,); give two tensors of one shape with at least one entry.",
    ),
    "nothing": (
        lambda: signal_to_noise(torch.ones(0), torch.ones(0)),
        "mean has shape (0,) and variance (0,); give two tensors of one shape with at least one entry.",
    ),
    "negative variance": (
        lambda: osgr(ONE, -0.1 * ONE, SGD, 1),
        "mean^2 + variance/n is not finite, or a variance is negative; give finite means and finite variances "
        "of at least 0.",
    ),
    "overflow": (
        lambda: osgr(1e200 * ONE.double(), ONE, SGD, 1),
        "mean^2 + variance/n is not finite, or a variance is negative; give finite means and finite variances "
        "of at least 0.",
    ),
    "all zero": (
        lambda: osgr(0 * ONE, 0 * ONE, SGD, 1),
        "All gradients are 0, so that the ratio is 0/0; give a mean or a variance above 0.",
    ),
    "no step": (
        lambda: osgr(0 * ONE, ONE, SVAG, 1),
        "The preconditioner is 0 wherever there is a gradient, so that no step is taken and the ratio is 0/0; "
        "give one that moves a parameter.",
    ),
    "negative factor": (
        lambda: osgr(ONE, ONE, fixed([1.0, -1.0]), 1),
        "The preconditioner returned shape (2,) for gradients of shape (2,), or an entry that is NaN or below "
        "0; return one number of at least 0 for each gradient.",
    ),
    "factor that is no number": (
        lambda: osgr(ONE, ONE, fixed([1.0, math.nan]), 1),
        "The preconditioner returned shape (2,) for gradients of shape (2,), or an entry that is NaN or below "
        "0; return one number of at least 0 for each gradient.",
    ),
    "shape of the factors": (
        lambda: weights(ONE, ONE, fixed([1.0]), 1),
        "The preconditioner returned shape (1,) for gradients of shape (2,), or an entry that is NaN or below "
        "0; return one number of at least 0 for each gradient.",
    ),
    "gsnr": (
        lambda: genie_osgr(torch.tensor([1.0, math.nan]), 1),
        "gsnr is empty or has an entry that is NaN or below 0; give one ratio of at least 0 for each parameter "
        "and leave out parameters without a gradient.",
    ),
    "negative gsnr": (
        lambda: theory.highest_osgr(-ONE, 1),
        "gsnr is empty or has an entry that is NaN or below 0; give one ratio of at least 0 for each parameter "
        "and leave out parameters without a gradient.",
    ),
    "excess": (
        lambda: claims.gsnr_excess(ONE, torch.tensor([0.0, 1.0]), SGD, 1),
        "A parameter has variance 0; leave out parameters without noise, because their GSNR has no finite "
        "mean.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_computed_is_refused_in_one_sentence(case: str) -> None:
    call, sentence = REFUSED[case]
    with pytest.raises(MeasurementError) as caught:
        call()
    assert str(caught.value) == sentence
