"""SAGM: what it is made of. Its run against the twin and the promises of all wrappers are in test_passes.py."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.optim.sagm import SAGM
from genie_dg.optim.sam import SAM
from genie_dg.search_space import Choice, Setting
from tests.oracle import passes as oracle

from .test_passes import closure_of, data, flat, loss_of, parameters


def gathered(optimizer: SAM | SAGM, params: list[torch.nn.Parameter]) -> Tensor:
    optimizer.gather(closure_of(optimizer, params))
    return torch.cat([p.grad.reshape(-1) for p in params])  # type: ignore[union-attr]


def test_without_alpha_it_is_the_mean_of_the_plain_gradient_and_sams() -> None:
    params = parameters()
    plain = torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss_of(params), params)])
    sam = gathered(SAM(torch.optim.SGD(params), rho=0.3), params)
    sagm = gathered(SAGM(torch.optim.SGD(params), rho=0.3, alpha=0.0), params)
    torch.testing.assert_close(sagm, (plain + sam) / 2, rtol=1e-12, atol=1e-14)
    assert (plain - sam).norm() > 0.1


def test_alpha_shortens_the_way_up() -> None:
    """The second pass is at w + (rho / |g| - alpha) g."""
    params, places = parameters(), []
    optimizer = SAGM(torch.optim.SGD(params), rho=0.3, alpha=0.2)

    def closure() -> Tensor:
        places.append(flat(params))
        return closure_of(optimizer, params)()

    optimizer.gather(closure)
    inputs, signs = data()
    g = oracle.slope(places[0], inputs, signs)
    by = 0.3 / oracle.norm(g) - 0.2
    assert places[1] == pytest.approx([w + by * x for w, x in zip(places[0], g, strict=True)], rel=1e-12)


def test_it_lowers_both_losses() -> None:
    """The gradient is the derivative of (L(w) + L_p(w - alpha g)) / 2, the move held fixed."""
    params = parameters()
    optimizer = SAGM(torch.optim.SGD(params), rho=0.3, alpha=0.2)
    gradient = gathered(optimizer, params).tolist()
    inputs, signs = data()
    w = flat(params)
    g = oracle.slope(w, inputs, signs)
    move = [(0.3 / oracle.norm(g) - 0.2) * x for x in g]

    def objective(at: list[float]) -> float:
        there = [a + e for a, e in zip(at, move, strict=True)]
        return (oracle.loss(at, inputs, signs) + oracle.loss(there, inputs, signs)) / 2

    for j in range(len(w)):
        sides = [objective([a + h * (k == j) for k, a in enumerate(w)]) for h in (1e-6, -1e-6)]
        assert gradient[j] == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-6, abs=1e-8)


def test_the_published_settings() -> None:
    space = OPTIMIZERS["sagm"].space
    assert space["rho"] == Setting(0.05, Choice((0.01, 0.02, 0.05, 0.1)), "published")
    assert space["alpha"] == Setting(0.001, Choice((0.0005, 0.001)), "published")


def test_a_forgotten_scaler_is_a_longer_move() -> None:
    """Why `gather` takes the scaler: alpha times a scaled gradient is not alpha times the gradient."""
    gradients = []
    for scaler in (torch.amp.GradScaler("cpu", init_scale=64.0), None):
        params = parameters()
        optimizer = SAGM(torch.optim.SGD(params), rho=0.3, alpha=0.2)
        optimizer.gather(closure_of(optimizer, params, 64.0), scaler)
        gradients.append(torch.cat([p.grad.reshape(-1) for p in params]) / 64)  # type: ignore[union-attr]
    params = parameters()
    plain = gathered(SAGM(torch.optim.SGD(params), rho=0.3, alpha=0.2), params)
    torch.testing.assert_close(gradients[0], plain, rtol=1e-12, atol=1e-14)
    assert (gradients[1] - plain).norm() > 1e-3
