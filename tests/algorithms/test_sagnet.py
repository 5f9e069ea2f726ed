"""SagNet against its three updates written sample by sample."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.sagnet import SagNet
from genie_dg.bench.step import take_step

from .networks import SmallNetwork, VectorPoints, batch, descend, mean_loss, same, small_network, steppers

LR, WEIGHT, EPS = 0.4, 0.7, 1e-5


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of a list of numbers, divided by their count."""
    mu = x.sum() / x.numel()
    return mu, torch.sqrt(((x - mu) ** 2).sum() / x.numel() + EPS)


def styled(x: Tensor, alpha: Tensor, partner: list[int]) -> Tensor:
    """SR for each sample (and each channel when x has space)."""
    if x.ndim == 4:
        return torch.stack([styled(x[:, c].flatten(1), alpha, partner) for c in range(x.shape[1])], 1).view_as(
            x
        )
    rows = []
    for i in range(len(x)):
        (mu, sigma), (other_mu, other_sigma) = moments(x[i]), moments(x[partner[i]])
        a = alpha[i]
        rows.append((a * sigma + (1 - a) * other_sigma) * (x[i] - mu) / sigma + a * mu + (1 - a) * other_mu)
    return torch.stack(rows)


def swapped(x: Tensor, partner: list[int]) -> Tensor:
    """CR for each sample (and each channel when x has space)."""
    if x.ndim == 4:
        return torch.stack([swapped(x[:, c].flatten(1), partner) for c in range(x.shape[1])], 1).view_as(x)
    rows = []
    for i in range(len(x)):
        other = x[partner[i]].detach()
        (mu, sigma), (other_mu, other_sigma) = moments(x[i]), moments(other)
        rows.append(sigma * (other - other_mu) / other_sigma + mu)
    return torch.stack(rows)


def features(network: SmallNetwork, images: Tensor, point: str, change: object) -> Tensor:
    assert callable(change)
    x = torch.tanh(network.featurizer.early(images))
    x = change(x) if point == "early" else x
    x = torch.tanh(network.featurizer.late(x))
    x = change(x) if point == "late" else x
    x = x.mean((2, 3))
    return change(x) if point == "" else x


def twin_step(
    network: SmallNetwork, head: list[Tensor], data: DomainBatch, context: StepContext, point: str
) -> None:
    images, labels = data.all_images, data.all_labels
    n, classes, generator = len(labels), network.classes, context.generator()
    alpha = torch.rand(n, generator=generator).double()
    first, second, third = (torch.randperm(n, generator=generator).tolist() for _ in range(3))

    logits = network.head(features(network, images, point, lambda x: styled(x, alpha, first)))
    descend(mean_loss(logits, labels), list(network.parameters()), LR)

    z = features(network, images, point, lambda x: swapped(x, second)).detach()
    logits = z @ head[0].T + head[1]
    descend(mean_loss(logits, labels), head, LR)

    z = features(network, images, point, lambda x: swapped(x, third))
    log_p = torch.log_softmax(z @ head[0].T + head[1], 1)
    to_uniform = -sum(log_p[i, k] / classes for i in range(n) for k in range(classes)) / n
    descend(WEIGHT * to_uniform, list(network.featurizer.parameters()), LR)


@pytest.mark.parametrize("point", ["", "early", "late"])
@pytest.mark.parametrize("domains", [1, 3])
def test_three_steps_equal_the_twin(point: str, domains: int) -> None:
    algorithm = SagNet(small_network(), domains, sag_w_adv=WEIGHT, sag_point=point)
    network, data = small_network(), batch(domains, size=4)
    head = [p.detach().clone().requires_grad_() for p in algorithm.style_head.parameters()]
    optimizers = steppers(algorithm, LR)
    for t in range(3):
        take_step(algorithm, optimizers, data, StepContext(t, seed=2))
        twin_step(network, head, data, StepContext(t, seed=2), point)
        same(algorithm.network, network, rtol=1e-9, atol=1e-11)
        same(algorithm.style_head, head, rtol=1e-9, atol=1e-11)


def test_wrong_input_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^got sag_point='layer9'; expected early or late; did you mean 'late'\?$"
    ):
        SagNet(small_network(), 2, sag_point="layer9")
    algorithm = SagNet(VectorPoints().double(), 2, sag_point="late")
    objective = next(iter(algorithm.objectives(batch(2), StepContext(0))))
    with pytest.raises(
        ValueError, match=r"^SagNet got an activation of shape \(12, 6\) at the point 'late'; .*\.$"
    ):
        objective.loss()
