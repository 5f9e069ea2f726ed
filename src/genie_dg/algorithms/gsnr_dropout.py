"""GSNR-guided dropout: the weights whose gradient is clearest sit out the step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor

from genie_dg._types import MAIN, DomainBatch, Network, Objective, StepContext
from genie_dg.check import number
from genie_dg.search_space import Setting, Uniform

from .algorithm import Algorithm, AlgorithmRow
from .gradients import domain_gradients, trainable, with_gradient


def gsnr(gradients: Tensor) -> Tensor:
    r"""The gradient signal-to-noise ratio of every entry over several gradients.

    .. math:: r_j = \frac{\bar g_j^2}{\rho_j^2}, \qquad \rho_j^2 = \frac1D \sum_d (g_{d,j} - \bar g_j)^2

    Infinite where all gradients are equal, and 0 where all are zero.

    >>> gsnr(torch.tensor([[1.0, 2.0, 0.0, 1.0], [3.0, 2.0, 0.0, -1.0]]))
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


def halves(batch: DomainBatch) -> DomainBatch:
    """The two halves of a single domain in the place of two domains; one sample alone stays alone."""
    return DomainBatch(batch.images[0].chunk(2), batch.labels[0].chunk(2))


@final
class GSNRDropout(Algorithm):
    r"""Prescribe the mean gradient of the domains without the share p of entries that have the highest GSNR.

    .. math:: \hat g_j = m_j\,\bar g_j, \qquad m_j = 0 \text{ for the } \lfloor p\,n \rfloor
              \text{ entries of a tensor with the largest } r_j, \text{ else } 1

    with n the number of entries of the tensor and :math:`r_j` the `gsnr` over the domains' gradients. Weights
    with a clear gradient, which the paper holds for overly predictive, wait; the others are trained. Kept
    gradients are not scaled up. The mask follows from the gradients alone, so nothing is drawn at random.

    The value of the loss is the mean of the domains' losses.

    Args:
        network: makes the predictions.
        domains: D. A single domain is cut into two halves, and these take the domains' place.
        p: the share that sits out, from 0 up to, not including, 1. The default and the range of the search are
            those of RSC, the closest published relative, since the paper learns p.

    References:
        Michalkiewicz, Faraki, Yu, Chandraker, Baktashmotlagh, Domain Generalization Guided by Gradient Signal
        to Noise Ratio of Parameters, ICCV 2023.

    **Derived from the description**, without public code. Known from the paper's abstract and its first figure:
    at every training step the parameters with the highest GSNR are discarded in place of a random choice, and
    the share p is learnt by meta-learning. The GENIE paper, which answers it, calls it a masking of gradients
    that favours parameters of low GSNR. Ours are: the mask acts on the gradient and not on the weight in the
    forward pass (a masked weight has no gradient either way); the ratio is taken over domains; the ranking is
    done in each tensor, so that no layer stands still; p is a setting and not learnt.
    """

    def __init__(self, network: Network, domains: int, *, p: float = 1 / 3) -> None:
        super().__init__(network, domains)
        self.p = number("p", p, 0, 1, open_high=True)

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        parameters = trainable(self.network)
        parts = halves(batch) if len(batch) == 1 else batch

        def loss() -> Tensor:
            losses, gradients = domain_gradients(self.network, parts, parameters, context.create_graph)
            masked = [g.mean(0) * self._mask(g.detach()) for g in gradients]
            return with_gradient(losses.mean(), parameters, masked)

        yield Objective(MAIN, loss)

    def _mask(self, gradients: Tensor) -> Tensor:
        """Ones when there is a single gradient, which has no noise to compare with."""
        return keep_low(gsnr(gradients), self.p if len(gradients) > 1 else 0.0)


ROW = AlgorithmRow(
    "GSNRDropout",
    GSNRDropout,
    paper="Michalkiewicz et al., Domain Generalization Guided by Gradient Signal to Noise Ratio of Parameters, "
    "ICCV 2023",
    space={"p": Setting(1 / 3, Uniform(0.0, 0.5), "the range of RSC; the paper learns p")},
    one_source="With one source domain the signal-to-noise ratio is that of the two halves of its batch.",
    inner_gradients=True,
)
