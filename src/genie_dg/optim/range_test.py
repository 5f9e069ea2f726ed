"""Find the learning rate: a range test that leaves model and random numbers as they were.

A sweep, in which the rate grows from step to step, finds the rate at which the loss rises. Short trainings
below that rate, each from the same weights on the same batches, tell which rate is best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from statistics import fmean, stdev
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from genie_dg import check
from genie_dg._streams import own_randomness

from .adahessian import AdaHessian
from .genie import GENIE
from .passes import backward
from .registry import OPTIMIZERS, build_optimizer

_Loss: TypeAlias = "Callable[[nn.Module, Any], Tensor]"
_Factory: TypeAlias = "Callable[[Any, float], Optimizer]"

_LOWEST, _HIGHEST = 1e-9, 1e3
"""The ends of the sweep."""
_GROWTH = 10 ** (1 / 6)
"""From one step of the sweep to the next."""
_SWEEP_STEPS = round(math.log(_HIGHEST / _LOWEST, _GROWTH)) + 1
_CALM_STEPS = 10
"""First steps of the sweep, whose rates are too low to matter: they tell how much batches differ."""
_SPACING = 10 ** (1 / 3)
"""From the rate of one short training to the next."""
_RISEN, _EXPLODED = 1.0, 10.0
"""What ends the sweep, and what a short training does not come back from, in units of three first losses."""
_PATIENCE = 3
"""So many lower rates in a row that do worse end the search: high rates can be equally bad."""
_MOST_TRAININGS = 24
"""Short trainings before the search gives up."""
_LAST_PART = 0.25
"""The part of a short training whose mean loss is its result."""
_NONE = object()
_TIE, _HIGHER = 0.05, 0.5
"""Of what the best rate gains, and of its loss: where the next lower rate is so near, it is taken."""


class RangeTestError(check.InputError):
    """The loss does not say which rate is better."""


@dataclass(frozen=True)
class SuggestedRate:
    """What `suggest_lr` found.

    Attributes:
        lr: the rate to train with.
        reason: what was chosen and why, for people.
        lrs: the rates of the short trainings, from low to high.
        losses: the mean loss at the end of each; infinite where it exploded.
        first_loss: the mean loss at the weights as they were.
        sweep_lrs, sweep_losses: the rate of each step of the sweep, and the loss before that step.
        steps: training steps that all of this took.
    """

    lr: float
    reason: str
    lrs: tuple[float, ...]
    losses: tuple[float, ...]
    first_loss: float
    sweep_lrs: tuple[float, ...]
    sweep_losses: tuple[float, ...]
    steps: int


def suggest_lr(
    model: nn.Module,
    loss: _Loss,
    batches: Iterable[Any],
    optimizer: str | type[Optimizer] | _Factory = GENIE,
    *,
    settings: Mapping[str, Any] | None = None,
    steps: int = 100,
    create_graph: bool | None = None,
    report: Callable[[int], None] | None = None,
) -> SuggestedRate:
    """Find a learning rate for a model, a loss and an optimizer.

    1. A sweep of at most 73 steps multiplies the rate by 1.47 in each, from 1e-9 on, until the loss rises.
    2. Short trainings of ``steps`` steps, each from the same weights with the same batches and random numbers,
       start where the sweep ended. Each has a rate 2.2 times lower than the one before, until three in a row
       are worse than the best (and, where the first was best, higher, until one is worse). The result of each
       is the mean loss of its last quarter.
    3. The lowest result wins, except that the next lower rate is taken where it gains nearly as much (5 % less
       at most, and a loss at most half as high again), because longer trainings favour lower rates. Where the
       next higher rate exploded, the winner is divided by 1.5.

    Everything happens on the model itself, in the train or eval mode of each of its modules. Weights, buffers,
    ``.grad``, modes and ``requires_grad`` are restored to the bit, as are the streams of random numbers of
    torch, Python and NumPy, when this returns or raises. It takes a copy of the weights and one optimizer's
    state in memory.

    Args:
        model: its parameters that require gradients are trained.
        loss: called with the model and a batch; returns a scalar.
        batches: a list, a loader or any iterable that can be read many times; it starts again where it is too
            short.
        optimizer: a class or function that is called with parameters and a rate, for example
            ``lambda params, lr: torch.optim.SGD(params, lr, momentum=0.9)``; or a name of `OPTIMIZERS`. It gets
            a closure in every step, so those that need one work.
        settings: further arguments of the optimizer.
        steps: of each short training; more give a better answer for a long training and cost more.
        create_graph: whether the optimizer needs gradients with their graph; unless given, its row says so.
        report: called with the number of steps taken so far, after each.

    >>> x = torch.linspace(-1, 1, 32).reshape(-1, 1)
    >>> model, batch = torch.nn.Linear(1, 1), (x, 3 * x)
    >>> def loss(model, batch):
    ...     return (model(batch[0]) - batch[1]).square().mean()
    >>> suggested = suggest_lr(model, loss, [batch], torch.optim.SGD, steps=20)
    >>> 0.1 < suggested.lr < 1, len(suggested.lrs)
    (True, ...)
    """
    check.whole_number("steps", steps, 2)
    test = _RangeTest(model, loss, batches, *_factory(optimizer, settings or {}, create_graph), steps, report)
    return test.run()


def _factory(
    optimizer: str | _Factory, settings: Mapping[str, Any], create_graph: bool | None
) -> tuple[_Factory, bool]:
    """How to build the optimizer, and whether it differentiates gradients."""
    if isinstance(optimizer, str):
        row = OPTIMIZERS[optimizer]
        graph = row.create_graph if create_graph is None else create_graph
        return lambda params, lr: build_optimizer(row.name, params, **{**settings, "lr": lr}), graph
    if not callable(optimizer):
        raise check.InputError(
            f"got optimizer={check.short(optimizer)}; expected a class, a function of parameters and a rate, "
            "or a name, for example 'genie'."
        )
    graph = optimizer is AdaHessian if create_graph is None else create_graph
    return lambda params, lr: optimizer(params, lr, **settings), graph


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Inside, a model may be trained; afterwards its parts hold the bits, gradients and modes of before."""
    weights = [(p, p.grad, p.requires_grad) for p in model.parameters()]
    tensors = [(x, x.detach().clone()) for x in (*model.parameters(), *model.buffers())]
    modules = [(module, module.training, dict(module._buffers)) for module in model.modules()]
    model.zero_grad(set_to_none=True)
    try:
        yield
    finally:
        with torch.no_grad():
            for x, before in tensors:
                x.copy_(before)
        for p, gradient, trains in weights:
            p.grad = gradient
            p.requires_grad_(trains)
        for module, training, buffers in modules:
            module.training, module._buffers = training, buffers


