"""Several preconditioners at one point: against one backward for each sample, and by hand."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor

from genie_dg.diagnostics import MeasurementError
from genie_dg.diagnostics.rules import GradientHistory
from genie_dg.diagnostics.same_weights import (
    Gains,
    Half,
    SampleMoments,
    draw_gradients,
    sample_moments,
    step_gains,
)
from paper import theory
from tests.diagnostics.models import loss, mlp
from tests.oracle import gradients as oracle


def tensor(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def exact(mean: Tensor, variance: Tensor) -> SampleMoments:
    """Moments without sampling error: infinitely many samples, so to say."""
    half = Half(mean, variance, 10**15)
    return SampleMoments(half, half, half)


def test_a_preconditioner_from_elsewhere_matches_the_twin() -> None:
    model, data = mlp()
    moments = sample_moments(model, loss, data)
    p = torch.rand(moments.whole.mean.shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    top, bottom = oracle.osgr_parts(oracle.sample_gradients(model, loss, data), p.tolist(), 5)
    found = moments.gains(p, 5)
    assert (found.on_other, found.on_d) == pytest.approx((top, bottom), rel=1e-9)
    assert found.ratio == pytest.approx(top / bottom)


def test_a_preconditioner_from_moments_meets_the_other_half() -> None:
    model, (x, y) = mlp()
    rows = oracle.sample_gradients(model, loss, (x, y))
    halves = [rows[0::2], rows[1::2]]
    top = bottom = 0.0
    alive = [
        all(oracle.variance(list(c)) > 0 for c in pair)
        for pair in zip(*(zip(*h, strict=True) for h in halves), strict=True)
    ]
    for own, other in (halves, halves[::-1]):
        p = [1 / math.sqrt(oracle.mean(c) ** 2 + oracle.variance(c) / 4) if live else 0.0
             for c, live in zip(oracle.columns(own), alive, strict=True)]  # fmt: skip
        parts = oracle.osgr_parts(other, p, 4)
        top, bottom = top + parts[0], bottom + parts[1]
    found = sample_moments(model, loss, (x, y)).gains_of(theory.PRECONDITIONERS["adam"], 4)
    assert (found.on_other, found.on_d) == pytest.approx((top, bottom), rel=1e-8)


def test_with_the_true_moments_all_forms_are_those_of_the_theory() -> None:
    mean, variance, n = tensor([2.0, 1.0, -0.3]), tensor([1.0, 3.0, 0.5]), 4
    moments = exact(mean, variance)
    for formula in theory.PRECONDITIONERS.values():
        expected = theory.osgr(mean, variance, formula, n)
        assert moments.gains_of(formula, n).ratio == pytest.approx(expected, rel=1e-12)
        assert moments.gains(formula(mean, variance, n), n).ratio == pytest.approx(expected, rel=1e-12)
    assert moments.theorem_gains(n).ratio == pytest.approx(
        theory.osgr(mean, variance, theory.PRECONDITIONERS["genie"], n), rel=1e-12
    )


@pytest.mark.parametrize("variance", [[1.0, 3.0, 0.5], [8.0, 1.0, 0.1]])
def test_the_sign_of_the_correlation_decides_the_corollary(variance: list[float]) -> None:
    mean, n = tensor([4.0, 0.5, 0.1]), 4
    moments = exact(mean, tensor(variance))
    higher = moments.theorem_gains(n).ratio > moments.gains(torch.ones(3), n).ratio
    assert higher == (moments.gsnr_variance_correlation() < 0)
    pairs = torch.stack([mean.square() / tensor(variance), tensor(variance)])
    assert higher == (torch.cov(pairs)[0, 1] < 0)


def test_the_correlation_by_hand() -> None:
    """GSNR of one half against variances of the other, and the other way round."""
    first = Half(tensor([1.0, 2.0, 0.0]), tensor([1.0, 1.0, 4.0]), 10**12)
    second = Half(tensor([1.0, 1.0, 2.0]), tensor([1.0, 1.0, 1.5]), 10**12)
    moments = SampleMoments(first, second, first)
    with_second = torch.corrcoef(torch.stack([tensor([1.0, 4.0, 0.0]), tensor([1.0, 1.0, 1.5])]))[0, 1]
    with_first = torch.corrcoef(torch.stack([tensor([1.0, 1.0, 4 / 1.5]), tensor([1.0, 1.0, 4.0])]))[0, 1]
    assert moments.gsnr_variance_correlation() == pytest.approx(float(with_second + with_first) / 2)


def test_a_weight_without_variance_in_a_half_is_left_out_of_what_comes_from_moments() -> None:
    first = Half(tensor([1.0, 1.0]), tensor([1.0, 0.0]), 10)
    second = Half(tensor([1.0, 5.0]), tensor([1.0, 9.0]), 10)
    moments = SampleMoments(first, second, second)
    alone = SampleMoments(*(Half(h.mean[:1], h.variance[:1], 10) for h in (first, second, second)))
    for name in ("sgd", "genie"):
        p = theory.PRECONDITIONERS[name]
        assert moments.gains_of(p, 4).ratio == pytest.approx(alone.gains_of(p, 4).ratio)


def test_a_denominator_that_is_not_positive_gives_no_number() -> None:
    assert math.isnan(Gains(0.5, 0.0).ratio)
    assert math.isnan(Gains(-0.5, -0.1).ratio)
    assert (Gains(1.0, 4.0) + Gains(1.0, 4.0)).ratio == 0.25


def test_draws_are_disjoint_and_their_gains_are_those_of_real_steps() -> None:
    model, (x, y) = mlp(samples=24)
    history = GradientHistory(model)
    loss(model.eval(), x, y).backward()
    history.add()
    on_d, on_other = draw_gradients(model, loss, (x, y), 4, seed=2)
    assert on_d.shape == on_other.shape == (3, sum(history.sizes))
    order = torch.randperm(24, generator=torch.Generator().manual_seed(2)).split(4)
    expected = [0.0, 0.0]
    for k in range(3):
        d, other = ((x[rows], y[rows]) for rows in order[2 * k : 2 * k + 2])
        copied = copy.deepcopy(model)
        make = lambda p: torch.optim.SGD(p, lr=0.5)  # noqa: E731
        _, _, linear_other, linear_d = oracle.step_on_copy(
            copied, make, make(list(copied.parameters())).state_dict(), loss, d, other
        )
        expected = [expected[0] + linear_other / 0.5, expected[1] + linear_d / 0.5]
    found = step_gains(history, "SGD", on_d, on_other)
    assert (found.on_other, found.on_d) == pytest.approx(tuple(expected), rel=1e-6)


def test_measuring_leaves_the_model_alone() -> None:
    model, data = mlp()
    loss(model, *data).backward()
    kept = [(p.detach().clone(), p.grad) for p in model.parameters()]
    stream = torch.get_rng_state()
    sample_moments(model, loss, data)
    draw_gradients(model, loss, data, 3)
    assert torch.equal(torch.get_rng_state(), stream)
    assert all(
        torch.equal(p, old) and p.grad is g for p, (old, g) in zip(model.parameters(), kept, strict=True)
    )


def test_too_few_samples_are_refused() -> None:
    model, (x, y) = mlp()
    with pytest.raises(MeasurementError, match="Got 7 samples; expected eight or more"):
        sample_moments(model, loss, (x[:7], y[:7]))
    with pytest.raises(MeasurementError, match="A draw of n=7 needs 14 samples; got 12"):
        draw_gradients(model, loss, (x, y), 7)
