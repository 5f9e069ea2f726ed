"""SelfReg against its distances written pair by pair."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms import selfreg
from genie_dg.algorithms._mixing import beta
from genie_dg.algorithms.selfreg import ROW, SelfReg
from genie_dg.bench.step import take_step

from .networks import SmallNetwork, batch, descend, labelled, mean_loss, same, small_network


def built(seed: int = 0, domains: int = 3) -> SelfReg:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return SelfReg(small_network(), domains)


def perturbed(z: Tensor, w: list[Tensor]) -> Tensor:
    """Three linear layers with batch norms, written out; w in the order of the module's parameters."""
    for k in range(3):
        weight, bias, scale, shift = w[4 * k : 4 * k + 4]
        z = z @ weight.T + bias
        mean = z.sum(0) / len(z)
        variance = ((z - mean) ** 2).sum(0) / len(z)
        z = (z - mean) / torch.sqrt(variance + 1e-5) * scale + shift
        z = torch.where(z > 0, z, 0.0) if k < 2 else z
    return z


def pairings(labels: list[int], generator: torch.Generator) -> tuple[dict[int, int], dict[int, int]]:
    first: dict[int, int] = {}
    second: dict[int, int] = {}
    for label in sorted(set(labels)):
        members = [i for i, y in enumerate(labels) if y == label]
        for chosen in (first, second):
            order = torch.randperm(len(members), generator=generator).tolist()
            chosen.update({i: members[k] for i, k in zip(members, order, strict=True)})
    return first, second


def twin_loss(network: SmallNetwork, w: list[Tensor], data: DomainBatch, context: StepContext) -> Tensor:
    y, generator = data.all_labels.tolist(), context.generator()
    lam = beta(0.5, (), generator).item()
    first, second = pairings(y, generator)
    n, z = len(y), network.features(data.all_images)
    f, c = network.head(z), perturbed(z, w)

    def apart(x: Tensor, target: Callable[[int], Tensor]) -> Tensor:
        return sum((((x[i] - target(i)) ** 2).sum() for i in range(n)), torch.zeros(())) / x.numel()

    def mixed(t: Tensor, i: int) -> Tensor:
        return lam * t[first[i]] + (1 - lam) * t[second[i]]

    alone = apart(f, lambda i: f[first[i]]) + 0.3 * apart(z, lambda i: c[first[i]])
    between = apart(f, lambda i: mixed(f, i)) + 0.3 * apart(z, lambda i: mixed(c, i))
    right = mean_loss(f, data.all_labels)
    return right + min(right.item(), 1.0) * (lam * alone + (1 - lam) * between)


def uneven() -> DomainBatch:
    """Class 2 occurs once."""
    return labelled([0, 1, 0, 0], [1, 0], [1, 2, 0])


@pytest.mark.parametrize("confident", [False, True], ids=["loss above 1", "loss below 1"])
def test_steps_equal_the_twin(confident: bool) -> None:
    algorithm, data, rate = built(), uneven(), 0.05
    algorithm.network.head.bias.data += torch.tensor([1.0, 0.5, -0.5] if confident else [-1.0, -1.0, 2.0])
    network = copy.deepcopy(algorithm.network)
    assert isinstance(network, SmallNetwork)
    w = [p.detach().clone().requires_grad_() for p in algorithm.perturbation.parameters()]
    optimizer = torch.optim.SGD(algorithm.roles()["main"].parameters, lr=rate)
    start = torch.nn.functional.cross_entropy(network(data.all_images), data.all_labels).item()
    assert (start < 1) == confident
    for t in range(4):
        take_step(algorithm, {"main": optimizer}, data, StepContext(t, seed=2))
        loss, parameters = twin_loss(network, w, data, StepContext(t, seed=2)), [*network.parameters(), *w]
        descend(loss, parameters, rate)
        same(algorithm, parameters)


def test_partners_are_of_the_same_class_and_change_with_the_step() -> None:
    labels = torch.tensor([2, 0, 2, 5, 0, 2, 2])
    seen = set()
    for t in range(10):
        for partner in selfreg.partners(labels, StepContext(t).generator()):
            assert torch.equal(labels[partner], labels)
            assert sorted(partner.tolist()) == list(range(7))
            assert partner[3] == 3
            seen.add(tuple(partner.tolist()))
    assert len(seen) > 10


def test_one_sample_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^SelfReg got a batch with 1 sample; .* so raise the batch size\.$"):
        next(built(domains=1).objectives(batch(1, size=1), StepContext(0)))
    assert "SelfReg" in ROW.one_source
