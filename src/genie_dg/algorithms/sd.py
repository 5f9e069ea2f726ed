"""Spectral decoupling: a penalty on the size of the logits, so that no feature starves the others."""

from __future__ import annotations

from typing import final

from torch import Tensor

from genie_dg._types import DomainBatch, Network, StepContext
from genie_dg.check import number
from genie_dg.search_space import LogUniform, Setting

from .algorithm import AlgorithmRow, OneLoss, at_least_float32


@final
class SD(OneLoss):
    r"""The mean loss plus the mean squared logit.

    .. math:: L = \frac1N \sum_i \Big[ \ell(f(x_i), y_i) + \lambda\,\frac1K \sum_k f(x_i)_k^2 \Big]

    f(x) are the K logits of a sample, N the samples of all domains, which go through the network together; the
    domains play no part in it.

    Args:
        sd_reg: :math:`\lambda`.

    Differs from the paper (equation 25, for two classes and one logit) in that the squares are averaged over
    samples and classes and have no factor 1/2, as in DomainBed.
    """

    def __init__(self, network: Network, domains: int, *, sd_reg: float = 0.1) -> None:
        super().__init__(network, domains)
        self.sd_reg = number("sd_reg", sd_reg, 0)

    def loss(self, batch: DomainBatch, context: StepContext) -> Tensor:
        logits = at_least_float32(self.network(batch.all_images))
        return self.classification_loss(logits, batch.all_labels) + self.sd_reg * logits.square().mean()


ROW = AlgorithmRow(
    "SD",
    SD,
    paper="Pezeshki et al., Gradient Starvation: A Learning Proclivity in Neural Networks, NeurIPS 2021",
    space={"sd_reg": Setting(0.1, LogUniform(-5, -1), "DomainBed")},
    domainbed=1e-10,
)
