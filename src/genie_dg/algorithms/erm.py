"""Empirical risk minimisation: the mean loss over all samples of all domains."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor
from torch.nn.functional import cross_entropy

from genie_dg._types import MAIN, DomainBatch, Objective, StepContext

from .algorithm import Algorithm, AlgorithmRow


class ERM(Algorithm):
    r"""Minimise :math:`\frac1N \sum_i \ell(f(x_i), y_i)` over the pooled batch."""

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        images, labels = batch.all_images, batch.all_labels

        def loss() -> Tensor:
            return cross_entropy(self.network(images), labels)

        yield Objective(MAIN, loss)


ROW = AlgorithmRow("ERM", ERM, paper="Vapnik, Statistical Learning Theory, 1998", sample_mean=True)
