"""RDM: the losses of the worst domain's samples are distributed as those of all samples."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from genie_dg._types import DomainBatch, Network, Restart, StepContext
from genie_dg.check import number
from genie_dg.search_space import Choice, Setting, Uniform

from .algorithm import AlgorithmRow, OneLoss

_GAMMAS = tuple(10.0**k for k in range(-4, 4))


def risk_distance(x: Tensor, y: Tensor) -> Tensor:
    r"""The squared maximum mean discrepancy (biased estimate) of two sets of numbers, under Gaussian kernels.

    .. math:: \overline{K(x, x)} + \overline{K(y, y)} - 2\,\overline{K(x, y)}, \qquad
        K(a, b) = \sum_\gamma e^{-\gamma (a - b)^2}

    A bar is the mean over all pairs, a number's pair with itself among them; gamma is 0.0001, 0.001, ..., 1000.

    >>> x, y = torch.zeros(3), torch.full((2,), 1e4)
    >>> risk_distance(x, y).item()  # 2 x 8 kernels of 1, nothing across
    16.0
    >>> round(risk_distance(torch.zeros(1), torch.ones(1)).item(), 4)
    7.4766
    """
    return _mean_kernel(x, x) + _mean_kernel(y, y) - 2 * _mean_kernel(x, y)


def _mean_kernel(x: Tensor, y: Tensor) -> Tensor:
    squares = (x[:, None] - y).square()
    return torch.stack([torch.exp(-gamma * squares).mean() for gamma in _GAMMAS]).sum()


@final
class RDM(OneLoss):
    r"""Mean loss of the domains, the distance between the worst domain's losses and all, and their variances.

    .. math::
        L = \frac1D \sum_d R_d + w_t \Big[ \lambda\,\mathrm{distance}(\ell_{d^*}, \ell)
            + \nu \big( \mathrm{Var}(\ell) + \mathrm{Var}(\ell_{d^*}) \big) \Big], \qquad
        d^* = \arg\max_d R_d

    :math:`\ell_d` are the cross entropies of the samples of domain d, R_d is their mean, :math:`\ell` those of
    all domains; the distance is `risk_distance`, variances are divided by the number less one, and
    :math:`w_t` is 0 in the first ``rdm_penalty_anneal_iters`` steps and 1 after them. All domains go through
    the network together. Where two domains are worst, the first counts.

    Args:
        rdm_lambda: :math:`\lambda`.
        rdm_penalty_anneal_iters: how many first steps go without penalties; at that step the optimizer starts
            afresh.
        variance_weight: :math:`\nu`.
        rdm_lr: the learning rate from that step on, as it would be for Adam.

    The paper's idea is the distance; the variances and the fresh start are as in DomainBed. Differs from
    DomainBed's code in that domains may have different numbers of samples, and in one domain: there the "worst
    domain" is then a single sample, whose variance is not a number.
    """

    least_samples = 2

    def __init__(
        self,
        network: Network,
        domains: int,
        *,
        rdm_lambda: float = 5.0,
        rdm_penalty_anneal_iters: int = 1500,
        variance_weight: float = 0.004,
        rdm_lr: float = 1.5e-5,
    ) -> None:
        super().__init__(network, domains)
        self.rdm_lambda = number("rdm_lambda", rdm_lambda, 0)
        self.rdm_penalty_anneal_iters = number("rdm_penalty_anneal_iters", rdm_penalty_anneal_iters, 0)
        self.variance_weight = number("variance_weight", variance_weight, 0)
        self.restarts = {self.rdm_penalty_anneal_iters: Restart(number("rdm_lr", rdm_lr, 0))}

    def loss(self, batch: DomainBatch, context: StepContext) -> Tensor:
        losses = self.classification_loss(self.network(batch.all_images), batch.all_labels, reduction="none")
        parts = torch.split(losses, batch.sizes)
        means = torch.stack([part.mean() for part in parts])
        if context.step < self.rdm_penalty_anneal_iters:
            return means.mean()
        worst = parts[int(means.argmax())]
        distance = self.rdm_lambda * risk_distance(worst, losses)
        return means.mean() + distance + self.variance_weight * (losses.var() + worst.var())


_LARGE_BATCH = Setting(88, Uniform(70, 100, whole=True), "DomainBed")
_SMALL_BATCH = Setting(40, Uniform(30, 60, whole=True), "DomainBed")
_NO_VARIANCE = Setting(0.0, Choice((0.0,)), "DomainBed")
_LAMBDA = Setting(5.0, Uniform(1.0, 10.0), "DomainBed")
ROW = AlgorithmRow(
    "RDM",
    RDM,
    paper="Nguyen et al., Domain Generalisation via Risk Distribution Matching, WACV 2024",
    space={
        "rdm_lambda": Setting(5.0, Uniform(0.1, 10.0), "DomainBed"),
        "rdm_penalty_anneal_iters": Setting(1500, Uniform(800, 2700, whole=True), "DomainBed"),
        "variance_weight": Setting(0.004, Uniform(0.001, 0.007), "DomainBed"),
        "rdm_lr": Setting(1.5e-5, Uniform(8e-6, 2e-5), "DomainBed"),
    },
    by_set={
        "large": {"batch_size": _LARGE_BATCH},
        "PACS": {"rdm_lambda": _LAMBDA},
        "OfficeHome": {"variance_weight": _NO_VARIANCE},
        "TerraIncognita": {"rdm_lambda": _LAMBDA, "variance_weight": _NO_VARIANCE, "batch_size": _SMALL_BATCH},
        "DomainNet": {
            "rdm_lambda": Setting(0.5, Uniform(0.1, 1.0), "DomainBed"),
            "rdm_penalty_anneal_iters": Setting(2400, Uniform(1500, 3000, whole=True), "DomainBed"),
            "variance_weight": _NO_VARIANCE,
            "batch_size": _SMALL_BATCH,
        },
    },
    domainbed=1e-10,
    one_source="With one source domain RDM has nothing to match: the distance is 0, and what is left is ERM "
    "plus variance_weight times twice the variance of the losses.",
)
