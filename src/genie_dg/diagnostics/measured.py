r"""The OSGR by its definition: step on D, and compare the loss change on D' with the one on D.

For each draw of D and D' (n samples each, disjoint, no sample used twice)

1. a copy of the model takes one step of a copy of the optimizer, with the gradient of the loss on D;
2. :math:`\Delta L_D = L_D(\theta) - L_D(\theta + \Delta\theta)` and :math:`\Delta L_{D'}` are evaluated;
3. so are their first-order parts :math:`-\Delta\theta \cdot g_D` and :math:`-\Delta\theta \cdot g_{D'}`, which
   rounding does not spoil when steps are small, and which the theorem is about.

:math:`R = \overline{\Delta L_{D'}} / \overline{\Delta L_D}` with Fieller's interval over the draws. Momentum,
decay, noise and masks are part of the step, as they are in training: an optimizer that mostly moves along old
momentum does as well on D' as on D. GENIE's noise and mask depend on seed and step only, so all draws of one
measurement share them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from genie_dg.check import whole_number

from ._isolation import Mode, own_randomness, set_mode, undisturbed
from ._losses import Batch, Loss, MeasurementError, gradients, loss_of_parameters, sample_count, take, trainable
from .osgr import Ratio, ratio_of_means
from .preconditioners import copy_of


@dataclass(frozen=True)
class MeasuredOSGR:
    """The measured ratio, by loss changes and to first order, each with its interval.

    Args:
        by_loss: the definition.
        first_order: the same with the loss changes replaced by their linear parts.
        n: samples of D, and of D'.
        draws: how many pairs were drawn.
        gain_on_d: mean loss decrease on D.
        gain_on_other: mean loss decrease on D'.
    """

    by_loss: Ratio
    first_order: Ratio
    n: int
    draws: int
    gain_on_d: float
    gain_on_other: float

    def as_floats(self) -> dict[str, float]:
        """Plain numbers for logs."""
        loss, first = self.by_loss, self.first_order
        return {
            "osgr": loss.value, "osgr_low": loss.low, "osgr_high": loss.high,
            "osgr_first_order": first.value,
            "osgr_first_order_low": first.low, "osgr_first_order_high": first.high,
            "gain_on_d": self.gain_on_d, "gain_on_other": self.gain_on_other,
        }  # fmt: skip


def measure_osgr(
    model: nn.Module, optimizer: Optimizer, loss: Loss,
    data: Batch | Callable[[torch.Generator], tuple[Batch, Batch]], n: int, *, draws: int | None = None,
    held_out: Batch | None = None, level: float = 0.95, mode: Mode = "eval", create_graph: bool = False,
    seed: int = 0,
) -> MeasuredOSGR:  # fmt: skip
    """Measure the OSGR of an optimizer's next step; neither the model nor the optimizer is changed.

    Args:
        model: stays as it is; a copy is stepped.
        optimizer: any ``torch.optim.Optimizer``, closure-based ones included, as it stands now.
        loss: ``loss(model, *batch)``, the mean over the batch.
        data: a pool of samples that is split into disjoint D and D', or a function of a ``torch.Generator``
            that returns a fresh pair.
        n: samples of D and of D'.
        draws: how many pairs; by default as many as the pool holds.
        held_out: a pool for D', of another domain for example; then ``data`` is split for D only.
        level: of the intervals.
        mode: how model and loss run, for the step and for the losses; see `MODES`.
        create_graph: for optimizers that differentiate the gradient, such as AdaHessian.
        seed: of the split of the pool, and of dropout.
    """
    pairs = _pairs(data, held_out, n, draws, torch.Generator().manual_seed(seed))
    changes = [
        _Stepper(*copy_of(model, optimizer), loss, mode, create_graph, seed).gains(*pair) for pair in pairs
    ]
    values = torch.tensor(changes, dtype=torch.float64).reshape(-1, 4).T.contiguous()
    broken = int((~values.isfinite()).any(0).sum())
    if broken:
        raise MeasurementError(
            f"The loss or the gradient was not finite in {broken} of {len(pairs)} draws; "
            "lower the learning rate or look for the overflow before measuring."
        )
    gain_on_other, gain_on_d, linear_on_other, linear_on_d = values
    if not linear_on_d.any():
        raise MeasurementError(
            f"{type(optimizer).__name__} did not move any weight along the gradient, so there is no loss "
            "change to compare; check that it holds the model's parameters and that its learning rate is not 0."
        )
    by_loss = ratio_of_means(gain_on_other, gain_on_d, level)
    first_order = ratio_of_means(linear_on_other, linear_on_d, level)
    gains = float(gain_on_d.mean()), float(gain_on_other.mean())
    return MeasuredOSGR(by_loss, first_order, n, len(pairs), *gains)


def _pairs(
    data: Batch, held_out: Batch | None, n: int, draws: int | None, generator: torch.Generator
) -> list[tuple[Batch, Batch]]:
    """The pairs (D, D')."""
    whole_number("n", n, error=MeasurementError)
    if callable(data):
        return [data(generator) for _ in range(20 if draws is None else draws)]
    pools, used = ([data], 2 * n) if held_out is None else ([data, held_out], n)  # used by a draw of each pool
    have = min(sample_count(pool) for pool in pools)
    wanted = max(2, draws or 2)
    if have // used < wanted:
        raise MeasurementError(
            f"{wanted} draws of n={n} need {wanted * used} samples that are not used twice, and the pool holds "
            f"{have}; give more samples, fewer draws or a smaller n."
        )
    orders = [torch.randperm(sample_count(pool), generator=generator) for pool in pools]
    pairs = []
    for k in range(have // used if draws is None else draws):
        parts = [
            take(pool, part)
            for pool, order in zip(pools, orders, strict=True)
            for part in torch.split(order[k * used : (k + 1) * used], n)
        ]
        pairs.append((parts[0], parts[1]))
    return pairs


@dataclass(frozen=True)
class _Stepper:
    """A copy of the model with a copy of its optimizer."""

    model: nn.Module
    optimizer: Optimizer
    loss: Loss
    mode: Mode
    create_graph: bool
    seed: int

    def gains(self, batch: Batch, other: Batch) -> tuple[float, float, float, float]:
        """The loss decreases on D' and on D, and their linear parts."""
        parameters, of_parameters = trainable(self.model), loss_of_parameters(self.model, self.loss)

        def value_and_slope(batch: Batch) -> tuple[float, list[Tensor]]:
            with undisturbed(self.model, self.mode, self.seed):
                value = of_parameters({}, batch)
                return float(value.detach()), gradients(value, parameters)

        def value_only(batch: Batch) -> float:
            with undisturbed(self.model, self.mode, self.seed), torch.no_grad():
                return float(of_parameters({}, batch))

        before = [p.detach().clone() for p in parameters.values()]
        (start_d, slope_d), (start_other, slope_other) = value_and_slope(batch), value_and_slope(other)
        with own_randomness(self.seed), torch.enable_grad():
            set_mode(self.model, self.mode)
            _step(self.optimizer, lambda: of_parameters({}, batch), self.create_graph)
        moved = [old - p.detach() for old, p in zip(before, parameters.values(), strict=True)]

        def along(slope: list[Tensor]) -> float:
            return sum(float((d * g).sum(dtype=torch.float64)) for d, g in zip(moved, slope, strict=True))

        return start_other - value_only(other), start_d - value_only(batch), along(slope_other), along(slope_d)


def _step(stepper: Optimizer, loss: Callable[[], Tensor], create_graph: bool) -> None:
    """One step through a closure: SAM and L-BFGS need it, the others call it once."""

    def closure() -> Tensor:
        stepper.zero_grad()
        with torch.enable_grad():
            value = loss()
            value.backward(create_graph=create_graph)  # type: ignore[no-untyped-call]
        return value

    closure()  # some optimizers read .grad before they call the closure
    stepper.step(closure)  # type: ignore[arg-type]
