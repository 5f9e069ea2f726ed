"""Every baseline optimizer of the table against its slow twin, and what all rows have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from genie_dg._types import Group
from genie_dg.optim.adahessian import AdaHessian, draw_signs, hessian_diagonal
from genie_dg.optim.passes import backward
from genie_dg.optim.registry import OPTIMIZERS, build_optimizer
from tests.oracle import baselines as twins

SHAPES = ((2, 1, 2, 2), (3, 2), (3,), ())
SIZES = [math.prod(shape) for shape in SHAPES]
KERNELS = [[0, 1, 2, 3], [4, 5, 6, 7]]  # of the first tensor, a convolution
STEPS = 100

ODD: dict[str, dict[str, Any]] = {
    "sgd": {"lr": 0.05, "momentum": 0.8},
    "adam": {"lr": 0.02, "beta1": 0.8, "beta2": 0.95, "eps": 0.01},
    "adamw": {"lr": 0.02, "beta1": 0.8, "beta2": 0.95, "eps": 0.01},
    "rmsprop": {"lr": 0.01, "alpha": 0.9, "eps": 0.01},
    "adabelief": {"lr": 0.01, "beta1": 0.8, "beta2": 0.95, "eps": 0.001},
    "yogi": {"lr": 0.02, "beta1": 0.8, "beta2": 0.95, "eps": 0.01, "initial": 0.001},
    "adahessian": {"lr": 0.02, "beta1": 0.8, "beta2": 0.95, "eps": 0.01, "hessian_power": 0.7, "seed": 5},
    "msvag": {"lr": 0.05, "beta": 0.8},
}
"""Settings unlike the defaults, so that none can be swapped or lost."""

ELSEWHERE = {"sam", "gam", "fad", "sagm", "genie"}
"""Rows whose update has a twin in a test file of its own."""


def twin_of(name: str, theta: list[float], settings: dict[str, Any]) -> twins.Twin:
    """The twin with the settings of a row; what is not given has the default of the row."""
    given = {key: setting.default for key, setting in OPTIMIZERS[name].space.items()} | settings
    given["decay"] = given.pop("weight_decay")
    given.pop("seed", None)
    if name == "adahessian":
        given["power"] = given.pop("hessian_power")
        given["kernels"] = KERNELS if given.pop("average") else []
    kinds: dict[str, Callable[..., twins.Twin]] = {
        "sgd": twins.SGD,
        "adam": twins.Adam,
        "adamw": twins.AdamW,
        "rmsprop": twins.RMSprop,
        "adabelief": twins.AdaBelief,
        "yogi": twins.Yogi,
        "adahessian": twins.AdaHessian,
        "msvag": twins.MSVAG,
    }
    return kinds[name](theta, **given)


def start(dtype: torch.dtype = torch.float64) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(3)
    return [nn.Parameter(torch.randn(shape, generator=generator).to(dtype) * 0.5) for shape in SHAPES]


def data(step: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    images = torch.randn(4, 1, 3, 3, generator=generator)
    return images.to(dtype), torch.randint(0, 3, (4,), generator=generator)


def loss_of(params: list[Tensor], step: int) -> Tensor:
    """Cross-entropy of a small network of tanh; nothing in it is quadratic."""
    kernel, matrix, bias, scale = params
    images, labels = data(step, kernel.dtype)
    features = torch.tanh(nn.functional.conv2d(images, kernel)).mean((2, 3))
    logits = torch.exp(scale / 2) * (features @ matrix.T + bias)
    return nn.functional.cross_entropy(logits, labels) + 0.05 * (scale**4 + torch.cos(kernel).sum())


def split(flat: Tensor) -> list[Tensor]:
    return [part.reshape(shape) for part, shape in zip(flat.split(SIZES), SHAPES, strict=True)]


def flat(params: list[nn.Parameter]) -> list[float]:
    return torch.cat([p.detach().double().flatten() for p in params]).tolist()


def step_twin(twin: twins.Twin, step: int, seed: int = 0) -> None:
    theta = torch.tensor(twin.theta, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss_of(split(theta), step), theta)
    if isinstance(twin, twins.AdaHessian):
        hessian = torch.func.jacrev(torch.func.grad(lambda x: loss_of(split(x), step)))(theta.detach())
        twin.second(gradient.tolist(), hessian.tolist(), twins.signs(seed, step + 1, SIZES))
    else:
        twin.step(gradient.tolist())


def take(optimizer: Optimizer, params: list[nn.Parameter], step: int, graph: bool) -> Any:
    """One step, driven as the training loop drives it."""

    def closure() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(list(params), step)
        backward(loss, optimizer, graph)
        return loss

    return optimizer.step(closure)


CASES = [(name, dict(settings)) for name, settings in ODD.items()]
CASES += [(name, {"lr": 0.01}) for name in ODD]  # everything else at its default
CASES += [("sgd", {"lr": 0.05}), ("sgd", {"lr": 0.03, "momentum": 0.7, "nesterov": True})]
CASES += [("adahessian", {"lr": 0.01, "average": False})]
CASES += [("adabelief", {**ODD["adabelief"], "rectify": True})]


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize(("name", "settings"), CASES)
def test_agrees_with_its_twin(name: str, settings: dict[str, Any], decay: float) -> None:
    params = start()
    settings = settings | {"weight_decay": decay}
    optimizer, twin = build_optimizer(name, params, **settings), twin_of(name, flat(params), settings)
    for step in range(STEPS):
        take(optimizer, params, step, OPTIMIZERS[name].create_graph)
        step_twin(twin, step, settings.get("seed", 0))
        assert max(abs(a - b) for a, b in zip(flat(params), twin.theta, strict=True)) < 1e-10
    assert max(abs(a - b) for a, b in zip(flat(params), flat(start()), strict=True)) > 0.05


@pytest.mark.parametrize("name", sorted(set(ODD) | ELSEWHERE))
def test_a_step_returns_the_loss_and_leaves_torchs_generator_alone(name: str) -> None:
    params = start()
    graph = OPTIMIZERS[name].create_graph
    optimizer = build_optimizer(name, params)
    before, expected = torch.get_rng_state(), loss_of(list(params), 0)
    loss = take(optimizer, params, 0, graph)
    assert loss.item() == expected.item()
    assert torch.equal(torch.get_rng_state(), before)
    assert flat(params) != flat(start())


@pytest.mark.parametrize("name", ODD)
def test_gradients_are_only_read(name: str) -> None:
    params = start()
    optimizer = build_optimizer(name, params, **ODD[name], weight_decay=0.1)
    for step in range(3):
        gradients = torch.autograd.grad(loss_of(list(params), step), params)
        take(optimizer, params, step, OPTIMIZERS[name].create_graph)
        assert all(torch.equal(p.grad, g) for p, g in zip(params, gradients, strict=True))


@pytest.mark.parametrize("name", sorted(set(ODD) | ELSEWHERE))
def test_a_loaded_state_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    def fresh() -> tuple[list[nn.Parameter], Optimizer]:
        params = start(torch.float32)
        groups = [Group(tuple(params[:2])), Group(tuple(params[2:]), lr_factor=3.0)]
        return params, build_optimizer(name, groups, **ODD.get(name, {}), weight_decay=0.1)

    graph = OPTIMIZERS[name].create_graph
    params, optimizer = fresh()
    for step in range(5):
        take(optimizer, params, step, graph)
    torch.save(
        {"weights": [p.detach() for p in params], "optimizer": optimizer.state_dict()}, tmp_path / "state.pt"
    )
    for step in range(5, 9):
        take(optimizer, params, step, graph)
    torch.manual_seed(77)  # nothing may depend on it
    again, other = fresh()
    saved = torch.load(tmp_path / "state.pt", weights_only=True)
    other.load_state_dict(saved["optimizer"])
    with torch.no_grad():
        for p, value in zip(again, saved["weights"], strict=True):
            p.copy_(value)
    for step in range(5, 9):
        take(other, again, step, graph)
    assert flat(again) == flat(params)


@pytest.mark.parametrize("name", sorted(set(ODD) | ELSEWHERE))
def test_frozen_and_unused_parameters_stay(name: str) -> None:
    params = start()
    frozen = nn.Parameter(torch.ones(2, dtype=torch.float64), requires_grad=False)
    unused = nn.Parameter(torch.ones(2, dtype=torch.float64))
    optimizer = build_optimizer(name, [*params, frozen, unused], weight_decay=0.1)
    for step in range(2):
        take(optimizer, params, step, OPTIMIZERS[name].create_graph)
    assert frozen.tolist() == unused.tolist() == [1.0, 1.0]


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "transposed": lambda x: x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
    "with gaps": lambda x: torch.stack([x, x], -1)[..., 0],
    "expanded": lambda x: x[:, :1, :1, :1].expand(x.shape),
}


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("which", ["parameter", "gradient"])
def test_memory_layout_does_not_matter(name: str, layout: str, which: str) -> None:
    """Torch's fused kernels on the CPU ignore strides; the fused path is left where it would be wrong."""
    generator = torch.Generator().manual_seed(0)
    weight, gradient = (
        torch.randn(4, 3, 2, 5, generator=generator),
        torch.randn(4, 3, 2, 5, generator=generator),
    )
    if layout == "expanded":
        gradient = LAYOUTS[layout](gradient).contiguous()
        if which == "parameter":
            which = "gradient"  # an expanded parameter cannot be stepped at all
    results = []
    for change in (lambda x: x, LAYOUTS[layout]):
        p = nn.Parameter(change(weight.clone()) if which == "parameter" else weight.clone())
        optimizer = build_optimizer(name, [p], lr=0.1, weight_decay=0.1)
        for _ in range(3):
            p.grad = change(gradient) if which == "gradient" else gradient.clone()
            optimizer.step()
        results.append(p.detach())
    torch.testing.assert_close(results[1], results[0])


