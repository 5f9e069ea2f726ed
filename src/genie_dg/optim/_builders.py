"""Optimizers built from settings of one vocabulary: lr, weight_decay, beta1, beta2, eps.

Every function takes parameter groups in torch's form, each with its own ``lr``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from genie_dg import check

from .adahessian import AdaHessian

Groups = list[dict[str, Any]]

_FUSED_DEVICES = ("cpu", "cuda")
"""Where every supported torch has fused kernels of SGD, Adam and AdamW."""

_DECAYS = ("beta1", "beta2", "momentum", "alpha")
"""Settings that are the decay of a moving average."""


_SWITCHES = ("nesterov", "rectify", "average")
"""Settings that are true or false."""


def torch_builder(kind: type[Optimizer]) -> Callable[..., Optimizer]:
    """The ``build`` of an optimizer of torch, by torch's fused kernels where they serve."""

    def build(groups: Groups, **settings: Any) -> Optimizer:
        options = _checked(settings)
        if issubclass(kind, _FusedWhereRight):
            options["fused"] = _fused_serves(groups)
        return kind(groups, **options)

    return build


def library_builder(name: str) -> Callable[..., Optimizer]:
    """The ``build`` of an optimizer of pytorch_optimizer; decoupled weight decay, so ``p.grad`` is only read.

    The package is imported only when one of its optimizers is built.
    """

    def build(groups: Groups, **settings: Any) -> Optimizer:
        options = _checked(settings)
        if "initial" in options:  # Yogi's, at which both averages start
            options["initial_accumulator"] = options.pop("initial")
        try:
            kind: Callable[..., Optimizer] = getattr(import_module("pytorch_optimizer"), name)
        except ModuleNotFoundError as error:
            raise check.MissingPackage(
                f"{name} comes with pytorch_optimizer, but {error.name} is not installed; "
                'run pip install "genie-dg[bench]" and try again.'
            ) from error
        return kind(groups, **options, weight_decouple=True)

    return build


def build_adahessian(groups: Groups, *, seed: int, **settings: Any) -> Optimizer:
    """`AdaHessian` of this package."""
    return AdaHessian(groups, **_checked(settings), seed=seed)


def _checked(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings, checked: decays in [0, 1), others at least 0; beta1 and beta2 become betas.

    >>> _checked({"lr": 1, "beta1": 0.9, "beta2": 0.99})
    {'lr': 1.0, 'betas': (0.9, 0.99)}
    """
    checked: dict[str, Any] = {}
    for name, value in settings.items():
        if name in _SWITCHES:
            checked[name] = check.boolean(name, value)
            continue
        high = 1.0 if name in _DECAYS else math.inf
        checked[name] = check.number(name, value, 0, high, excluding=(1,) if name in _DECAYS else ())
    if "beta1" in checked:
        checked["betas"] = (checked.pop("beta1"), checked.pop("beta2"))
    return checked


def _fused_serves(groups: Groups) -> bool:
    """Whether torch's fused kernels can step these parameters."""
    parameters = [p for group in groups for p in group["params"]]
    return bool(parameters) and all(
        p.is_floating_point() and p.device.type in _FUSED_DEVICES for p in parameters
    )


def _same_layout(parameters: Sequence[Tensor], *others: Sequence[Tensor | None]) -> bool:
    """Whether the n-th tensors of all lists lie in memory in the same order; other shapes are not looked at.

    >>> p = torch.zeros(2, 3)
    >>> _same_layout([p], [torch.zeros(2, 3)]), _same_layout([p], [torch.zeros(3, 2).T])
    (True, False)
    """
    return all(
        _order(p) == _order(x)
        for tensors in others
        for p, x in zip(parameters, tensors, strict=False)
        if x is not None and x.shape == p.shape
    )


def _order(x: Tensor) -> list[int]:
    return [stride for stride, size in zip(x.stride(), x.shape, strict=True) if size != 1]


class _FusedWhereRight(Optimizer):
    """Takes torch's fused path only where it is right.

    The fused kernels for the CPU read memory in order and do not look at strides: a gradient that lies in
    another order than its parameter (channels last, transposed, expanded) silently gives wrong weights. A group
    in which this is seen leaves the fused path for good. Because that may happen in any step, a GradScaler is
    asked to unscale by itself, which only the fused path could do for it.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._step_supports_amp_scaling = False

    def _init_group(self, group: dict[str, Any], parameters: list[Tensor], *rest: Any) -> Any:
        result = super()._init_group(group, parameters, *rest)  # type: ignore[misc]
        others = [one for one in rest if isinstance(one, list)]  # torch 2.5's AdamW passes `amsgrad` among them
        if group["fused"] and not (_dense(parameters) and _same_layout(parameters, *others)):
            group["fused"] = False
        return result


def _dense(tensors: Iterable[Tensor]) -> bool:
    """Whether each tensor fills its memory without gaps and overlaps, in any order of its dimensions."""
    for x in tensors:
        expected = 1
        for stride, size in sorted((s, n) for s, n in zip(x.stride(), x.shape, strict=True) if n != 1):
            if stride != expected:
                return False
            expected *= size
    return True


class SGD(_FusedWhereRight, torch.optim.SGD):
    """SGD of torch; see `_FusedWhereRight`."""


class Adam(_FusedWhereRight, torch.optim.Adam):
    """Adam of torch; see `_FusedWhereRight`."""


class AdamW(_FusedWhereRight, torch.optim.AdamW):
    """AdamW of torch; see `_FusedWhereRight`."""
