"""SAM, GAM, FAD and SAGM: against their twins, and what a wrapper of an optimizer owes its user."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genie_dg import GENIE
from genie_dg.optim.fad import FAD
from genie_dg.optim.gam import GAM
from genie_dg.optim.passes import Passes
from genie_dg.optim.sagm import SAGM
from genie_dg.optim.sam import SAM
from tests.oracle import baselines
from tests.oracle import genie as genie_oracle
from tests.oracle import passes as oracle

SHAPES = [(2, 3), (4,), ()]
SIZE = 11
RULES: dict[str, tuple[type[Passes], dict[str, Any], Callable[..., Any]]] = {
    "SAM": (SAM, {"rho": 0.3}, lambda w, at: oracle.sam(w, at, 0.3, False)),
    "GAM": (
        GAM,
        {"rho": 0.4, "rho_prime": 0.1, "beta0": 0.3, "beta1": 0.2, "gamma": 0.25},
        lambda w, at: oracle.gam(w, at, 0.4, 0.1, 0.3, 0.2, 0.25),
    ),
    "GAM, beta0 > 1": (
        GAM,
        {"rho": 0.4, "rho_prime": 0.1, "beta0": 1.7, "beta1": 0.6, "gamma": 0.5},
        lambda w, at: oracle.gam(w, at, 0.4, 0.1, 1.7, 0.6, 0.5),
    ),
    "FAD": (FAD, {"rho": 0.3, "alpha": 0.3, "beta": 0.8}, lambda w, at: oracle.fad(w, at, 0.3, 0.3, 0.8)),
    "SAGM": (SAGM, {"rho": 0.3, "alpha": 0.2}, lambda w, at: oracle.sagm(w, at, 0.3, 0.2)),
}
PASSES = {"SAM": 2, "GAM": 4, "GAM, beta0 > 1": 4, "FAD": 4, "SAGM": 2}
EACH = pytest.mark.parametrize("rule", ["SAM", "GAM", "FAD", "SAGM"])


def data() -> tuple[list[list[float]], list[float]]:
    generator = torch.Generator().manual_seed(5)
    inputs = torch.randn(6, SIZE, generator=generator, dtype=torch.float64)
    return inputs.tolist(), [1.0, -1.0, 1.0, 1.0, -1.0, -1.0]


def parameters(dtype: torch.dtype = torch.float64) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(2)
    return [nn.Parameter(torch.randn(s, generator=generator, dtype=torch.float64).to(dtype)) for s in SHAPES]


def flat(params: list[nn.Parameter]) -> list[float]:
    return [x for p in params for x in p.detach().double().flatten().tolist()]


def loss_of(params: list[nn.Parameter]) -> Tensor:
    """The loss of the twins' module, in torch."""
    inputs, signs = data()
    w = torch.cat([p.reshape(-1) for p in params])
    u = torch.tanh(torch.tensor(inputs, dtype=w.dtype) @ w)
    return F.softplus(-torch.tensor(signs, dtype=w.dtype) * u).sum() + (w.sin() ** 2 / 10 + w**4 / 40).sum()


def closure_of(optimizer: Any, params: list[nn.Parameter], factor: float = 1.0) -> Callable[[], Tensor]:
    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(params) * factor
        loss.backward()
        return loss

    return closure


def wrap(rule: str, base: torch.optim.Optimizer, **options: Any) -> Passes:
    kind, settings, _ = RULES[rule]
    return kind(base, **{**settings, **options})


class TwinOfGenie:
    def __init__(self, w: list[float], lr: float) -> None:
        self.twins, self.at = [], 0
        for shape in SHAPES:
            n = math.prod(shape)
            twin = genie_oracle.Twin(w[self.at : self.at + n], lr=lr, p=0.0, noise=False, mask=False)
            self.twins.append(twin)
            self.at += n

    def step(self, w: list[float], g: list[float]) -> list[float]:
        at = 0
        for twin in self.twins:
            n = len(twin.theta)
            twin.step(g[at : at + n], [0.0] * n, [1.0] * n)
            at += n
        return [x for twin in self.twins for x in twin.theta]


def through_pickle(x: Any) -> Any:
    return pickle.loads(pickle.dumps(x))