class TestAdaHessian:
    """The estimate of the diagonal, and what the closure must leave."""

    def test_the_estimate_is_unbiased(self) -> None:
        generator = torch.Generator().manual_seed(0)
        root = torch.randn(7, 7, generator=generator, dtype=torch.float64)
        hessian = root @ root.T - 2 * torch.eye(7)
        p, q = (nn.Parameter(torch.randn(n, generator=generator, dtype=torch.float64)) for n in (4, 3))
        draws = []
        for step in range(600):
            x = torch.cat([p, q])
            p.grad, q.grad = torch.autograd.grad(x @ hessian @ x / 2, [p, q], create_graph=True)
            signs = [draw_signs(0, step, i, x) for i, x in enumerate((p, q))]
            draws.append(torch.cat(hessian_diagonal([p, q], signs)))
        estimates = torch.stack(draws)
        errors = estimates.mean(0) - hessian.diagonal()
        assert (errors.abs() < 4 * estimates.std(0) / math.sqrt(len(draws))).all()
        spread = (hessian**2).sum(1) - hessian.diagonal() ** 2  # Hutchinson's variance, by hand
        torch.testing.assert_close(estimates.var(0), spread, rtol=0.3, atol=0)

    def test_a_gradient_without_graph_is_refused(self) -> None:
        p = nn.Parameter(torch.ones(2))
        optimizer = AdaHessian([p])
        (p**2).sum().backward()
        with pytest.raises(RuntimeError, match=r"without a graph.*create_graph=True"):
            optimizer.step()
        assert p.tolist() == [1.0, 1.0]
