"""Empirical risk minimisation: the mean loss over all samples of all domains."""

from __future__ import annotations

from torch import Tensor

from genie_dg._types import DomainBatch, StepContext

from .algorithm import AlgorithmRow, OneLoss


class ERM(OneLoss):
    r"""Minimise :math:`\frac1N \sum_i \ell(f(x_i), y_i)` over the pooled batch."""

    def loss(self, batch: DomainBatch, context: StepContext) -> Tensor:
        return self.classification_loss(self.network(batch.all_images), batch.all_labels)


ROW = AlgorithmRow("ERM", ERM, paper="Vapnik, Statistical Learning Theory, 1998", domainbed=1e-10)
