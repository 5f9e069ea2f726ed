"""EQRM against a slow float64 twin: the quantile, its derivatives, whole updates and degenerate risks."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import optimize, special
from torch import Tensor

from genie_dg._types import DomainBatch, Network, Restart
from genie_dg.algorithms.eqrm import EQRM, smoothed_quantile

from .networks import cut, small_network
from .test_penalties import SIZES, check, domain_losses
from .test_sd_information_bottleneck import follow

RISKS = [
    [0.3, 1.1],
    [0.3, 1.1, 0.9],
    [2.0, 0.1, 0.4, 0.35, 1.7],
    [1.0, 1.0, 1.5],
    [5.0, 5.0 + 1e-6, 5.0 - 3e-6],
]


def quantile_twin(risks: list[float], level: float) -> float:
    """The root of F(q) = level, by Brent's method; nothing is standardised."""
    n = len(risks)
    mean = math.fsum(risks) / n
    deviation = math.sqrt(math.fsum((r - mean) ** 2 for r in risks) / (n - 1))
    h = 1.06 * deviation * n ** (-1 / 5)

    def excess(q: float) -> float:
        return math.fsum(special.ndtr((q - r) / h) for r in risks) / n - level

    low, high = min(risks) - 9 * h, max(risks) + 9 * h
    return float(optimize.brentq(excess, low, high, xtol=1e-15, rtol=1e-15))


def differences(risks: list[float], level: float) -> list[float]:
    """The derivative in each risk by a central difference of the fourth order."""
    e = 1e-3 * (max(risks) - min(risks))

    def moved(i: int, by: float) -> float:
        return quantile_twin([r + by * e * (i == j) for j, r in enumerate(risks)], level)

    indices = range(len(risks))
    return [(8 * (moved(i, 1) - moved(i, -1)) - (moved(i, 2) - moved(i, -2))) / (12 * e) for i in indices]


class TwinLoss(torch.autograd.Function):
    """Value and slopes of the quantile from the twin."""

    @staticmethod
    def forward(ctx: object, risks: Tensor, level: float) -> Tensor:
        ctx.slopes = differences(risks.tolist(), level)
        return risks.new_tensor(quantile_twin(risks.tolist(), level))

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * gradient.new_tensor(ctx.slopes), None


@pytest.mark.parametrize("level", [0.05, 0.5, 0.75, 0.99])
@pytest.mark.parametrize("risks", RISKS, ids=str)
def test_the_quantile_and_its_derivatives(risks: list[float], level: float) -> None:
    r = torch.tensor(risks, dtype=torch.float64, requires_grad=True)
    value = smoothed_quantile(r, level)
    tight = 1e-12 if risks[0] < 5 else 1e-14  # close risks: as many digits of their differences
    assert value.item() == pytest.approx(quantile_twin(risks, level), rel=tight)
    (slopes,) = torch.autograd.grad(value, r)
    assert slopes.tolist() == pytest.approx(differences(risks, level), rel=1e-6, abs=1e-6)
    assert slopes.sum().item() == pytest.approx(1.0, abs=1e-9)  # all risks moved alike move the quantile alike


def test_second_derivatives() -> None:
    r = torch.tensor(RISKS[2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: smoothed_quantile(x, 0.8), (r,), atol=1e-7)


@pytest.mark.parametrize("risks", [[0.7], [0.7, 0.7], [0.0, 0.0, 0.0], [0.0, 1e-45]], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_one_risk_and_equal_risks_are_their_own_quantile(risks: list[float], dtype: torch.dtype) -> None:
    r = torch.tensor(risks, dtype=dtype, requires_grad=True)
    value = smoothed_quantile(r, 0.9)
    (slopes,) = torch.autograd.grad(value, r)
    assert value.item() == pytest.approx(risks[0])
    assert slopes.isfinite().all()
    if risks[-1] == risks[0]:
        torch.testing.assert_close(slopes, torch.full_like(r, 1 / len(risks)))


def twin(level: float | None) -> object:
    """The mean of the risks (None), or their quantile."""

    def loss(network: Network, data: DomainBatch) -> Tensor:
        risks = torch.stack(domain_losses(network, data))
        return risks.mean() if level is None else TwinLoss.apply(risks, level)

    return loss


@pytest.mark.parametrize("sizes", SIZES[:3])
def test_both_sides_of_the_burn_in(sizes: tuple[int, ...]) -> None:
    algorithm = EQRM(small_network(), len(sizes), eqrm_quantile=0.9, eqrm_burnin_iters=7)
    check(algorithm, cut(sizes), twin(None), 6)
    check(algorithm, cut(sizes), twin(0.9), 7)


def test_whole_updates_with_a_fresh_start_after_a_burn_in_that_is_not_whole() -> None:
    algorithm = EQRM(small_network(), 3, eqrm_quantile=0.8, eqrm_burnin_iters=2.4, eqrm_lr=0.002)
    follow(algorithm, lambda step: twin(0.8 if step >= 3 else None), {3: 0.002})
    assert [step for step in range(6) if algorithm.restarts.get(step) == Restart(0.002)] == [3]
    whole = EQRM(small_network(), 3, eqrm_burnin_iters=2, eqrm_lr=0.002)
    assert [step for step in range(6) if whole.restarts.get(step) == Restart(0.002)] == [2]
