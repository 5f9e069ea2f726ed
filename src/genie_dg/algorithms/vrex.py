"""Variance risk extrapolation: the mean of the domains' losses and their variance."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from genie_dg._types import MAIN, DomainBatch, Network, Objective, StepContext
from genie_dg.check import number
from genie_dg.search_space import LogUniform, Setting

from ._penalties import losses_of_domains, two_stage_weight
from .algorithm import Algorithm, AlgorithmRow


def population_variance(losses: Tensor) -> Tensor:
    """The mean squared deviation from the mean (divided by the count, not by the count less one).

    >>> import torch
    >>> population_variance(torch.tensor([1.0, 3.0])).item()
    1.0
    """
    return (losses - losses.mean()).square().mean()


class VREx(Algorithm):
    r"""Mean loss of the domains plus the variance of these losses.

    .. math::
        L = \bar R + \lambda_t \frac1D \sum_d (R_d - \bar R)^2, \qquad \bar R = \frac1D \sum_d R_d

    R_d is the mean cross entropy of domain d. :math:`\lambda_t` is 1, not 0, in the first
    ``vrex_penalty_anneal_iters`` steps and ``vrex_lambda`` (the paper's beta) from then on. All domains go
    through the network together.

    Args:
        network: makes the predictions.
        domains: how many training domains every batch has.
        vrex_lambda: weight of the variance after the first steps.
        vrex_penalty_anneal_iters: how many first steps have weight 1.

    References:
        Krueger et al., Out-of-Distribution Generalization via Risk Extrapolation (REx), ICML 2021.

    Differs from the paper in that the losses of the domains are averaged, not summed.

    Differs from the public code (DomainBed) in that the optimizer is not reset at step
    ``vrex_penalty_anneal_iters``: an algorithm owns no optimizer.
    """

    def __init__(
        self,
        network: Network,
        domains: int,
        *,
        vrex_lambda: float = 1e1,
        vrex_penalty_anneal_iters: int = 500,
    ) -> None:
        super().__init__(network, domains)
        self.vrex_lambda = number("vrex_lambda", vrex_lambda, 0)
        self.vrex_penalty_anneal_iters = number("vrex_penalty_anneal_iters", vrex_penalty_anneal_iters, 0)

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        images = batch.all_images
        weight = two_stage_weight(context.step, self.vrex_penalty_anneal_iters, self.vrex_lambda)

        def loss() -> Tensor:
            losses = losses_of_domains(self.network(images), batch)
            return losses.mean() + weight * population_variance(losses)

        yield Objective(MAIN, loss)


ROW = AlgorithmRow(
    "VREx",
    VREx,
    paper="Krueger et al., Out-of-Distribution Generalization via Risk Extrapolation (REx), ICML 2021",
    space={
        "vrex_lambda": Setting(1e1, LogUniform(-1, 5)),
        "vrex_penalty_anneal_iters": Setting(500, LogUniform(0, 4, whole=True)),
    },
    one_source="With one source domain VREx equals ERM: the variance of a single loss is 0.",
)
