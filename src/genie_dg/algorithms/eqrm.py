"""EQRM: lower a quantile of the distribution of risks over domains."""

from __future__ import annotations

from math import ceil, pi, sqrt
from statistics import NormalDist
from typing import final

import torch
from torch import Tensor

from genie_dg._types import DomainBatch, Network, Restart, StepContext
from genie_dg.check import number
from genie_dg.search_space import LogUniform, Setting, Uniform

from .algorithm import AlgorithmRow, OneLoss

_BISECTIONS = 60
"""Enough for a double: an interval of a few bandwidths shrinks below its rounding errors."""


def smoothed_quantile(risks: Tensor, level: float) -> Tensor:
    r"""The quantile of a Gaussian kernel density estimate: the q with :math:`F(q) = \text{level}`.

    .. math:: F(q) = \frac1n \sum_i \Phi\Big(\frac{q - r_i}{h}\Big), \qquad h = 1.06\,s\,n^{-1/5}

    s is the standard deviation of the risks r (divided by n - 1), :math:`\Phi` the distribution function of the
    standard normal. With :math:`u_i = (r_i - \bar r) / s` the quantile is :math:`\bar r + s\,q_u`, where
    :math:`q_u` is that of the u under the bandwidth :math:`1.06\,n^{-1/5}`: its root is bracketed and bisected,
    and two Newton steps from there, which no longer change the value, give it the derivative of an implicit
    function, and that derivative its own:

    .. math:: \frac{\partial q}{\partial r_i} = -\frac{\partial F / \partial r_i}{\partial F / \partial q}

    A single risk, and risks that are all equal, are their own quantiles: the mean is returned. The true
    quantile has no derivative there; that of the mean takes its place.

    Args:
        risks: :math:`r`, one for each domain, in float32 or float64.
        level: above 0 and below 1.

    >>> r = torch.tensor([1.0, 3.0], dtype=torch.float64, requires_grad=True)
    >>> round(smoothed_quantile(r, 0.5).item(), 4), round(smoothed_quantile(r, 0.9).item(), 4)
    (2.0, 4.1366)
    >>> [round(g, 4) for g in torch.autograd.grad(smoothed_quantile(r, 0.9), r)[0].tolist()]
    [-0.5683, 1.5683]
    >>> smoothed_quantile(torch.tensor([2.0, 2.0, 2.0]), 0.9).item()
    2.0
    """
    n, centre = len(risks), risks.detach().mean()
    apart = risks - centre  # exact where risks are close, so that their differences keep their digits
    if n == 1 or float(apart.detach().std()) <= torch.finfo(risks.dtype).tiny:
        return risks.mean()
    mean, s, width = apart.mean(), apart.std(), 1.06 * n**-0.2
    u = (apart - mean) / s
    q = u.new_tensor(_bisected(u.tolist(), width, level))
    for _ in range(2):
        z = (q - u) / width
        density = torch.exp(-z.square() / 2).mean() / (width * sqrt(2 * pi))
        q = q - (torch.special.ndtr(z).mean() - level) / density
    return centre + (mean + s * q)


def _bisected(centres: list[float], width: float, level: float) -> float:
    """Where the mean of the normal distribution functions around the centres passes the level."""
    bumps = [NormalDist(centre, width) for centre in centres]
    ends = [bump.inv_cdf(level) for bump in bumps]
    low, high = min(ends), max(ends)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if sum(bump.cdf(middle) for bump in bumps) > level * len(bumps):
            high = middle
        else:
            low = middle
    return (low + high) / 2


@final
class EQRM(OneLoss):
    r"""The quantile of the domains' risks that a share ``eqrm_quantile`` of domains stays below.

    .. math::
        L = \frac1D \sum_d R_d \;\text{ in the first ``eqrm_burnin_iters`` steps, then }\;
        L = F^{-1}_{R_1, \dots, R_D}(\alpha)

    R_d is the mean cross entropy of domain d, each domain a forward pass of its own, and :math:`F^{-1}` the
    `smoothed_quantile`.

    Args:
        eqrm_quantile: :math:`\alpha`, above 0 and below 1.
        eqrm_burnin_iters: how many first steps take the mean; it need not be whole. After them the optimizer
            starts afresh.
        eqrm_lr: the learning rate from then on, as it would be for Adam.

    Differs from DomainBed's code in the gradient and in the fresh start, see the row; in equal risks
    and in one domain, where its bandwidth is 0 or not a number and it stops; and in that levels so close to 1
    that they are given as logarithms are left out.
    """

    def __init__(
        self,
        network: Network,
        domains: int,
        *,
        eqrm_quantile: float = 0.75,
        eqrm_burnin_iters: float = 2500,
        eqrm_lr: float = 1e-6,
    ) -> None:
        super().__init__(network, domains)
        self.eqrm_quantile = number("eqrm_quantile", eqrm_quantile, 0, 1, excluding=(0, 1))
        self.eqrm_burnin_iters = number("eqrm_burnin_iters", eqrm_burnin_iters, 0)
        self.restarts = {ceil(self.eqrm_burnin_iters): Restart(number("eqrm_lr", eqrm_lr, 0))}

    def loss(self, batch: DomainBatch, context: StepContext) -> Tensor:
        risks = self.losses_of_domains(map(self.network, batch.images), batch.labels)
        if context.step < self.eqrm_burnin_iters:
            return risks.mean()
        return smoothed_quantile(risks, self.eqrm_quantile)  # in float32 also inside autocast, as the risks are


ROW = AlgorithmRow(
    "EQRM",
    EQRM,
    paper="Eastwood et al., Probable Domain Generalization via Quantile Risk Minimization, NeurIPS 2022",
    space={
        "eqrm_quantile": Setting(0.75, Uniform(0.5, 0.99), "DomainBed"),
        "eqrm_burnin_iters": Setting(2500, LogUniform(2.5, 3.5), "DomainBed"),
        "eqrm_lr": Setting(1e-6, LogUniform(-7, -5), "DomainBed"),
    },
    domainbed=1e-10,
    differs="DomainBed differentiates the steps of its bisection, so that its gradient is that of a fixed "
    "mixture of the smallest risk, the largest risk and the bandwidth; here it is the quantile's own, in which "
    "every domain has a part, as in the paper's algorithm. The value is the same. DomainBed starts Adam afresh "
    "at a step equal to eqrm_burnin_iters, which random search draws as a fraction that no step equals, so "
    "that eqrm_lr has an effect with the default only; here it has one from the first step after the burn-in "
    "on, which is what the setting is for. With the gradient put right there and whole burn-ins, the updates "
    "are the same.",
    one_source="With one source domain EQRM equals ERM with a fresh start: the quantile of a single risk is "
    "that risk.",
)