BASES: dict[str, tuple[Callable[[Any], torch.optim.Optimizer], Callable[[list[float]], Any]]] = {
    "momentum": (
        lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.8),
        lambda w: oracle.Base(baselines.SGD(w, 0.02, momentum=0.8)),
    ),
    "Adam": (lambda p: torch.optim.Adam(p, lr=0.02), lambda w: oracle.Base(baselines.Adam(w, 0.02))),
    "GENIE": (lambda p: GENIE(p, lr=0.02, noise=False, dropout=0.0), lambda w: TwinOfGenie(w, 0.02)),
}


RUNS = [(rule, base, torch.float64) for rule in ("SAM", "GAM", "FAD", "SAGM") for base in BASES]
RUNS += [("GAM, beta0 > 1", "momentum", torch.float64)]
RUNS += [(rule, "momentum", torch.float32) for rule in ("SAM", "GAM", "FAD", "SAGM")]


@pytest.mark.parametrize(("rule", "base", "dtype"), RUNS)
def test_hundred_steps_are_those_of_the_twin(rule: str, base: str, dtype: torch.dtype) -> None:
    params = parameters(dtype)
    w = flat(params)
    make, make_twin = BASES[base]
    optimizer, twin = wrap(rule, make(params)), make_twin(w)
    inputs, signs = data()
    closure = closure_of(optimizer, params)
    start = list(w)
    for _ in range(100):
        expected = oracle.loss(w, inputs, signs)
        w = twin.step(w, RULES[rule][2](w, lambda at: oracle.slope(at, inputs, signs)))
        loss = optimizer.step(closure)
        assert loss.item() == pytest.approx(expected, rel=1e-10 if dtype == torch.float64 else 1e-3)
    near = 1e-10 if dtype == torch.float64 else 1e-3
    assert flat(params) == pytest.approx(w, rel=near, abs=near)
    assert oracle.norm([a - b for a, b in zip(w, start, strict=True)]) > 0.3


@pytest.mark.parametrize("rule", RULES)
def test_the_number_of_passes(rule: str) -> None:
    params = parameters()
    optimizer = wrap(rule, torch.optim.SGD(params, lr=0.1))
    places = []

    def closure() -> Tensor:
        places.append(tuple(flat(params)))
        return closure_of(optimizer, params)()

    optimizer.step(closure)
    assert len(places) == len(set(places)) == PASSES[rule]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@EACH
def test_gather_puts_the_weights_back_to_the_bit(rule: str, dtype: torch.dtype) -> None:
    params = parameters(dtype)
    before = [p.detach().clone() for p in params]
    optimizer = wrap(rule, torch.optim.SGD(params))
    optimizer.gather(closure_of(optimizer, params))
    for p, old in zip(params, before, strict=True):
        assert torch.equal(p, old)
        assert p.grad is not None
        assert p.grad.dtype == dtype
    assert not optimizer.state


@EACH
def test_a_closure_that_raises_leaves_the_weights(rule: str) -> None:
    for bad in range(1, PASSES[rule] + 1):
        params = parameters(torch.float32)
        norm = nn.BatchNorm1d(2)
        before = [p.detach().clone() for p in params]
        optimizer = wrap(rule, torch.optim.SGD(params))
        inner, count = closure_of(optimizer, params), 0

        def closure() -> Tensor:
            nonlocal count
            count += 1
            norm(torch.randn(4, 2))  # noqa: B023
            if count == bad:  # noqa: B023
                raise KeyError("mine")
            return inner()  # noqa: B023

        with pytest.raises(KeyError, match="mine"):
            optimizer.step(closure)
        assert all(torch.equal(p, old) for p, old in zip(params, before, strict=True))
        assert norm.num_batches_tracked == 1
        assert not nn.modules.module._global_forward_pre_hooks


