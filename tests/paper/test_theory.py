"""The Gaussian toy against fractions and sampled draws, and each claim of the paper with its limits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paper import theory
from paper.theory import COMPONENTS, PRECONDITIONERS, genie_osgr, osgr, signal_to_noise, weights

SGD, ADAM, SVAG, GENIE = (PRECONDITIONERS[name] for name in ("sgd", "adam", "svag", "genie"))


def tensor(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@dataclasses.dataclass(frozen=True)
class Toy:
    mean: Tensor
    variance: Tensor
    n: float

    def osgr(self, preconditioner: theory.PreconditionerFormula) -> float:
        return osgr(self.mean, self.variance, preconditioner, self.n)

    def weights(self, preconditioner: theory.PreconditionerFormula) -> Tensor:
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


def fixed(p: list[float]) -> theory.PreconditionerFormula:
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
    rule, exact = PRECONDITIONERS[name], float(twin_osgr(mean, variance, p, n))
    torch.testing.assert_close(rule(m, v, n), tensor([float(x) for x in p]), rtol=1e-12, atol=0)
    assert osgr(m, v, rule, n) == pytest.approx(exact, rel=1e-12)
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
    even = torch.full_like(gap, (1 - toy.osgr(GENIE)) / len(gap))
    torch.testing.assert_close(gap, even, rtol=1e-6, atol=1e-9)


@fair
@given(toys())
def test_the_sign_of_a_covariance_decides_for_sgd(toy: Toy) -> None:
    covariance = (toy.gsnr * toy.variance).mean() - toy.gsnr.mean() * toy.variance.mean()
    average = (toy.gsnr.mean() + covariance / toy.variance.mean()).item()
    assert toy.osgr(SGD) == pytest.approx(toy.n * average / (toy.n * average + 1), rel=1e-6)
    margin = toy.osgr(GENIE) - toy.osgr(SGD)
    assert abs(margin) < 1e-12 or (margin > 0) == (covariance < 0)


def test_the_counterexample_in_exact_numbers() -> None:
    example = theory.counterexample()
    toy = Toy(example.mean, example.variance, example.n)
    assert example.sgd == pytest.approx(float(Fraction(65, 74)), rel=1e-14)
    assert example.genie == pytest.approx(float(Fraction(9, 11)), rel=1e-14)
    assert toy.osgr(ADAM) == pytest.approx(float(Fraction(5, 6)), rel=1e-14)
    assert example.sgd > toy.osgr(ADAM) > example.genie
    torch.testing.assert_close(toy.weights(SGD), tensor([36 / 37, 1 / 37]))
    torch.testing.assert_close(toy.weights(GENIE), tensor([9 / 11, 2 / 11]))
    assert not theory.dominance_holds(toy.mean, toy.variance, SGD, toy.n)


@fair
@given(st.floats(1e-2, 1e6))
def test_the_condition_as_printed_is_not_sufficient_for_any_n(n: float) -> None:
    example = theory.dropped_term_counterexample(n)
    assert theory.dominance_holds(example.mean, example.variance, SGD, n)
    assert not theory.dominance_holds(example.mean, example.variance, SGD, n, drop=False)
    assert example.sgd > example.genie


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
        if theory.dominance_holds(toy.mean, toy.variance, preconditioner, toy.n, drop=False):
            assert toy.osgr(GENIE) >= toy.osgr(preconditioner) - 1e-12


@fair
@given(toys())
def test_the_parts_of_table_1_multiply_to_the_preconditioner(toy: Toy) -> None:
    moments = toy.mean, toy.variance, toy.n
    for name, parts in COMPONENTS.items():
        product = parts.convergence(*moments) * parts.alignment(*moments)
        torch.testing.assert_close(product, PRECONDITIONERS[name](*moments), rtol=1e-9, atol=0)
        assert parts.product is PRECONDITIONERS[name]
