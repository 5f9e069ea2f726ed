"""``formulation="theorem"``: eq. 5 of the paper, held to plain Python."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Parameter

from genie_dg import GENIE


def plain(theta: list[float], grads: list[list[float]], lr: float, beta: float = 0.95) -> list[float]:
    """The mean gradient times mean(s^2) / (s^2 + mean(s^2) / 10), entry by entry."""
    n = len(theta)
    m, v = [0.0] * n, [0.0] * n
    for t, g in enumerate(grads, 1):
        m = [beta * a + (1 - beta) * b for a, b in zip(m, g, strict=True)]
        v = [beta * a + (1 - beta) * b * b for a, b in zip(v, g, strict=True)]
        c = 1 - beta**t
        rho = (1 - beta) * (1 + beta**t) / ((1 + beta) * c)
        mean = [a / c for a in m]
        s2 = [1e-8] * n if t == 1 else [(b / c - a * a) / (1 - rho) for a, b in zip(mean, v, strict=True)]
        typical = sum(s2) / n
        theta = [x - lr * a * typical / (s + typical / 10) for x, a, s in zip(theta, mean, s2, strict=True)]
    return theta


@pytest.mark.parametrize("path", [{}, {"foreach": True}, {"foreach": False}, {"fused": True}])
def test_the_step_is_the_mean_over_the_variance(path: dict[str, bool]) -> None:
    generator = torch.Generator().manual_seed(0)
    grads = [
        torch.randn(9, generator=generator, dtype=torch.float64) * torch.linspace(0.1, 3, 9) for _ in range(6)
    ]
    p = Parameter(torch.linspace(-1, 1, 9, dtype=torch.float64))
    expected = plain(p.tolist(), [g.tolist() for g in grads], 0.1)
    optimizer = GENIE([p], lr=0.1, dropout=0.0, formulation="theorem", **path)  # type: ignore[arg-type]
    for g in grads:
        p.grad = g
        optimizer.step()
    assert p.tolist() == pytest.approx(expected, rel=1e-10)


def test_a_bad_entry_stays_where_it_is() -> None:
    p = Parameter(torch.ones(20))
    optimizer = GENIE([p], formulation="theorem", dropout=0.0)
    for step in range(3):
        p.grad = torch.linspace(-1, 1, 20) * (step + 1)
        p.grad[4] = torch.nan
        optimizer.step()
    assert torch.isnan(p).nonzero().flatten().tolist() == [4]
