"""IGA: a penalty on the variance of the gradient over domains."""

from __future__ import annotations

from typing import final

from torch import Tensor

from genie_dg._types import DomainBatch, Network, StepContext
from genie_dg.check import number
from genie_dg.search_space import LogUniform, Setting

from .algorithm import AlgorithmRow, OneLoss
from .gradients import domain_gradients


@final
class IGA(OneLoss):
    r"""Inter-environmental gradient alignment.

    With :math:`L_d` the mean loss of domain d and :math:`g_d = \nabla_\theta L_d`,

    .. math::
        \frac1D \sum_d L_d + \lambda\, \frac1D \sum_d \lVert g_d - \bar g \rVert^2 ,
        \qquad \bar g = \frac1D \sum_d g_d .

    The second term is the trace of the covariance of the gradient over domains. Its gradient needs second
    derivatives of the losses, which are computed.

    Args:
        penalty: :math:`\lambda`.

    Differs from the public code (DomainBed) in: the squared distances are averaged over domains as in the
    variance, not summed, so the same ``penalty`` weighs D times less here; and the mean gradient stays in the
    graph, which changes second derivatives only, since the distances sum to zero. The first public version took
    all gradients without a graph, so its penalty had no gradient; that is not so here.
    """

    def __init__(self, network: Network, domains: int, *, penalty: float = 1000.0) -> None:
        super().__init__(network, domains)
        self.penalty = number("penalty", penalty, 0)

    def loss(self, batch: DomainBatch, context: StepContext) -> Tensor:
        losses, gradients = domain_gradients(self, batch, create_graph=True)
        trace = sum(((g - g.mean(0)).square().sum() for g in gradients), losses.new_zeros(()))
        return losses.mean() + self.penalty / len(losses) * trace


ROW = AlgorithmRow(
    "IGA",
    IGA,
    paper="Koyama and Yamaguchi, When is invariance useful in an Out-of-Distribution Generalization problem?, "
    "arXiv 2008.01883, 2020",
    space={"penalty": Setting(1000.0, LogUniform(1, 5), "DomainBed")},
    one_source="With one source domain the variance over domains is zero: IGA equals ERM.",
    inner_gradients=True,
    domainbed=1e-10,
    differs="The penalty is the variance over domains, as in the paper; DomainBed sums over domains, so the "
    "same penalty weighs D times less here.",
)
