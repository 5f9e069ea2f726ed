"""ANDMask, SANDMask and GSNRDropout: the gradients of the domains decide which weights move."""

from __future__ import annotations

from abc import abstractmethod
from typing import final

import torch
from torch import Tensor

from genie_dg._types import DomainBatch, Network, StepContext
from genie_dg.check import number
from genie_dg.search_space import LogUniform, Setting, Uniform

from .algorithm import AlgorithmRow, OneLoss
from .gradients import domain_gradients, trainable_parameters, with_gradient

_SATURATED = 40.0
"""tanh of this is exactly 1 in float64; a larger argument changes nothing."""


def and_mask(gradients: Tensor, tau: float) -> Tensor:
    r"""The mean gradient of one tensor where enough domains agree on its sign, zero elsewhere.

    .. math::
        m_j = \mathbb 1\Bigl[\,\Bigl|\tfrac1D \sum_d \mathrm{sign}(g_{d,j})\Bigr| \ge \tau\Bigr], \qquad
        \hat g_j = \frac{m_j\,\bar g_j}{10^{-10} + \bar m} , \qquad \bar g_j = \frac1D \sum_d g_{d,j} .

    :math:`\bar m` is the mean of m over the entries of the tensor. With one domain :math:`m = 1`.

    Args:
        gradients: :math:`g_d`, of shape ``[domains, *shape]``.
        tau: :math:`\tau`, the agreement asked for.

    >>> and_mask(torch.tensor([[1.0, 1.0], [3.0, -1.0]]), 1.0)  # the domains agree on the first entry alone
    tensor([4., 0.])
    """
    mean = gradients.mean(0)
    if len(gradients) == 1:
        return mean
    mask = (gradients.detach().sign().mean(0).abs() >= tau).to(mean.dtype)
    return mask * mean / (1e-10 + mask.mean())


def sand_mask(gradients: Tensor, tau: float, k: float) -> Tensor:
    r"""The mean gradient of one tensor, weighted by how far the domains agree in sign and in size.

    .. math::
        m_j = \max\Bigl(0, \tanh\Bigl[\frac{k}{\sigma_j^2}
            \Bigl(\Bigl|\tfrac1D \sum_d \mathrm{sign}(g_{d,j})\Bigr| - \tau\Bigr)\Bigr]\Bigr), \qquad
        \hat g_j = \frac{m_j\,\bar g_j}{10^{-10} + \bar m}

    with :math:`\bar g` and :math:`\bar m` as in `and_mask` and :math:`\sigma_j^2` the unbiased variance of
    :math:`g_{d,j}` over the D domains. Where :math:`\sigma_j^2 = 0`, m is the limit: 1 for an agreement above
    :math:`\tau`, else 0. With one domain :math:`m = 1`.

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
    spread = torch.maximum(gradients.var(0), lead.abs() / _SATURATED)
    mask = torch.tanh(lead / torch.where(lead == 0, 1.0, spread)).clamp_min(0)
    return mask * mean / (1e-10 + mask.mean())


def domain_gsnr(gradients: Tensor) -> Tensor:
    r"""The gradient signal-to-noise ratio of every entry over several gradients.

    .. math:: r_j = \frac{\bar g_j^2}{\rho_j^2}, \qquad \rho_j^2 = \frac1D \sum_d (g_{d,j} - \bar g_j)^2

    Infinite where all gradients are equal, and 0 where all are zero.

    >>> domain_gsnr(torch.tensor([[1.0, 2.0, 0.0, 1.0], [3.0, 2.0, 0.0, -1.0]]))
    tensor([4., inf, 0., 0.])
    """
    signal = gradients.mean(0).square()
    return torch.where(signal > 0, signal / gradients.var(0, unbiased=False), 0.0)


def keep_low(ratios: Tensor, p: float) -> Tensor:
    """1 for every entry but the floor(``p`` n) largest of n, which get 0; of equals the first goes first.

    >>> keep_low(torch.tensor([3.0, 1.0, 4.0, 1.0, 5.0]), 0.5)
    tensor([1., 1., 0., 1., 0.])
    """
    order = ratios.flatten().sort(descending=True, stable=True).indices
    mask = torch.ones_like(ratios).flatten()
    mask[order[: int(p * len(order))]] = 0
    return mask.view_as(ratios)


class GradientMask(OneLoss):
    """Prescribe the mean gradient of the domains, masked; the value is the mean of the domains' losses."""

    @abstractmethod
    def masked(self, gradients: Tensor) -> Tensor:
        """From the gradients ``[domains, *shape]`` of one tensor to the one that is prescribed."""

    def loss(self, batch: DomainBatch, context: StepContext) -> Tensor:
        losses, gradients = domain_gradients(self, batch, context.create_graph)
        masked = [self.masked(g) for g in gradients]
        return with_gradient(losses.mean(), trainable_parameters(self.network), masked)


