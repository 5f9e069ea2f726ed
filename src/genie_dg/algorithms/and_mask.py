"""AND-mask: a weight moves only where the domains agree on the sign of its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from torch import Tensor

from genie_dg._types import MAIN, DomainBatch, Network, Objective, StepContext
from genie_dg.check import number
from genie_dg.search_space import Setting, Uniform

from .algorithm import Algorithm, AlgorithmRow
from .gradients import domain_gradients, trainable, with_gradient


def and_mask(gradients: Tensor, tau: float) -> Tensor:
    r"""The mean gradient of one tensor where enough domains agree on its sign, zero elsewhere.

    .. math::
        m_j = \mathbb 1\Bigl[\,\Bigl|\tfrac1D \sum_d \mathrm{sign}(g_{d,j})\Bigr| \ge \tau\Bigr], \qquad
        \hat g_j = \frac{m_j\,\bar g_j}{10^{-10} + \bar m} , \qquad \bar g_j = \frac1D \sum_d g_{d,j} .

    :math:`\bar m` is the mean of m over the entries of the tensor. With one domain :math:`m = 1`.

    Args:
        gradients: :math:`g_d`, of shape ``[domains, *shape]``.
        tau: :math:`\tau`, the agreement asked for.

    >>> import torch
    >>> and_mask(torch.tensor([[1.0, 1.0], [3.0, -1.0]]), 1.0)  # the domains agree on the first entry alone
    tensor([4., 0.])
    """
    mean = gradients.mean(0)
    if len(gradients) == 1:
        return mean
    mask = (gradients.detach().sign().mean(0).abs() >= tau).to(mean.dtype)
    return mask * mean / (1e-10 + mask.mean())


@final
class ANDMask(Algorithm):
    r"""Prescribe the mean gradient of the domains, masked by `and_mask`, tensor by tensor.

    The value of the loss is the mean of the domains' losses.

    Args:
        network: makes the predictions.
        domains: how many training domains every batch has.
        tau: :math:`\tau` from 0 to 1. At 1 all domains must agree; at 0 every entry passes and the gradient is
            the plain mean.

    References:
        Parascandolo et al., Learning explanations that are hard to vary, ICLR 2021.

    Differs from the paper in the division by :math:`10^{-10} + \bar m`, which keeps the size of the step when
    few entries pass. The paper's rule is :math:`m_j \bar g_j`; the authors' code offers the division as an
    option, which their example runs switch on, and DomainBed always divides.

    Differs from the public code (DomainBed) in that one domain always gives ERM: there, entries with a gradient
    of exactly zero count as disagreement and make the others larger. With two or more domains they still do.
    """

    def __init__(self, network: Network, domains: int, *, tau: float = 1.0) -> None:
        super().__init__(network, domains)
        self.tau = number("tau", tau, 0, 1)

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        parameters = trainable(self.network)

        def loss() -> Tensor:
            losses, gradients = domain_gradients(self.network, batch, parameters, context.create_graph)
            return with_gradient(losses.mean(), parameters, [and_mask(g, self.tau) for g in gradients])

        yield Objective(MAIN, loss)


ROW = AlgorithmRow(
    "ANDMask",
    ANDMask,
    paper="Parascandolo et al., Learning explanations that are hard to vary, ICLR 2021",
    space={"tau": Setting(1.0, Uniform(0.5, 1.0), "DomainBed")},
    one_source="With one source domain every entry agrees with itself: ANDMask equals ERM.",
    inner_gradients=True,
)
