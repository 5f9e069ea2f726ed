"""The measured OSGR against a twin that steps fresh copies, for several optimizers and networks."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pytorch_optimizer import MSVAG
from scipy import stats
from torch import Tensor, nn

from genie_dg import GENIE
from genie_dg.diagnostics import MeasurementError, measure_osgr
from tests.diagnostics.models import CASES, loss, mlp
from tests.oracle import gradients as oracle

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9),
    "adam": lambda ps: torch.optim.Adam(ps, lr=0.01),
    "m-svag": lambda ps: MSVAG(ps, lr=0.1),
    "genie": lambda ps: GENIE(ps, lr=0.1),
}


def started(
    name: str, make: Callable[[Any], torch.optim.Optimizer]
) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    model, data = CASES[name](samples=48)
    optimizer = make(model.parameters())
    model.eval()
    for i in range(4):
        optimizer.zero_grad()
        loss(model, *(t[i::4] for t in data)).backward()
        optimizer.step()
    return model, optimizer, data


def dealt(data: Any, n: int, seed: int) -> list[tuple[Any, Any]]:
    order = torch.randperm(48, generator=torch.Generator().manual_seed(seed))
    parts = [tuple(t[order[i : i + n]] for t in data) for i in range(0, 48 - n + 1, n)]
    return list(zip(parts[0::2], parts[1::2], strict=False))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_against_the_twin(name: str, kind: str) -> None:
    model, optimizer, data = started(name, OPTIMIZERS[kind])
    result = measure_osgr(model, optimizer, loss, data, 6, seed=5)
    twin = [
        oracle.step_on_copy(model, OPTIMIZERS[kind], optimizer.state_dict(), loss, d, other)
        for d, other in dealt(data, 6, 5)
    ]
    assert result.draws == len(twin) == 4
    t = float(stats.t.ppf(0.975, 3))
    for ratio, pairs in ((result.by_loss, [x[:2] for x in twin]), (result.first_order, [x[2:] for x in twin])):
        value, low, high = oracle.fieller(pairs, t)
        assert ratio.value == pytest.approx(value, rel=1e-6)
        if abs(low) < 1e3 and abs(high) < 1e3:  # the quantile is within 1 %
            assert (ratio.low, ratio.high) == pytest.approx((low, high), rel=0.1, abs=0.1)
    assert result.gain_on_d == pytest.approx(oracle.mean([x[1] for x in twin]), rel=1e-7)


def test_held_out_pool_of_another_domain() -> None:
    """D' from a domain where the labels are turned round: what helps on D hurts there."""
    torch.manual_seed(0)
    line = nn.Linear(3, 1, bias=False).double()
    x = torch.randn(400, 3, dtype=torch.float64)
    y = x @ torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)

    def square(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return (model(x) - y).square().mean()

    optimizer = torch.optim.SGD(line.parameters(), lr=0.01)
    near = measure_osgr(line, optimizer, square, (x, y), 20)
    far = measure_osgr(line, optimizer, square, (x[:200], y[:200]), 20, held_out=(x[200:], -y[200:]))
    assert near.by_loss.low > 0.5
    assert far.by_loss.high < 0
    assert (near.draws, far.draws) == (10, 10)


def test_closure_based_optimizers() -> None:
    model, _, data = started("mlp", OPTIMIZERS["sgd"])
    optimizer = torch.optim.LBFGS([p for p in model.parameters() if p.requires_grad], lr=0.1, max_iter=3)
    assert measure_osgr(model, optimizer, loss, data, 6).gain_on_d > 0


def test_neither_model_nor_optimizer_is_changed() -> None:
    model, optimizer, data = started("cnn", OPTIMIZERS["genie"])
    model.train()
    state, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    for mode in ("eval", "train"):
        measure_osgr(model, optimizer, loss, data, 6, mode=mode)  # type: ignore[arg-type]
    assert model.training
    for key, value in model.state_dict().items():
        assert torch.equal(value, weights[key]), key
    after = optimizer.state_dict()
    for index, entry in state["state"].items():
        for key, value in entry.items():
            assert torch.equal(torch.as_tensor(after["state"][index][key]), torch.as_tensor(value)), key


def test_the_same_seed_deals_the_same_pairs() -> None:
    model, optimizer, data = started("mlp", OPTIMIZERS["adam"])
    one, two, three = (measure_osgr(model, optimizer, loss, data, 6, seed=s).by_loss.value for s in (0, 0, 1))
    assert one == two != three


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n": 20}, "2 draws of n=20 need 80 samples that are not used twice, and the pool holds 48"),
        ({"n": 6, "draws": 5}, "5 draws of n=6 need 60 samples"),
        ({"n": 0}, "got n=0; expected a whole number"),
    ],
)
def test_bad_input_gets_one_sentence(options: dict[str, Any], sentence: str) -> None:
    model, data = mlp(samples=48)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(MeasurementError, match=sentence):
        measure_osgr(model, optimizer, loss, data, **options)


def test_an_optimizer_that_does_not_move() -> None:
    model, data = mlp(samples=48)
    with pytest.raises(MeasurementError, match="did not move any weight"):
        measure_osgr(model, torch.optim.SGD(model.parameters(), lr=0.0), loss, data, 6)


def test_gradients_that_are_not_finite() -> None:
    model, (x, y) = mlp(samples=48)
    x = x.clone()
    x[3] = torch.inf
    with pytest.raises(MeasurementError, match="was not finite in 1 of 4 draws"):
        measure_osgr(model, torch.optim.SGD(model.parameters(), lr=0.1), loss, (x, y), 6)


def test_a_model_that_cannot_be_copied() -> None:
    model, data = mlp(samples=48)
    model.extra = (p for p in [1])  # a generator cannot be copied
    with pytest.raises(MeasurementError, match="cannot be copied"):
        measure_osgr(model, torch.optim.SGD(model.parameters(), lr=0.1), loss, data, 6)
