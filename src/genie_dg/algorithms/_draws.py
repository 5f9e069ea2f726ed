"""Random numbers of named distributions from a given generator."""

from __future__ import annotations

import torch
from torch import Tensor


def beta(alpha: float, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    r"""Samples of Beta(``alpha``, ``alpha``) in float64, on the CPU.

    :math:`\lambda = X / (X + Y)` with X and Y from Gamma(:math:`\alpha`). For a small :math:`\alpha` both may
    be too small for any floating-point number, so they are kept as logarithms:

    .. math::
        \log X = \log G + \tfrac1\alpha \log U, \quad G \sim \mathrm{Gamma}(\alpha + 1), \; U \sim U(0, 1],
        \qquad \lambda = \mathrm{sigmoid}(\log X - \log Y) .

    Both formulas are exact, and 0/0 cannot happen.

    Args:
        alpha: above 0.
        shape: of the result.
        generator: on the CPU.

    >>> sample = beta(1e-4, (1000,), torch.Generator().manual_seed(0))
    >>> bool(sample.isfinite().all()), 450 < sample.round().sum() < 550
    (True, tensor(True))
    """
    if not alpha > 0:
        raise ValueError(f"alpha={alpha} came; a Beta distribution needs a number above 0, so choose one.")
    one_more = torch.full((2, *shape), alpha + 1.0, dtype=torch.float64)
    gamma = torch._standard_gamma(one_more, generator)
    uniform = 1 - torch.rand((2, *shape), generator=generator, dtype=torch.float64)
    x, y = gamma.log() + uniform.log() / alpha
    return torch.sigmoid(x - y)
