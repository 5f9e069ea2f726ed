"""TRM against a slow float64 twin that takes its gradients and Hessians from autograd."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from genie_dg._types import MAIN, DomainBatch, Network, StepContext
from genie_dg.algorithms import trm
from genie_dg.algorithms.trm import TRM, inverse_hessian_product
from genie_dg.bench.step import take_step

from .networks import batch, cut, descend, same, small_network


class Slow:
    """Everything of TRM besides the network, written with torch's own optimizer, gradient and Hessian."""

    def __init__(self, algorithm: TRM) -> None:
        self.classifiers = []
        for weight, bias in zip(algorithm.weights, algorithm.biases, strict=True):
            layer = nn.Linear(6, 3).double()
            layer.load_state_dict({"weight": weight, "bias": bias})
            self.classifiers.append(layer)
        self.alpha = algorithm.alpha.tolist()
        self.settings = algorithm.cos_lambda, algorithm.iters, algorithm.groupdro_eta

    def loss(self, network: Network, data: DomainBatch, step: int) -> Tensor:
        """L, with the classifiers fitted and the weights raised on the way."""
        cos_lambda, iters, eta = self.settings
        images, labels = torch.cat(data.images), torch.cat(data.labels)
        loss = cross_entropy(network(images), labels)
        if step < iters:
            return loss
        features, domains = [network.features(x) for x in data.images], range(len(data))
        for q in domains:
            layer = self.classifiers[q]
            optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
            for _ in range(30):
                optimizer.zero_grad()
                cross_entropy(layer(features[q].detach()), data.labels[q]).backward()
                optimizer.step()
            weight, bias = layer.weight.detach().clone(), layer.bias.detach().clone()

            def risk(w: Tensor, p: int, bias: Tensor = bias) -> Tensor:
                return cross_entropy(features[p] @ w.reshape(3, 6).T + bias, data.labels[p])

            others = torch.zeros(18, dtype=torch.float64)
            flat = weight.flatten().requires_grad_()
            for p in domains:
                if p != q:
                    loss = loss + self.alpha[q][p] * risk(flat.detach(), p) / len(data)
                    others += self.alpha[q][p] * torch.autograd.grad(risk(flat, p), flat, retain_graph=True)[0]
            hessian = torch.autograd.functional.hessian(lambda w, q=q: risk(w, q), flat.detach())
            v = sum(torch.linalg.matrix_power(torch.eye(18) - hessian, k) @ others for k in range(11))
            (own,) = torch.autograd.grad(risk(flat, q), flat, create_graph=True)
            loss = loss - cos_lambda * (v.detach() * own).sum() / len(data)
            row = [a * math.exp(eta * a * risk(flat, p).item()) for p, a in enumerate(self.alpha[q])]
            self.alpha[q] = [a / sum(row) for a in row]
        return loss


def built(domains: int = 3, **settings: float) -> TRM:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(3)
        return TRM(small_network(), domains, **{"cos_lambda": 0.5, "iters": 0, "groupdro_eta": 0.7, **settings})


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_series_tends_to_the_inverse(monkeypatch: pytest.MonkeyPatch) -> None:
    z, w = numbers(8, 2), numbers(3, 2, seed=1)
    labels = torch.zeros(8).long()
    hessian = torch.autograd.functional.hessian(
        lambda x: cross_entropy(z @ x.reshape(3, 2).T, labels), w.flatten()
    )
    v = (hessian @ numbers(6, seed=2)).reshape(3, 2)  # in the range of H: adding a row to all classes is not
    monkeypatch.setattr(trm, "_TERMS", 4000)
    result = inverse_hessian_product(v, z, z @ w.T).flatten()
    torch.testing.assert_close(hessian @ result, v.flatten(), rtol=1e-8, atol=1e-10)


def test_a_series_that_diverges_is_cut() -> None:
    z, logits, v = 10 * torch.ones(1, 1), torch.zeros(1, 2), torch.tensor([[1.0], [-1.0]])
    # H v = 50 v: the sums are 1, 1 - 49 = -48 and go on from there
    assert inverse_hessian_product(v, z, logits).tolist() == [[-48.0], [48.0]]


@pytest.mark.parametrize("sizes", [(6, 6, 6), (5, 2, 6), (6, 3), (4, 1)])
def test_loss_and_gradient(sizes: tuple[int, ...]) -> None:
    algorithm, data = built(len(sizes)), cut(sizes)
    parameters = list(algorithm.network.parameters())
    expected = Slow(algorithm).loss(algorithm.network, data, 0)
    (loss,) = [objective.loss() for objective in algorithm.objectives(data, StepContext(0))]
    torch.testing.assert_close(loss, expected, rtol=1e-11, atol=1e-12)
    ours, theirs = torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)


def test_whole_updates() -> None:
    algorithm, network = built(iters=2), small_network()
    slow = Slow(algorithm)
    optimizer = torch.optim.SGD(algorithm.roles()[MAIN].parameters, lr=0.5)
    for step in range(6):
        data = batch(seed=step)
        take_step(algorithm, {MAIN: optimizer}, data, StepContext(step))
        descend(slow.loss(network, data, step), list(network.parameters()), 0.5)
        same(algorithm.network, network)
        torch.testing.assert_close(algorithm.alpha.tolist(), slow.alpha, rtol=1e-10, atol=1e-14)
        for weight, bias, layer in zip(algorithm.weights, algorithm.biases, slow.classifiers, strict=True):
            if step >= 2:
                same((weight, bias), (layer.weight, layer.bias))
    assert (algorithm.alpha - (1 - torch.eye(3)) / 2).abs().max() > 0.005
    torch.testing.assert_close(algorithm.alpha.sum(1), torch.ones(3).double())


def test_the_transfer_risk_is_not_computed_in_half_precision() -> None:
    algorithm, data = built().float(), batch(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        features = algorithm.network.features(data.all_images)
        mean = cross_entropy(algorithm.network.head(features), data.all_labels)
        loss = next(algorithm.objectives(data, StepContext(0))).loss()
    parts = torch.split(features.float(), data.sizes)
    risk, _ = algorithm._transfer_risk(parts, data.labels)  # outside autocast
    torch.testing.assert_close(loss, mean + risk, rtol=1e-6, atol=0)
