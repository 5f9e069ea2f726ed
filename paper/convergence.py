r"""The rate of convergence, measured.

For a smooth non-convex loss and steps of size :math:`\lambda_T \propto T^{-1/2}` the mean over
:math:`t < T` of :math:`E\|\nabla L(\theta_t)\|^2` is :math:`O(T^{-1/2})` for SGD, and the paper claims the same
for GENIE. `average_gradient_norm` measures that mean for any optimizer, and `rate_slope` its exponent, on

.. math::
    L(\theta) = \sum_{j=1}^d \frac{\theta_j^2}{1 + \theta_j^2}, \qquad
    g = \nabla L(\theta) + \sigma \xi, \quad \xi \sim N(0, I), \qquad \theta_{0,j} = 1,

which is 2-smooth, not convex beyond :math:`|\theta_j| = 1/\sqrt 3`, and has :math:`|\partial_j L| \le 0.65`:
with :math:`\sigma = 1` noise dominates everywhere. That is one problem: a rate measured on it
says nothing about others.

`convergence_bound` is the bound of the paper's proof, `bound_of_run` its value for a run on this problem. The
printed proof has gaps. (1) The bound is divided by :math:`P_l`, a lower bound of
:math:`n \mu^2 / (n \mu^2 + \rho^2) / \rho^2`; that tends to 0 with the
gradient :math:`\mu`, so near a stationary point there is no positive :math:`P_l`. (2) "Replacing n to step T"
gives one gradient the variance of a mean of T; a moving average holds at most :math:`(1+\beta)/(1-\beta)`
samples. (3) The bound G on the true gradient is used for the noisy one. (4) The mask, the noise term and the
gate are left out. (5) Momentum is left out: the step is taken along :math:`g_t`, and not along its average.
(6) In the sum of wrong signs :math:`|g_j| / |\partial_j L|` is dropped as if it were at most 1. (7) With
:math:`\lambda_T` the second term has :math:`G^2`, where the last lines print :math:`G`; these lines also bound
the norm first and its square afterwards, and :math:`\lambda_T` leaves out :math:`S_u G`, so that it is
not the best step size. (8) The preconditioner is of the theory (eq. 5 without 1/n), and not of the code.

Measured with the defaults below and `step_size`, over T = 64, 256, 1024, 4096 (slope, standard error of the
fit): SGD -0.461 (0.007), GENIE -0.539 (0.010), with neither noise nor mask -0.536 (0.010); from 16384 to 65536
both have -0.49. ``"algorithm1"`` has -0.31 (0.08), because its factor is small where noise dominates and short
runs hardly leave the start; from 1024 to 4096 it has -0.48. With the step size of T = 64 for all T the slope
tends to 0: from 1024 to 4096 it is -0.02 for SGD and -0.10 for GENIE.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from .request import PaperError

OptimizerFactory: TypeAlias = Callable[[list[nn.Parameter], int], Optimizer]
"""Builds the optimizer from (parameters, horizon)."""


class Slope(NamedTuple):
    """A fitted exponent and its standard error."""

    slope: float
    standard_error: float


def rate_slope(horizons: Sequence[float], averages: Sequence[float]) -> Slope:
    r"""The exponent :math:`b` of :math:`average \approx C\, T^b`, by least squares on logarithms.

    Args:
        horizons: at least three values of T, not all equal.
        averages: one positive number for each horizon.

    Example:
        >>> slope, error = rate_slope([1, 4, 16], [8.0, 4.0, 1.0])
        >>> round(slope, 4), round(error, 4)
        (-0.75, 0.1443)
    """
    x, y = [math.log(t) for t in horizons], [math.log(a) for a in averages]
    x0, y0 = math.fsum(x) / len(x), math.fsum(y) / len(y)
    spread = math.fsum((a - x0) ** 2 for a in x)
    slope = math.fsum((a - x0) * (b - y0) for a, b in zip(x, y, strict=True)) / spread
    residual = math.fsum((b - y0 - slope * (a - x0)) ** 2 for a, b in zip(x, y, strict=True))
    return Slope(slope, math.sqrt(residual / (len(x) - 2) / spread))


def step_size(horizon: int, noise: float = 1.0) -> float:
    r"""The step size of the theory, :math:`\lambda_T = 1 / (\sigma \sqrt{2 T})`, for the module's problem.

    It minimises SGD's bound :math:`\Delta / (\lambda T) + \lambda \ell\, d \sigma^2 / 2` with smoothness
    :math:`\ell = 2` and :math:`\Delta = L(\theta_0) - L(\theta_*) = d/2`.

    Example:
        >>> step_size(200), step_size(50, noise=2.0)
        (0.05, 0.05)
    """
    return 1 / (noise * math.sqrt(2 * horizon))


def printed_step_size(horizon: int, gap: float, smoothness: float) -> float:
    r"""The step size of the paper's proof, :math:`\lambda_T = \sqrt{(L(\theta_0) - L(\theta_*)) / (T \ell)}`.

    Example:
        >>> printed_step_size(100, gap=8.0, smoothness=2.0)
        0.2
    """
    return math.sqrt(gap / (horizon * smoothness))


def convergence_bound(
    horizon: int, *, gap: float, smoothness: float, gradient: float, inverse_variance: float, least: float,
    weights: int, step: float | None = None,
) -> float:  # fmt: skip
    r"""The bound of the paper's proof on the mean of :math:`\|\nabla L(\theta_t)\|^2` over T steps,

    .. math::
        \frac{L(\theta_0) - L(\theta_*)}{\lambda P_l T}
        + \frac1{P_l} \left( \frac{|J|}{T} + \frac{\ell}{2} \lambda S_u^2 G^2 \right) .

    Args:
        horizon: T.
        gap: :math:`L(\theta_0) - L(\theta_*)`.
        smoothness: :math:`\ell`.
        gradient: G, which bounds the norm of the gradient.
        inverse_variance: :math:`S_u`, one over the lower bound of the variance.
        least: :math:`P_l`, the lower bound of the preconditioner; at 0 the bound is infinite.
        weights: :math:`|J|`.
        step: :math:`\lambda`, by default `printed_step_size`.

    Example:
        >>> convergence_bound(
        ...     100, gap=8.0, smoothness=2.0, gradient=3.0, inverse_variance=0.5, least=0.5, weights=10
        ... )  # (8 / 20 + 10 / 100 + 0.2 * 0.25 * 9) / 0.5
        1.9

    Differs from the paper in: it prints G in the last line, where its own derivation gives :math:`G^2`.
    """
    size = printed_step_size(horizon, gap, smoothness) if step is None else step
    if least == 0:
        return math.inf
    noise = smoothness / 2 * size * inverse_variance**2 * gradient**2
    return (gap / (size * horizon) + weights / horizon + noise) / least


def bound_of_run(
    make_optimizer: OptimizerFactory, horizon: int, *, samples: int, dimension: int = 256, seed: int = 0
) -> float:
    r"""`convergence_bound` with the constants of a run on the module's problem (:math:`\sigma = 1`).

    G and :math:`P_l` are the largest gradient norm and the least :math:`n \mu^2 / (n \mu^2 + 1)` that the
    run met: the best constants that it allows.

    Args: as for `average_gradient_norm`, and
        samples: n, how many samples the moving average holds.
    """
    largest, least = 0.0, math.inf
    for gradient in _gradients_of_run(make_optimizer, horizon, 1.0, dimension, seed):
        square = gradient.double().square()
        largest = max(largest, math.sqrt(float(square.sum())))
        least = min(least, float((samples * square / (samples * square + 1)).min()))
    return convergence_bound(
        horizon, gap=dimension / 2, smoothness=2.0, gradient=largest, inverse_variance=1.0, least=least,
        weights=dimension,
    )  # fmt: skip


def average_gradient_norm(
    make_optimizer: OptimizerFactory, horizon: int, *, noise: float = 1.0, dimension: int = 256, seed: int = 0
) -> float:
    r"""The mean over :math:`t < T` of the true :math:`\|\nabla L(\theta_t)\|^2` on the module's problem.

    Args:
        make_optimizer: builds any torch optimizer from (parameters, horizon); no closure is passed to its step.
        horizon: :math:`T`, the number of steps.
        noise: :math:`\sigma` of the gradient noise in each coordinate.
        dimension: :math:`d`. The coordinates start alike and differ by noise, so d plays the part of repeats.
        seed: names the noise. The same seed gives every optimizer the same noise. Torch's global stream is
            neither read nor moved; an optimizer that draws from it sees a stream of this seed.

    Example:
        >>> from torch.optim import SGD
        >>> round(average_gradient_norm(lambda p, horizon: SGD(p, lr=0.5), 2, noise=0.0, dimension=4), 4)
        1.255
    """
    squares = [
        gradient.square().sum(dtype=torch.float64)
        for gradient in _gradients_of_run(make_optimizer, horizon, noise, dimension, seed)
    ]
    return torch.stack(squares).sum().item() / horizon


def _gradients_of_run(
    make_optimizer: OptimizerFactory, horizon: int, noise: float, dimension: int, seed: int
) -> list[Tensor]:
    """The true gradient before each step; refuses weights that do not stay finite."""
    stream = torch.Generator().manual_seed(seed)
    theta = nn.Parameter(torch.ones(dimension))
    gradients = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.default_generator.manual_seed(seed)
        optimizer = make_optimizer([theta], horizon)
        for _ in range(horizon):
            gradients.append(2 * theta / (1 + theta.square()).square())
            theta.grad = gradients[-1] + noise * torch.randn(dimension, generator=stream)
            optimizer.step()
    if not (theta.isfinite().all() and all(g.isfinite().all() for g in gradients)):
        raise PaperError(
            f"The weights are no longer finite with horizon={horizon}; give the optimizer a smaller step size."
        )
    return gradients