@dataclass
class _RangeTest:
    """One call of `suggest_lr`; ``results`` holds the loss of ``top * _SPACING**power``, by the power."""

    model: nn.Module
    loss: _Loss
    batches: Iterable[Any]
    build: _Factory
    create_graph: bool
    steps: int
    report: Callable[[int], None] | None
    taken: int = 0
    top: float = _HIGHEST
    first: float = math.nan
    unit: float = math.nan
    results: dict[int, float] = field(default_factory=dict)

    def run(self) -> SuggestedRate:
        sweep = self._sweep()
        self._search()
        chosen = self._choose()
        lrs = {power: _rounded(self._rate(power)) for power in sorted(self.results)}
        margin = _SPACING**0.5 if self.results.get(chosen + 1) == math.inf else 1.0
        lr = _rounded(self._rate(chosen) / margin)
        losses, sweep_lrs = (
            tuple(self.results[p] for p in lrs),
            tuple(_LOWEST * _GROWTH**k for k in range(len(sweep))),
        )
        reason = self._reason(lr, chosen, lrs)
        tried = tuple(lrs.values())
        return SuggestedRate(lr, reason, tried, losses, self.first, sweep_lrs, tuple(sweep), self.taken)

    def _rate(self, power: int) -> float:
        return float(self.top * _SPACING**power)

    def _train(self, lr: float, steps: int, growth: float = 1.0) -> list[float]:
        """The losses before each step; ends at one that is not finite or above the limit."""
        losses: list[float] = []
        with own_randomness(), untouched(self.model), torch.enable_grad():
            params = [p for p in self.model.parameters() if p.requires_grad]
            optimizer = self.build(params, lr)
            for batch in islice(_endless(self.batches), steps):
                losses.append(self._step(optimizer, batch))
                if not (math.isfinite(losses[-1]) and losses[-1] <= self._limit(losses, growth > 1)):
                    break
                for group in optimizer.param_groups:
                    group["lr"] *= growth
        return losses

    def _limit(self, losses: list[float], sweep: bool) -> float:
        """The highest loss that is followed: above the first ones, and beyond what batches differ by."""
        if sweep and len(losses) == _CALM_STEPS:
            self.first = fmean(losses)
            self.unit = max(2 * abs(self.first), 8 * stdev(losses))
        if sweep and len(losses) <= _CALM_STEPS:
            return math.inf
        return self.first + (_RISEN if sweep else _EXPLODED) * self.unit

    def _step(self, optimizer: Optimizer, batch: Any) -> float:
        values: list[Tensor] = []

        def closure() -> Tensor:
            optimizer.zero_grad(set_to_none=True)
            value = self.loss(self.model, batch)
            if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
                raise RangeTestError(
                    f"The loss returned {check.short(value)}; expected a tensor of one number that depends on "
                    "the model's parameters."
                )
            values.append(value.detach())
            backward(value.reshape(()), optimizer, self.create_graph)
            return value

        optimizer.step(closure)  # type: ignore[arg-type]  # torch declares floats
        optimizer.zero_grad(set_to_none=True)
        self.taken += 1
        if self.report is not None:
            self.report(self.taken)
        return float(values[0])

    def _sweep(self) -> list[float]:
        losses = self._train(_LOWEST, _SWEEP_STEPS, _GROWTH)
        if len(losses) <= _CALM_STEPS:
            low = _LOWEST * _GROWTH**_CALM_STEPS
            raise RangeTestError(
                f"The loss of batch {len(losses)} is {losses[-1]:g} at a rate of {low:.0e} or less, so no rate "
                "can be found; look for what is not finite in the data or the loss."
            )
        if len(losses) < _SWEEP_STEPS or not math.isfinite(losses[-1]):
            self.top = _LOWEST * _GROWTH ** (len(losses) - 2)  # the rate of the step before this loss
        return losses

    def _result(self, power: int) -> float:
        losses = self._train(self._rate(power), self.steps)
        whole = len(losses) == self.steps and losses[-1] <= self._limit(losses, False)
        last = max(1, round(_LAST_PART * self.steps))
        self.results[power] = fmean(losses[-last:]) if whole else math.inf
        return self.results[power]

    def _search(self) -> None:
        """Downwards from where the sweep ended, and upwards where the first rate was best."""
        power, worse = -1, 0
        while len(self.results) < _MOST_TRAININGS and worse < _PATIENCE:
            best = min(self.results.values(), default=math.inf)
            worse = worse + 1 if self._result(power) >= best and best < self.first else 0
            power -= 1
        while self._best() == max(self.results) and self._rate(self._best()) < _HIGHEST:
            self._result(self._best() + 1)
        finite = [result for result in self.results.values() if math.isfinite(result)]
        if not finite:
            rates = f"{self._rate(min(self.results)):.0e} to {self._rate(max(self.results)):.0e}"
            raise RangeTestError(
                f"The loss explodes at every rate from {rates}; look for what is not finite in it."
            )
        if len(finite) > 2 and max(finite) == min(finite):
            raise RangeTestError(
                f"The loss is {finite[0]:g} whatever the rate; give a loss that depends on the model."
            )

    def _best(self) -> int:
        return min(sorted(self.results), key=self.results.__getitem__)

    def _choose(self) -> int:
        best = self._best()
        lowest = self.results[best]
        enough = lowest + min(_TIE * max(self.first - lowest, 0.0), _HIGHER * abs(lowest))
        return best - 1 if self.results.get(best - 1, math.inf) <= enough else best

    def _reason(self, lr: float, chosen: int, lrs: Mapping[int, float]) -> str:
        best, result = self._best(), self.results[chosen]
        at = "" if lr == lrs[chosen] else f" at {lrs[chosen]:g}"
        tried = f"{len(lrs)} rates from {min(lrs.values()):g} to {max(lrs.values()):g}"
        why = f"after {self.steps} steps{at} the loss is {result:.4g} (at the start {self.first:.4g}), "
        near = f"within {100 * _TIE:g} % of what {lrs[best]:g} gains ({self.results[best]:.4g}), "
        why += f"the lowest of {tried}" if chosen == best else f"{near}the best of {tried}"
        if at:
            why += f"; {lrs[chosen + 1]:g} explodes, so the rate is divided by {_SPACING**0.5:.1f}"
        if result >= self.first:
            why += "; no rate lowers the loss, so more steps, or a look at the loss, may help"
        return f"lr={lr:g}: {why}; {self.taken} training steps were taken to find out."


def _rounded(lr: float) -> float:
    """Two digits are enough."""
    return float(f"{lr:.2g}")


def _endless(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches, again and again."""
    while True:
        batch = _NONE
        for batch in batches:
            yield batch
        if batch is _NONE:
            raise RangeTestError("There are no batches; give at least one.")
