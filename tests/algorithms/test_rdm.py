"""RDM against a slow float64 twin, its data sets and its degenerate cases."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from genie_dg._types import DomainBatch, Network, Restart
from genie_dg.algorithms import rdm
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.protocols.domainbed import DOMAINBED
from genie_dg.protocols.draws import draw, entries
from genie_dg.search_space import Choice, LogUniform, Uniform

from .networks import cut, small_network
from .test_penalties import SIZES, check, domain_losses
from .test_sd_information_bottleneck import follow

Twin = Callable[[Network, DomainBatch], Tensor]
GAMMAS = (0.0001, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


def distance_twin(x: list[Tensor], y: list[Tensor]) -> Tensor:
    """Pair by pair."""

    def mean_kernel(p: list[Tensor], q: list[Tensor]) -> Tensor:
        pairs = [torch.exp(-gamma * (a - b) ** 2) for a in p for b in q for gamma in GAMMAS]
        return sum(pairs, torch.zeros(())) / (len(p) * len(q))

    return mean_kernel(x, x) + mean_kernel(y, y) - 2 * mean_kernel(x, y)


def variance_twin(x: list[Tensor]) -> Tensor:
    mean = sum(x, torch.zeros(())) / len(x)
    return sum(((a - mean) ** 2 for a in x), torch.zeros(())) / (len(x) - 1)


def rdm_twin(weight: float, variance: float) -> Twin:
    def loss(network: Network, data: DomainBatch) -> Tensor:
        samples = [
            [-torch.log(torch.softmax(z, 0)[c]) for z, c in zip(network(x), y, strict=True)]
            for x, y in zip(data.images, data.labels, strict=True)
        ]
        means = domain_losses(network, data)
        worst = samples[max(range(len(means)), key=lambda d: means[d].item())]
        everyone = [a for part in samples for a in part]
        total = sum(means, torch.zeros(())) / len(means)
        if weight or variance:
            total = total + weight * distance_twin(worst, everyone)
            total = total + variance * (variance_twin(everyone) + variance_twin(worst))
        return total

    return loss


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("step", "on"), [(6, False), (7, True)])
def test_both_sides_of_the_change_of_weights(sizes: tuple[int, ...], step: int, on: bool) -> None:
    algorithm = rdm.RDM(
        small_network(), len(sizes), rdm_lambda=7.0, rdm_penalty_anneal_iters=7, variance_weight=0.3
    )
    check(algorithm, cut(sizes), rdm_twin(7.0, 0.3) if on else rdm_twin(0.0, 0.0), step)


def test_whole_updates_with_a_fresh_start_at_another_learning_rate() -> None:
    algorithm = rdm.RDM(
        small_network(), 3, rdm_lambda=7.0, rdm_penalty_anneal_iters=3, variance_weight=0.3, rdm_lr=0.002
    )
    off, on = rdm_twin(0.0, 0.0), rdm_twin(7.0, 0.3)
    follow(algorithm, lambda step: on if step >= 3 else off, {3: 0.002})
    assert [step for step in range(6) if algorithm.restarts.get(step) == Restart(0.002)] == [3]


PUBLISHED = {
    # data set: (lambda, first steps, variances, batch), each a default and a rule
    "PACS": ((5.0, Uniform(1.0, 10.0)), (1500, 800, 2700), True, (88, 70, 100)),
    "VLCS": ((5.0, Uniform(0.1, 10.0)), (1500, 800, 2700), True, (88, 70, 100)),
    "OfficeHome": ((5.0, Uniform(0.1, 10.0)), (1500, 800, 2700), False, (88, 70, 100)),
    "TerraIncognita": ((5.0, Uniform(1.0, 10.0)), (1500, 800, 2700), False, (40, 30, 60)),
    "DomainNet": ((0.5, Uniform(0.1, 1.0)), (2400, 1500, 3000), False, (40, 30, 60)),
    "ColoredMNIST": ((5.0, Uniform(0.1, 10.0)), (1500, 800, 2700), True, None),
}


@pytest.mark.parametrize("dataset", list(PUBLISHED))
def test_rules_of_every_data_set(dataset: str) -> None:
    weight, (steps, low, high), variances, size = PUBLISHED[dataset]
    listed = entries(DOMAINBED, dataset, rdm.ROW, OPTIMIZERS["adam"])
    settings = {e.key: (e.setting.default, e.setting.rule) for e in listed}
    assert settings["rdm_lambda"] == weight
    assert settings["rdm_penalty_anneal_iters"] == (steps, Uniform(low, high, whole=True))
    assert settings["variance_weight"] == (
        (0.004, Uniform(0.001, 0.007)) if variances else (0.0, Choice((0.0,)))
    )
    assert settings["rdm_lr"] == (1.5e-5, Uniform(8e-6, 2e-5))
    small = (64, LogUniform(3, 9, base=2.0, whole=True))
    assert settings["batch_size"] == (small if size is None else (size[0], Uniform(*size[1:], whole=True)))
    drawn = draw(DOMAINBED, dataset, rdm.ROW, OPTIMIZERS["adam"], 3, 1)
    rdm.RDM(small_network(), 3, **drawn.algorithm_settings)
