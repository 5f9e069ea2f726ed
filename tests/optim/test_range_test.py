"""The range test: what it chooses, that it ends whatever the loss does, and that it leaves no trace."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genie_dg.check import InputError
from genie_dg.optim import GENIE, OPTIMIZERS, SAM, suggest_lr
from genie_dg.optim.adahessian import AdaHessian
from genie_dg.optim.range_test import RangeTestError

Batch = tuple[Tensor, Tensor]


def batches(count: int = 6, size: int = 16) -> list[Batch]:
    """Points whose class a line tells, with some noise."""
    stream = torch.Generator().manual_seed(3)
    result = []
    for _ in range(count):
        x = torch.randn(size, 8, generator=stream)
        y = (x[:, 0] + x[:, 1] + 0.5 * torch.randn(size, generator=stream) > 0).long()
        result.append((x, y))
    return result


def network(seed: int = 0) -> nn.Sequential:
    """With batch norm and dropout: buffers and random numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))


def cross_entropy(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def state_of(model: nn.Module) -> dict[str, Any]:
    """Everything that must not change, copied."""
    return {
        "weights": {name: p.detach().clone() for name, p in model.named_parameters()},
        "buffers": {name: b.clone() for name, b in model.named_buffers()},
        "gradients": {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()},
        "modes": [module.training for module in model.modules()],
        "trained": [p.requires_grad for p in model.parameters()],
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.get_state()[1].tolist(),  # noqa: NPY002  # the global stream is what is looked at
    }


def assert_same(before: Any, after: Any) -> None:
    if isinstance(before, dict):
        assert before.keys() == after.keys()
        for key in before:
            assert_same(before[key], after[key])
    elif isinstance(before, Tensor):
        assert torch.equal(before, after)
    else:
        assert before == after


def noisy(model: nn.Module, batch: Batch) -> Tensor:
    """A loss that moves every stream of random numbers."""
    scale = 1 + 0.01 * random.random() + 0.01 * np.random.rand()  # noqa: NPY002
    return scale * cross_entropy(model, batch)


@pytest.mark.parametrize("seed", [0, 1])
def test_everything_is_left_as_it_was(seed: int) -> None:
    model = network(seed)
    model[1].eval()  # one part in another mode
    model[0].bias.requires_grad_(False)
    cross_entropy(model, batches()[0]).backward()  # type: ignore[no-untyped-call]
    gradients = {name: p.grad for name, p in model.named_parameters()}
    places = {name: p.data_ptr() for name, p in model.named_parameters()}
    before = state_of(model)
    suggest_lr(model, noisy, batches(), steps=8)
    assert_same(before, state_of(model))
    assert all(p.grad is gradients[name] for name, p in model.named_parameters())
    assert places == {name: p.data_ptr() for name, p in model.named_parameters()}


@pytest.mark.parametrize("at", [1, 30, 100])
def test_an_error_in_the_loss_leaves_everything_as_it_was(at: int) -> None:
    model, calls = network(), []

    def failing(model: nn.Module, batch: Batch) -> Tensor:
        calls.append(1)
        if len(calls) == at:
            raise KeyError("the loss has a fault")
        model.eval()
        model[0].weight.requires_grad_(True)  # type: ignore[operator, union-attr, index]
        return cross_entropy(model, batch)

    model[0].weight.requires_grad_(False)
    before = state_of(model)
    with pytest.raises(KeyError):
        suggest_lr(model, failing, batches(), steps=20)
    assert_same(before, state_of(model))


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_every_row_of_the_registry(name: str) -> None:
    model = network()
    before = state_of(model)
    found = suggest_lr(model, cross_entropy, batches(), name, steps=16)
    assert_same(before, state_of(model))
    assert min(found.lrs) <= found.lr <= max(found.lrs)
    assert min(found.losses) < found.first_loss
    assert found.reason.startswith(f"lr={found.lr:g}: after 16 steps ")
    assert f"; {found.steps} training steps were taken to find out." in found.reason


FACTORIES: dict[str, Any] = {
    "class": torch.optim.Adam,
    "second order": AdaHessian,
    "function": lambda params, lr: torch.optim.SGD(params, lr=lr, momentum=0.9),
    "around another": lambda params, lr: SAM(GENIE(params, lr=lr), rho=0.05),
    "groups": lambda params, lr: torch.optim.SGD(
        [{"params": params[:1], "lr": lr / 10}, {"params": params[1:]}], lr=lr
    ),
    "LBFGS": torch.optim.LBFGS,
}


@pytest.mark.parametrize("kind", FACTORIES)
def test_classes_and_functions(kind: str) -> None:
    found = suggest_lr(network(), cross_entropy, batches(), FACTORIES[kind], steps=12)
    assert min(found.losses) < found.first_loss


def quadratic(curvature: float) -> tuple[nn.Module, Callable[[nn.Module, Any], Tensor]]:
    """With SGD a rate of 2 / curvature and above explodes, and 1 / curvature is best."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 3.0)
    return model, lambda model, batch: 0.5 * curvature * model.weight.square().sum()


@pytest.mark.parametrize("curvature", [1e-2, 1.0, 37.0, 1e6])
def test_sgd_on_a_parabola(curvature: float) -> None:
    model, loss = quadratic(curvature)
    found = suggest_lr(model, loss, [None], torch.optim.SGD, steps=10)
    assert 0.3 < found.lr * curvature < 2
    for lr, value in zip(found.lrs, found.losses, strict=True):
        assert math.isfinite(value) if lr * curvature < 2 else value > found.first_loss


@pytest.mark.parametrize(("name", "power"), [("genie", 1), ("sgd", 1), ("adam", 0)])
def test_the_scale_of_the_loss(name: str, power: int) -> None:
    """A loss times 100 wants a hundredth of the rate, except with Adam."""
    found = []
    for scale in (0.01, 1.0):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
        some = batches(1, 128)
        found.append(
            suggest_lr(model, lambda m, b, scale=scale: scale * cross_entropy(m, b), some, name, steps=30)
        )
    assert 1 / 3 < found[0].lr / found[1].lr / 100**power < 3


def test_a_loss_that_is_never_finite_is_refused() -> None:
    with pytest.raises(RangeTestError, match="The loss of batch 1 is nan"):
        suggest_lr(network(), lambda m, b: cross_entropy(m, b) * math.nan, batches())


@pytest.mark.parametrize("name", ["genie", "sgd", "adam", "yogi"])
def test_a_constant_loss_is_refused(name: str) -> None:
    with pytest.raises(RangeTestError, match="give a loss that depends on the model"):
        suggest_lr(network(), lambda m, b: 1 + 0 * m[0].weight.sum(), batches(), name, steps=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 1}, "got steps=1; expected a whole number of at least 2."),
        ({"batches": []}, "There are no batches; give at least one."),
        ({"optimizer": 3}, "got optimizer=3; expected a class, a function"),
        ({"optimizer": "adm"}, "did you mean 'adam'?"),
        ({"loss": lambda m, b: 3.0}, "The loss returned 3.0; expected a tensor of one number"),
        ({"loss": lambda m, b: m(b[0])}, "expected a tensor of one number"),
        ({"loss": lambda m, b: torch.tensor(1.0)}, "that depends on the model's parameters."),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    call: dict[str, Any] = {"model": network(), "loss": cross_entropy, "batches": batches(), **change}
    with pytest.raises(InputError) as caught:
        suggest_lr(**call)
    assert message in str(caught.value)
