"""The registry of optimizers: its rows, their settings, and the sentences for what cannot be."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from genie_dg._types import Group
from genie_dg.optim.passes import backward
from genie_dg.optim.registry import OPTIMIZERS, OptimizerRow, build_optimizer
from genie_dg.registry import PluginError, UnknownName
from genie_dg.search_space import Setting, defaults

NAMES = [name for name, row in OPTIMIZERS.items() if row.build.__module__.startswith("genie_dg.")]
WITH_BASE = ["sam", "gam", "fad", "sagm"]


def weights() -> list[nn.Parameter]:
    return [nn.Parameter(torch.linspace(-1, 1, 6).reshape(2, 3)), nn.Parameter(torch.ones(2))]


def run(name: str, params: list[nn.Parameter], steps: int = 1, **settings: Any) -> int:
    """Step on a smooth problem; returns how often the closure ran."""
    optimizer, calls = build_optimizer(name, params, **settings), 0

    def closure() -> Tensor:
        nonlocal calls
        calls += 1
        optimizer.zero_grad(set_to_none=True)
        loss = sum(((p - 0.3) ** 4).sum() + (p**2).sum() for p in params)
        assert isinstance(loss, Tensor)
        backward(loss, optimizer, OPTIMIZERS[name].create_graph)
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return calls


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_complete(name: str) -> None:
    row = OPTIMIZERS[name.upper()]
    assert row.name == name
    assert row.paper[-4:].isdigit()
    assert {"lr", "weight_decay"} <= set(row.space)
    assert {setting.source for setting in row.space.values()} <= {"published", "ours"}


@pytest.mark.parametrize("name", NAMES)
def test_passes_are_what_a_step_runs(name: str) -> None:
    assert run(name, weights()) == OPTIMIZERS[name].passes


@pytest.mark.parametrize("name", NAMES)
def test_every_draw_of_the_space_works(name: str) -> None:
    random = np.random.RandomState(0)
    for _ in range(5):
        drawn = {
            key: setting.default if setting.rule is None else setting.rule.draw(random)
            for key, setting in OPTIMIZERS[name].space.items()
        }
        params = weights()
        run(name, params, steps=2, **drawn)
        assert all(torch.isfinite(p).all() for p in params)


OTHER: dict[str, Any] = {"base": "sgd", "formulation": "algorithm1", "seed": 9}
NEEDED: dict[str, dict[str, Any]] = {
    "nesterov": {"momentum": 0.9},
    "noise_std": {"formulation": "algorithm1"},
    "decoupled_weight_decay": {"weight_decay": 0.5},
}
"""Other values of settings that are not numbers, and what a setting needs besides to have an effect."""


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_arrives(name: str) -> None:
    """Another value of any setting gives other weights."""
    for key, setting in OPTIMIZERS[name].space.items():
        results = []
        for value in (setting.default, another(key, setting.default)):
            params = kernel_and_bias()
            needed = {"base": "genie"} if key == "seed" and "base" in OPTIMIZERS[name].space else {}
            noisy_run(name, params, {"lr": 0.1} | NEEDED.get(key, {}) | needed | {key: value})
            results.append(torch.cat([p.detach().flatten() for p in params]))
        assert not torch.equal(*results), key


def another(key: str, default: Any) -> Any:
    if key in OTHER:
        return OTHER[key]
    if isinstance(default, bool):
        return not default
    if default is None:
        return 0.5
    return 0.5 if default < 0.5 else default / 2


def kernel_and_bias() -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(s, generator=generator).double()) for s in ((2, 1, 2, 2), (2,))]


def noisy_run(name: str, params: list[nn.Parameter], settings: dict[str, Any]) -> None:
    """Three steps with large changes of the gradient; the tensors are coupled, so that signs matter."""
    optimizer = build_optimizer(name, params, **settings)
    for step in range(3):

        def closure(step: int = step) -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            kernel, bias = params
            shift = float((-1) ** step)
            loss = ((kernel.sum((1, 2, 3)) + bias - shift) ** 4).sum() + (kernel**4).sum() * (1 + step)
            backward(loss, optimizer, OPTIMIZERS[name].create_graph)
            return loss

        optimizer.step(closure)


@pytest.mark.parametrize("name", WITH_BASE)
def test_bases(name: str) -> None:
    for base in set(NAMES) - {*WITH_BASE, "adahessian"}:
        optimizer = build_optimizer(name, weights(), base=base, lr=0.02, weight_decay=0.3)
        group = optimizer.param_groups[0]
        assert (group["lr"], group["weight_decay"]) == (0.02, 0.3)
        assert type(optimizer.base) is type(build_optimizer(base, weights()))  # type: ignore[attr-defined]
        if base == "sgd":
            assert group["momentum"] == 0.9
    for base, reason in {"sam": "several passes", "fad": "several passes", "adahessian": "graph"}.items():
        with pytest.raises(
            ValueError, match=rf"^got base='{base}', which .*{reason}.*; expected one of sgd, .*\.$"
        ):
            build_optimizer(name, weights(), base=base)
    with pytest.raises(UnknownName, match="did you mean 'adamw'"):
        build_optimizer(name, weights(), base="adamww")


SENTENCES: list[tuple[str, dict[str, Any], str]] = [
    ("adam", {"lr": -1.0}, "lr=-1.0"),
    ("adam", {"lr": "0.1"}, "lr='0.1'"),
    ("adam", {"lr": float("nan")}, "lr=nan"),
    ("adam", {"beta1": 1.0}, "beta1=1.0; expected .* at least 0 and below 1"),
    ("adamw", {"beta2": -0.1}, "beta2"),
    ("adamw", {"eps": -1e-8}, "eps"),
    ("sgd", {"momentum": 1.0}, "momentum"),
    ("sgd", {"nesterov": 1}, "true or false"),
    ("rmsprop", {"alpha": 2.0}, "alpha"),
    ("rmsprop", {"weight_decay": -1}, "weight_decay"),
    ("adabelief", {"lr": float("inf")}, "lr=inf; expected a finite number"),
    ("yogi", {"initial": -1.0}, "initial"),
    ("adahessian", {"hessian_power": 2.0}, "hessian_power"),
    ("adahessian", {"seed": 0.5}, "whole number"),
    ("adahessian", {"average": "no"}, "true or false"),
    ("msvag", {"beta": 1.0}, "beta=1.0; expected .* at least 0 and below 1"),
    ("msvag", {"weight_decay": -0.1}, "weight_decay"),
    ("sam", {"rho": -1.0}, "rho"),
    ("gam", {"beta1": 2.0}, "beta1"),
    ("fad", {"alpha": 2.0}, "alpha"),
    ("sagm", {"alpha": -1.0}, "alpha"),
    ("genie", {"dropout": 1.0}, "dropout"),
]


@pytest.mark.parametrize(("name", "settings", "words"), SENTENCES)
def test_settings_out_of_range(name: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        build_optimizer(name, weights(), **settings)
    text = str(caught.value)
    assert text.startswith("got ")
    assert text.endswith(".")
    assert "\n" not in text


def test_unknown_names() -> None:
    with pytest.raises(
        UnknownName, match=r"^There is no optimizer 'adan'; the choice is sgd, .*did you mean 'adam'\?$"
    ):
        build_optimizer("adan", weights())
    with pytest.raises(UnknownName, match=r"^sgd has no setting 'momentm'; .*did you mean 'momentum'\?$"):
        build_optimizer("sgd", weights(), momentm=0.9)
    with pytest.raises(UnknownName, match=r"^genie has no setting 'momentum'; its settings are lr, .*\.$"):
        build_optimizer("genie", weights(), momentum=0.9)


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_optimizer", None)
    for name in NAMES:
        if name in ("adabelief", "yogi"):
            with pytest.raises(
                ImportError, match=r'^.* pytorch_optimizer.*; run pip install "genie-dg\[bench\]"'
            ):
                build_optimizer(name, weights())
        else:
            build_optimizer(name, weights())


def test_a_row_of_ones_own() -> None:
    def build(groups: list[dict[str, Any]], *, lr: float) -> torch.optim.Optimizer:
        return torch.optim.Adagrad(groups, lr=lr)

    row = OptimizerRow("adagrad for a test", build, "Duchi et al., 2011", {"lr": Setting(0.1)})
    before = dict(OPTIMIZERS._rows)
    try:
        OPTIMIZERS.register(row)
        optimizer = build_optimizer("adagrad for a test", [Group((weights()[0],), 2.0)])
        assert optimizer.param_groups[0]["lr"] == 0.2
        assert defaults(row.space) == {"lr": 0.1}
        with pytest.raises(PluginError, match="taken"):
            OPTIMIZERS.register(OptimizerRow("adam", build, "", {}))
        with pytest.raises(UnknownName, match="no setting 'weight_decay'"):
            build_optimizer("sam", weights(), base="adagrad for a test", weight_decay=0.1)
        assert build_optimizer("sam", weights(), base="adagrad for a test").param_groups[0]["lr"] == 0.1
    finally:
        OPTIMIZERS._rows = before
