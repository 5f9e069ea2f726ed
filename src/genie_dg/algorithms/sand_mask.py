"""SAND-mask: the AND-mask made smooth, with the spread of the domains' gradients as well as their signs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor

from genie_dg._types import MAIN, DomainBatch, Network, Objective, StepContext
from genie_dg.check import number
from genie_dg.search_space import LogUniform, Setting, Uniform

from .algorithm import Algorithm, AlgorithmRow
from .gradients import domain_gradients, trainable, with_gradient

SATURATED = 40.0
"""tanh of this is exactly 1 in float64; a larger argument changes nothing."""


def sand_mask(gradients: Tensor, tau: float, k: float) -> Tensor:
    r"""The mean gradient of one tensor, weighted by how far the domains agree in sign and in size.

    .. math::
        m_j = \max\Bigl(0, \tanh\Bigl[\frac{k}{\sigma_j^2}
            \Bigl(\Bigl|\tfrac1D \sum_d \mathrm{sign}(g_{d,j})\Bigr| - \tau\Bigr)\Bigr]\Bigr), \qquad
        \hat g_j = \frac{m_j\,\bar g_j}{10^{-10} + \bar m}

    with :math:`\bar g_j` the mean and :math:`\sigma_j^2` the unbiased variance of :math:`g_{d,j}` over the D
    domains, and :math:`\bar m` the mean of m over the entries of the tensor. Where :math:`\sigma_j^2 = 0`, m is
    the limit: 1 for an agreement above :math:`\tau`, else 0. With one domain :math:`m = 1`.

    Args:
        gradients: :math:`g_d`, of shape ``[domains, *shape]``.
        tau: :math:`\tau`.
        k: the steepness.

    >>> g = torch.tensor([[1.0, 1.0, 2.0], [3.0, -1.0, 2.0]])  # variances 2, 2, 0
    >>> mask = torch.tensor([torch.tensor(0.8 / 2 * (1 - 0.5)).tanh(), 0.0, 1.0])
    >>> torch.allclose(sand_mask(g, 0.5, 0.8), mask * torch.tensor([2.0, 0.0, 2.0]) / mask.mean())
    True
    """
    mean = gradients.mean(0)
    if len(gradients) == 1:
        return mean
    lead = k * (gradients.detach().sign().mean(0).abs() - tau)
    # a smaller variance gives the same mask; held there, the quotient and its derivative stay finite
    spread = torch.maximum(gradients.var(0), lead.abs() / SATURATED)
    mask = torch.tanh(lead / torch.where(lead == 0, 1.0, spread)).clamp_min(0)
    return mask * mean / (1e-10 + mask.mean())


@final
class SANDMask(Algorithm):
    r"""Prescribe the mean gradient of the domains, masked by `sand_mask`, tensor by tensor.

    The value of the loss is the mean of the domains' losses.

    The published default ``tau=1`` is not kept: no agreement is above 1, so the mask would be zero everywhere
    and nothing would be learnt. The default here is the middle of the published search, 0.5.

    Args:
        network: makes the predictions.
        domains: how many training domains every batch has.
        tau: :math:`\tau` from 0 to 1, the agreement at which a weight begins to move.
        k: above 0; a large k makes the mask nearly that of 0 and 1.

    References:
        Shahtalebi et al., SAND-mask: An Enhanced Gradient Masking Strategy for the Discovery of Invariances in
        Domain Generalization, 2021.

    The formula is that of the authors' public code, a fork of DomainBed; the paper's text was not at hand.
    Differs from it in: one domain gives ERM (there its variance is not a number and becomes 1e-17); entries
    whose mask is not a number (variance 0 and agreement exactly ``tau``) get 0, not 1e-17. An optimizer that
    differentiates the gradient sees the derivative of the mask in the variance as well.
    """

    def __init__(self, network: Network, domains: int, *, tau: float = 0.5, k: float = 1e1) -> None:
        super().__init__(network, domains)
        self.tau, self.k = number("tau", tau, 0, 1), number("k", k, 0, open_low=True)

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        parameters = trainable(self.network)

        def loss() -> Tensor:
            losses, gradients = domain_gradients(self.network, batch, parameters, context.create_graph)
            masked = [sand_mask(g, self.tau, self.k) for g in gradients]
            return with_gradient(losses.mean(), parameters, masked)

        yield Objective(MAIN, loss)


ROW = AlgorithmRow(
    "SANDMask",
    SANDMask,
    paper="Shahtalebi et al., SAND-mask: An Enhanced Gradient Masking Strategy for the Discovery of "
    "Invariances in Domain Generalization, arXiv 2106.02266, 2021",
    space={
        "tau": Setting(
            0.5, Uniform(0.0, 1.0), "rule: DomainBed; default: ours, since the published 1 learns nothing"
        ),
        "k": Setting(1e1, LogUniform(-3, 5), "DomainBed"),
    },
    one_source="With one source domain the mask is defined as 1 everywhere: SANDMask equals ERM.",
    inner_gradients=True,
)