@final
class ANDMask(GradientMask):
    r"""A weight moves only where the domains agree on the sign of its gradient; see `and_mask`.

    Args:
        tau: :math:`\tau` from 0 to 1. At 1 all domains must agree; at 0 every entry passes and the gradient is
            the plain mean.

    Differs from the paper in the division by :math:`10^{-10} + \bar m`, which keeps the size of the step when
    few entries pass; it is an option of the authors' code, and DomainBed always divides. Differs from the
    public code (DomainBed) in that one domain always gives ERM: there, entries with a gradient of exactly zero
    count as disagreement and make the others larger. With two or more domains they still do.
    """

    def __init__(self, network: Network, domains: int, *, tau: float = 1.0) -> None:
        super().__init__(network, domains)
        self.tau = number("tau", tau, 0, 1)

    def masked(self, gradients: Tensor) -> Tensor:
        return and_mask(gradients, self.tau)


@final
class SANDMask(GradientMask):
    r"""The AND-mask made smooth, with the spread of the domains' gradients as well; see `sand_mask`.

    The published default ``tau=1`` is not kept: no agreement is above 1, so the mask would be zero everywhere
    and nothing would be learnt. The default here is the middle of the published search, 0.5.

    Args:
        tau: :math:`\tau` from 0 to 1, the agreement at which a weight begins to move.
        k: above 0; a large k makes the mask nearly that of 0 and 1.

    The formula is that of the authors' public code, a fork of DomainBed; the paper's text was not at hand.
    Differs from it in: one domain gives ERM (there its variance is not a number and becomes 1e-17); entries
    whose mask is not a number (variance 0 and agreement exactly ``tau``) get 0, not 1e-17. An optimizer that
    differentiates the gradient sees the derivative of the mask in the variance as well.
    """

    def __init__(self, network: Network, domains: int, *, tau: float = 0.5, k: float = 1e1) -> None:
        super().__init__(network, domains)
        self.tau, self.k = number("tau", tau, 0, 1), number("k", k, 0, excluding=(0,))

    def masked(self, gradients: Tensor) -> Tensor:
        return sand_mask(gradients, self.tau, self.k)


@final
class GSNRDropout(GradientMask):
    r"""The share p of entries that have the highest GSNR sits out the step.

    .. math:: \hat g_j = m_j\,\bar g_j, \qquad m_j = 0 \text{ for the } \lfloor p\,n \rfloor
              \text{ entries of a tensor with the largest } r_j, \text{ else } 1

    with n the number of entries of the tensor and :math:`r_j` the `gsnr` over the domains' gradients. Weights
    with a clear gradient, which the paper holds for overly predictive, wait; the others are trained. Kept
    gradients are not scaled up. The mask follows from the gradients alone, so nothing is drawn at random.

    Args:
        domains: D. A single domain is cut into two halves, and these take the domains' place.
        p: the share that sits out, from 0 up to, not including, 1. The default and the range of the search are
            those of RSC, the closest published relative, since the paper learns p.

    **Derived from the description**, without public code. Known from the paper's abstract and its first figure:
    at every training step the parameters with the highest GSNR are discarded in place of a random choice, and
    the share p is learnt by meta-learning. The GENIE paper, which answers it, calls it a masking of gradients
    that favours parameters of low GSNR. Ours are: the mask acts on the gradient and not on the weight in the
    forward pass (a masked weight has no gradient either way); the ratio is taken over domains; the ranking is
    done in each tensor, so that no layer stands still; p is a setting and not learnt.
    """

    def __init__(self, network: Network, domains: int, *, p: float = 1 / 3) -> None:
        super().__init__(network, domains)
        self.p = number("p", p, 0, 1, excluding=(1,))

    def loss(self, batch: DomainBatch, context: StepContext) -> Tensor:
        if len(batch) == 1:
            batch = DomainBatch(batch.images[0].chunk(2), batch.labels[0].chunk(2))
        return super().loss(batch, context)

    def masked(self, gradients: Tensor) -> Tensor:
        """With a single gradient, which has no noise to compare with, nothing is masked."""
        p = self.p if len(gradients) > 1 else 0.0
        return gradients.mean(0) * keep_low(domain_gsnr(gradients.detach()), p)


AND_ROW = AlgorithmRow(
    "ANDMask",
    ANDMask,
    paper="Parascandolo et al., Learning explanations that are hard to vary, ICLR 2021",
    space={"tau": Setting(1.0, Uniform(0.5, 1.0), "DomainBed")},
    one_source="With one source domain every entry agrees with itself: ANDMask equals ERM.",
    inner_gradients=True,
    domainbed=1e-10,
    differs="With one domain it is ERM; in DomainBed entries with a gradient of exactly 0 make the others "
    "larger. The paper says nothing of one domain.",
)
SAND_ROW = AlgorithmRow(
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
    domainbed=1e-10,
    differs="The default of tau is 0.5; DomainBed's default of 1 masks everything, so nothing is learnt. Its "
    "search, U(0, 1), is kept.",
)
GSNR_DROPOUT_ROW = AlgorithmRow(
    "GSNRDropout",
    GSNRDropout,
    paper="Michalkiewicz et al., Domain Generalization Guided by Gradient Signal to Noise Ratio of Parameters, "
    "ICCV 2023",
    space={"p": Setting(1 / 3, Uniform(0.0, 0.5), "the range of RSC; the paper learns p")},
    one_source="With one source domain the signal-to-noise ratio is that of the two halves of its batch.",
    inner_gradients=True,
)
