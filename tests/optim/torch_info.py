"""GENIE described the way PyTorch's own test suite describes an optimizer, and what its checks share.

The checks themselves are in `test_torch_checks` (the update) and `test_torch_checks_state` (everything else).
"""

# ruff: noqa: PT009 (assertEqual of PyTorch's test case compares tensors)

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim.lr_scheduler import (
    ConstantLR,
    ExponentialLR,
    LinearLR,
    PolynomialLR,
    ReduceLROnPlateau,
    StepLR,
)
from torch.testing._internal.common_optimizers import (
    ErrorOptimizerInput,
    OptimizerErrorEnum,
    OptimizerInfo,
    OptimizerInput,
    _get_optim_inputs_including_global_cliquey_kwargs,
    get_error_inputs_for_all_optims,
    optims,
)
from torch.testing._internal.common_utils import TestCase

from genie_dg import GENIE
from genie_dg.optim import _device


def inputs(device: Any, dtype: Any = None) -> list[OptimizerInput]:
    """The settings every check runs with: each switch of GENIE is on in one of them and off in another."""
    settings: dict[str, dict[str, Any]] = {
        "default": {},
        "other numbers": {"lr": 0.01, "beta": 0.5, "dropout": 0.2, "seed": 7},
        "Tensor lr": {"lr": torch.tensor(0.01)},
        "no noise": {"noise": False, "dropout": 0.0},
        "momentum alone": {"precondition": False, "noise": False, "dropout": 0.0},
        "L2 decay": {"weight_decay": 0.1},
        "decoupled decay": {"weight_decay": 0.1, "decoupled_weight_decay": True},
        "maximize": {"maximize": True, "weight_decay": 0.1},
        "as printed": {"formulation": "algorithm1", "noise_std": 0.01},
        "capturable": {"capturable": True},
    }
    return [OptimizerInput(params=None, kwargs=kwargs, desc=name) for name, kwargs in settings.items()]


KERNEL = frozenset({"default & fused", "other numbers & fused", "Tensor lr & fused"})
"""Settings that share the one rule whose kernel is compiled in every check; the others are packed."""


def error_inputs(device: Any, dtype: Any) -> list[ErrorOptimizerInput]:
    """What must be refused: what PyTorch tries on every optimizer, and more; options are in `test_errors`."""
    shared = [
        error
        for error in get_error_inputs_for_all_optims(device, dtype)
        if "1-element" not in error.error_regex  # GENIE says it in its own words, below
    ]
    p = Parameter(torch.randn(2, 2, device=device, dtype=dtype))
    sparse = Parameter(torch.randn(2, 2, device=device, dtype=dtype))
    sparse.grad = torch.eye(2, device=device, dtype=dtype).to_sparse()
    own: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        ([{"params": [p], "beta": 2.0}], {}, ValueError, r"beta=2\.0"),
        ([p * 2], {}, ValueError, "non-leaf"),
        ([], {}, ValueError, "empty parameter list"),
        (["weight"], {}, TypeError, "optimizer can only optimize Tensors"),
    ]
    refused = [
        ErrorOptimizerInput(OptimizerInput(params, kwargs), error_type=kind, error_regex=regex)
        for params, kwargs, kind, regex in own
    ]
    at_step = [
        ErrorOptimizerInput(
            OptimizerInput([sparse], path),
            error_on=OptimizerErrorEnum.STEP_ERROR,
            error_type=RuntimeError,
            error_regex="needs dense gradients",
        )
        for path in ({"foreach": False}, {"foreach": True}, {"fused": True})
    ]
    return shared + refused + at_step


INFO = OptimizerInfo(
    GENIE,
    optim_inputs_func=inputs,
    optim_error_inputs_func=error_inputs,
    scheduler_inputs=(
        [lambda o: StepLR(o, gamma=0.9, step_size=10), lambda o: ReduceLROnPlateau(o)],
        [lambda o: LinearLR(o, start_factor=0.4, total_iters=4), lambda o: ExponentialLR(o, gamma=0.9)],
        [
            lambda o: ConstantLR(o, factor=0.4, total_iters=4),
            lambda o: PolynomialLR(o, power=0.9, total_iters=30),
        ],
    ),
    supported_impls=("foreach", "fused"),
    supports_fused_on=("cpu",),
    not_og_supported_flags=("foreach", "fused", "capturable", "maximize", "decoupled_weight_decay"),
    has_capturable_arg=True,
    supports_complex=False,
    supports_sparse=False,
)


def by_kernel() -> Any:
    """Let fused=True call its kernel for small tensors too."""
    return patch.object(_device, "PACKED_SIZE", 1)


def packed() -> Any:
    """Let fused=True pack all tensors, as it packs the small ones of a large network: nothing is compiled."""
    return patch.object(_device, "PACKED_SIZE", 1 << 31)


once = optims([INFO], dtypes=[torch.float32])
"""A check that is called once, with ``optim_info``."""


def each(check: Callable[..., None]) -> Callable[..., None]:
    """A check that is called with the ``kwargs`` of every setting by the loop, foreach and fused."""

    @functools.wraps(check)
    def run(self: TestCase, device: Any, dtype: Any, optim_info: OptimizerInfo, **more: Any) -> None:
        for entry in _get_optim_inputs_including_global_cliquey_kwargs(device, dtype, optim_info):
            with self.subTest(entry.desc), by_kernel() if entry.desc in KERNEL else packed():
                check(self, device, dtype, entry.kwargs, **more)

    return once(run)


class Checks(TestCase):
    """PyTorch's test case (it seeds torch before each test), without its reset of compiled kernels."""

    @staticmethod
    def _reset_dynamo_if_imported() -> None:
        """Keep the kernels: they would be compiled again for every test."""

    def assertSame(self, left: Any, right: Any) -> None:
        """Equal to the last bit, unlike assertEqual."""
        self.assertEqual(left, right, rtol=0, atol=0)


class LeastSquares:
    """Ten equations, sixty unknowns: the loss |Wx + b|^2, in a weight and a bias."""

    def __init__(self, device: Any, dtype: Any, contiguous: bool = True) -> None:
        extra = () if contiguous else (2,)
        weight = torch.randn(10, 5, *extra, device=device, dtype=dtype)
        bias = torch.randn(10, *extra, device=device, dtype=dtype)
        if not contiguous:
            weight, bias = weight[..., 0], bias[..., 0]
        self.weight, self.bias = Parameter(weight), Parameter(bias)
        self.x = torch.randn(5, device=device, dtype=dtype)

    @property
    def params(self) -> list[Parameter]:
        return [self.weight, self.bias]

    def twin(self) -> LeastSquares:
        other = LeastSquares(self.x.device, self.x.dtype)
        other.weight, other.bias = (Parameter(p.detach().clone()) for p in self.params)
        other.x = self.x
        return other

    def named(self, named: bool) -> list[Any]:
        return [("weight", self.weight), ("bias", self.bias)] if named else self.params

    def loss(self) -> Tensor:
        return (self.weight.mv(self.x) + self.bias).square().sum()

    def backward(self) -> Tensor:
        """A closure: new gradients, and the loss they belong to."""
        self.weight.grad = self.bias.grad = None
        loss = self.loss()
        loss.backward()
        return loss

    def train(self, optimizer: torch.optim.Optimizer, steps: int, schedulers: Iterable[Any] = ()) -> None:
        for _ in range(steps):
            loss = optimizer.step(self.backward)
            for scheduler in schedulers:
                scheduler.step(*([loss.item()] if isinstance(scheduler, ReduceLROnPlateau) else []))
