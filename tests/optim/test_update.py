"""The form of the update that the fast paths use, held to the rule in every bit."""

from __future__ import annotations

import pytest
import torch

from genie_dg._moments import averaging
from genie_dg.optim._update import CALM, Rule, Scalars, calm_moments, calm_step, direction


@pytest.mark.parametrize("buffers", [False, True], ids=["new tensors", "in buffers"])
@pytest.mark.parametrize("step", [1, 2, 40])
@pytest.mark.parametrize("precondition", [True, False], ids=["precondition", "momentum"])
@pytest.mark.parametrize("formulation", ["released", "algorithm1"])
def test_calm_entries_take_the_step_of_the_rule(
    formulation: str, precondition: bool, step: int, buffers: bool
) -> None:
    """Gradients from 1e-20 to 1e20 and beyond: where an entry is calm its gate is 1 and its step the rule's."""
    rule = Rule(formulation, precondition, noise=True, mask=True, maximize=False, l2=False, shrink=False)
    generator = torch.Generator().manual_seed(step)
    scale = 10.0 ** torch.linspace(-20, 20, 4096)
    m = torch.randn(4096, generator=generator) * scale
    v = m * m * (1 + torch.rand(4096, generator=generator))
    m[:3], v[:3] = torch.tensor([float("nan"), 3e38, 0.0]), torch.tensor([1.0, float("inf"), 0.0])
    scalars = Scalars(averaging(0.95, step), 0.015, 1.0, 0.0, 0.1)
    expected = direction(rule, m, v, scalars)
    out = (torch.empty(4096), torch.empty(4096), torch.empty(4096)) if buffers else None

    moments = calm_moments(rule, m.clone(), v.clone(), scalars, out)
    calm = moments.s2.abs() <= CALM
    assert not calm[:2].any()
    assert calm[2]
    assert 1000 < calm.sum() < 4096
    assert (expected.gate[calm] == 1).all()
    assert (expected.s2[calm] <= CALM).all()
    assert torch.equal(calm_step(rule, moments, v, scalars)[calm], expected.step[calm])
