"""What algorithms that mix samples or styles share: Beta weights and statistics of activations."""

from __future__ import annotations

import torch
from torch import Tensor

from genie_dg._types import Edit
from genie_dg.check import InputError, number


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
    number("alpha", alpha, 0, excluding=(0,))
    one_more = torch.full((2, *shape), alpha + 1.0, dtype=torch.float64)
    gamma = torch._standard_gamma(one_more, generator)
    uniform = 1 - torch.rand((2, *shape), generator=generator, dtype=torch.float64)
    x, y = gamma.log() + uniform.log() / alpha
    return torch.sigmoid(x - y)


def statistics(x: Tensor, dims: tuple[int, ...], eps: float) -> tuple[Tensor, Tensor]:
    r"""Mean :math:`\mu` and :math:`\sigma = \sqrt{\frac1n \sum (x - \mu)^2 + \text{eps}}` over ``dims``, kept.

    >>> mu, sigma = statistics(torch.tensor([[1.0, 3.0]]), (1,), 0.0)
    >>> mu.item(), sigma.item()
    (2.0, 1.0)
    """
    variance, mean = torch.var_mean(x, dim=dims, correction=0, keepdim=True)
    return mean, (variance + eps).sqrt()


def on_map(algorithm: str, point: str, edit: Edit) -> Edit:
    """The edit, which refuses an activation that has no space to take statistics over."""

    def checked(x: Tensor) -> Tensor:
        if x.ndim != 4:
            raise InputError(
                f"{algorithm} got an activation of shape {tuple(x.shape)} at the point {point!r}; expected a "
                "map [samples, channels, height, width], so choose points of a convolutional network."
            )
        return edit(x)

    return checked