@EACH
def test_parameters_without_gradient_stay(rule: str) -> None:
    params = parameters(torch.float32)
    unused, frozen = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3), requires_grad=False)
    frozen.grad = torch.ones(3)  # left over from before it was frozen; the base sees to it
    optimizer = wrap(rule, torch.optim.SGD([unused, *params, frozen], lr=0.1))
    seen = []

    def closure() -> Tensor:
        for p in params:
            p.grad = None
        seen.append(unused.tolist() + frozen.tolist())
        loss = loss_of(params)
        loss.backward()
        return loss

    optimizer.gather(closure)
    assert unused.grad is None
    assert frozen.grad.tolist() == [1.0] * 3
    assert seen == [[1.0] * 6] * PASSES[rule]
    other = parameters(torch.float32)
    alone = wrap(rule, torch.optim.SGD(other, lr=0.1))
    alone.gather(closure_of(alone, other))
    for p, q in zip(params, other, strict=True):
        assert torch.equal(p.grad, q.grad)  # type: ignore[arg-type]


def test_hooks() -> None:
    params = parameters()
    optimizer = SAM(torch.optim.SGD(params, lr=0.4))
    calls: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    optimizer.register_state_dict_pre_hook(lambda *_: calls.append("save"))
    optimizer.register_state_dict_post_hook(lambda *_: calls.append("saved"))
    optimizer.register_load_state_dict_pre_hook(lambda *_: calls.append("load"))
    optimizer.register_load_state_dict_post_hook(lambda *_: calls.append("loaded"))
    optimizer.step(closure_of(optimizer, params))
    optimizer.load_state_dict(optimizer.state_dict())
    assert calls == ["before", "after", "save", "saved", "load", "loaded"]


def gathered(optimizer: SAM | SAGM, params: list[torch.nn.Parameter]) -> Tensor:
    optimizer.gather(closure_of(optimizer, params))
    return torch.cat([p.grad.reshape(-1) for p in params])  # type: ignore[union-attr]


def test_a_forgotten_scaler_is_a_longer_move() -> None:
    """Why `gather` takes the scaler: alpha times a scaled gradient is not alpha times the gradient."""
    gradients = []
    for scaler in (torch.amp.GradScaler("cpu", init_scale=64.0), None):
        params = parameters()
        optimizer = SAGM(torch.optim.SGD(params), rho=0.3, alpha=0.2)
        optimizer.gather(closure_of(optimizer, params, 64.0), scaler)
        gradients.append(torch.cat([p.grad.reshape(-1) for p in params]) / 64)  # type: ignore[union-attr]
    params = parameters()
    plain = gathered(SAGM(torch.optim.SGD(params), rho=0.3, alpha=0.2), params)
    torch.testing.assert_close(gradients[0], plain, rtol=1e-12, atol=1e-14)
    assert (gradients[1] - plain).norm() > 1e-3


def test_refusals() -> None:
    w = nn.Parameter(torch.ones(3))
    sgd = torch.optim.SGD([w], lr=0.1)
    with pytest.raises(TypeError, match=r"SAM.step got no closure.*gather\(closure, scaler\)"):
        SAM(sgd).step()
    with pytest.raises(TypeError, match=r"GAM got base=list; .*GAM\(torch.optim.SGD"):
        GAM([w])  # type: ignore[arg-type]
    for kind, name, value in (
        (SAM, "rho", -1.0),
        (SAM, "rho", math.nan),
        (GAM, "rho_prime", math.inf),
        (GAM, "beta1", 1.5),
        (GAM, "beta0", -0.1),
        (GAM, "gamma", -1),
        (FAD, "alpha", 1.01),
        (FAD, "beta", -0.5),
        (SAGM, "rho", -0.5),
        (SAGM, "alpha", -0.1),
        (SAGM, "alpha", math.nan),
    ):
        with pytest.raises(ValueError, match=f"^got {name}=.*; expected a number.*[.]$"):
            kind(sgd, **{name: value})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got rho='1'"):
        FAD(sgd, rho="1")  # type: ignore[arg-type]
    upward = SAM(torch.optim.SGD([w], lr=0.1, maximize=True))
    with pytest.raises(ValueError, match=r"maximize=True.*negate the loss"):
        upward.step(lambda: w.sum())
    imaginary = SAM(torch.optim.SGD([nn.Parameter(torch.ones(1, dtype=torch.complex64))], lr=0.1))
    with pytest.raises(ValueError, match="complex parameter"):
        imaginary.step(lambda: w.sum())
