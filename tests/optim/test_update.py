"""The form of the update that the fast paths use, held to the rule in every bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from genie_dg import GENIE
from genie_dg._moments import averaging, trust, variance
from genie_dg._options import UpdateRule
from genie_dg.optim._update import CALM, Scalars, calm_moments, calm_step, direction
from tests.oracle import genie as oracle


@pytest.mark.parametrize("buffers", [False, True], ids=["new tensors", "in buffers"])
@pytest.mark.parametrize("step", [1, 2, 40])
@pytest.mark.parametrize("precondition", [True, False], ids=["precondition", "momentum"])
@pytest.mark.parametrize("formulation", ["released", "algorithm1"])
def test_calm_entries_take_the_step_of_the_rule(
    formulation: str, precondition: bool, step: int, buffers: bool
) -> None:
    """Gradients from 1e-20 to 1e20 and beyond: where an entry is calm its gate is 1 and its step the rule's."""
    rule = UpdateRule(formulation, precondition, noise=True, mask=True, maximize=False, l2=False, shrink=False)
    generator = torch.Generator().manual_seed(step)
    scale = 10.0 ** torch.linspace(-20, 20, 4096)
    m = torch.randn(4096, generator=generator) * scale
    v = m * m * (1 + torch.rand(4096, generator=generator))
    v[::3] = m[::3] ** 2 * averaging(0.95, step).inverse_correction  # the variance cancels, to rounding
    m[:3], v[:3] = torch.tensor([float("nan"), 3e38, 0.0]), torch.tensor([1.0, float("inf"), 0.0])
    scalars = Scalars(averaging(0.95, step), 0.015, 1.0, 0.0, 0.1)
    expected = direction(rule, m, v, scalars)
    x, y, z, spare = torch.empty(4, 4096)
    out = (x, y, z, spare) if buffers else None

    moments = calm_moments(rule, m.clone(), v.clone(), scalars, out)
    calm = moments.s2.abs() <= CALM
    assert not calm[:2].any()
    assert calm[2]
    assert 1000 < calm.sum() < 4096
    assert (expected.gate[calm] == 1).all()
    assert (expected.s2[calm] <= CALM).all()
    assert torch.equal(calm_step(rule, moments, v, scalars)[calm], expected.step[calm])


PATHS: dict[str, dict[str, Any]] = {"native": {}, "loop": {"foreach": False}, "foreach": {"foreach": True}}


@pytest.mark.parametrize("beta", [0.5, 0.8, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("formulation", ["released", "algorithm1"])
@pytest.mark.parametrize("path", PATHS)
def test_a_constant_gradient_has_no_variance(path: str, formulation: str, beta: float) -> None:
    """Of whatever size, every float32 path takes the steps of the float64 twin, where nothing is rounded."""
    g = torch.cat([x * torch.linspace(1, 2, 8) for x in (1e-12, 1e-6, 1e-4, 1e-2, 1.0, 1e3)])
    p = torch.nn.Parameter(torch.zeros(48))
    optimizer = GENIE([p], lr=1.0, beta=beta, dropout=0.0, noise=False, formulation=formulation, **PATHS[path])
    twin = oracle.Twin([0.0] * 48, lr=1.0, beta=beta, mask=False, noise=False, formulation=formulation)
    for step in range(1, 121):
        p.grad = g.clone()
        p.detach().zero_()
        twin.theta = [0.0] * 48
        optimizer.step()
        twin.step(g.double().tolist(), [], [])
        if formulation == "released" or beta**step < 1e-10:  # raw moments have a variance until then
            wanted = torch.tensor(twin.theta, dtype=torch.float64)
            torch.testing.assert_close(p.detach().double(), wanted, rtol=2e-5, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_variance_has_no_jump(dtype: torch.dtype) -> None:
    """As the mean square passes the squared mean, closer and closer to what rounding leaves."""
    a, eps = averaging(0.95, 30), torch.finfo(dtype).eps
    mean = torch.ones((), dtype=dtype)
    shares = torch.arange(-50, 2000, dtype=dtype) * 0.25 * eps / a.rho
    s2 = variance((mean + shares) / a.inverse_correction, mean, a)
    limit = 4 * eps / a.rho
    assert (s2[shares < limit * 0.9] == 0).all()
    assert (s2 >= 0).all()
    assert s2.diff().abs().max() < eps / a.rho  # twice the distance, and rounding
    full = shares > 2.2 * limit
    torch.testing.assert_close(s2[full], shares[full] * a.inverse_freedom, rtol=0, atol=4 * eps)
    assert trust(mean, s2, a.rho).diff().abs().max() < 3 * eps
