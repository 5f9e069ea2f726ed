r"""How much the loss rises, and how steep it becomes, in a ball around the weights.

With :math:`L` the mean loss of a batch, :math:`w` all trainable weights as one vector,
:math:`\lVert\cdot\rVert` the Euclidean norm over all of them and :math:`\rho` the radius,

.. math::
    R_0(w) = \max_{\lVert e\rVert \le \rho} L(w+e) - L(w), \qquad
    R_1(w) = \rho \max_{\lVert e\rVert \le \rho} \lVert\nabla L(w+e)\rVert .

:math:`R_0` is the sharpness that SAM lowers (`loss_rise`), :math:`R_1` the first-order flatness of GAM
(`first_order_flatness`); FAD lowers a sum of both. Every evaluation starts from the same buffers and
random numbers, so that two points of the ball see the same dropout masks. The weights are not written.
A rise much below ``torch.finfo(dtype).eps`` times the loss is rounding: measure a float64 copy then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from genie_dg.check import number, one_of, whole_number

from ._isolation import Mode, undisturbed
from ._losses import Batch, Loss, MeasurementError, accumulator_dtype, gradients, loss_of_parameters, trainable

Vector: TypeAlias = "list[Tensor]"
"""A tensor for each trainable parameter."""
Direction: TypeAlias = Literal["gradient", "ascent", "random"]
Surface: TypeAlias = "Callable[[Vector | None], tuple[float, Vector]]"
"""Height and slope at an offset from the weights; None is the weights themselves."""


@dataclass(frozen=True)
class Sharpness:
    """The rise of the loss that `loss_rise` measured.

    Attributes:
        value: the rise at the SAM point ("gradient"), the largest rise met ("ascent"), the mean over the
            draws ("random").
        highest: the largest rise met; differs from ``value`` for "random" only.
        radius: the radius of the ball.
        loss: the loss at the weights.
        gradient_norm: the norm of the gradient at the weights.
    """

    value: float
    highest: float
    direction: Direction
    radius: float
    loss: float
    gradient_norm: float

    def as_floats(self) -> dict[str, float]:
        """The numbers of a record; the direction is left to the name that the caller gives them."""
        return {name: value for name, value in vars(self).items() if isinstance(value, float)}


@dataclass(frozen=True)
class Flatness:
    """What `first_order_flatness` returns: ``value`` is ``radius`` times ``steepest``, the largest norm met."""

    value: float
    steepest: float
    radius: float
    loss: float
    gradient_norm: float

    def as_floats(self) -> dict[str, float]:
        """The numbers of a record."""
        return dict(vars(self))


def loss_rise(
    model: nn.Module, loss: Loss, batch: Batch, radius: float, *, direction: Direction = "gradient",
    steps: int = 20, draws: int = 20, mode: Mode = "eval", seed: int = 0,
) -> Sharpness:  # fmt: skip
    r"""The rise :math:`L(w+e) - L(w)` of the loss for :math:`\lVert e\rVert \le \rho`.

    - ``"gradient"``: :math:`e = \rho\, g/\lVert g\rVert`, the point that SAM looks at. It is a lower bound
      of :math:`R_0` and may be negative.
    - ``"ascent"``: projected gradient ascent from :math:`e = 0`. A trial step has length :math:`2\rho` at
      first, then twice the last one (at most :math:`8\rho`) after a success and half of it after a failure; the
      first trial is the SAM point. Where the gradient is zero the ascent starts at a random point of the
      sphere. It is a lower bound of :math:`R_0`, and never negative.
    - ``"random"``: the mean over ``draws`` directions, uniform on the sphere :math:`\lVert e\rVert = \rho`. It
      is an unbiased estimate of the expected rise there and, in many dimensions, far below :math:`R_0`.

    Args:
        model: its parameters with ``requires_grad`` are moved, tied ones as one.
        loss: called as ``loss(model, *batch)``; gives the mean over the batch.
        batch: a tuple of tensors whose first dimension is samples.
        radius: :math:`\rho > 0`.
        direction: see above.
        steps: trial points of "ascent", each one pass forward and backward.
        draws: points of "random", each one pass forward.
        mode: how the model runs; see `MODES`.
        seed: of the random directions and of whatever is random in the model.

    The minimum of x^2 + 4 y^2 rises by 4 radius^2 at most, and by half of 1 + 4 on average:

    >>> point = torch.nn.ParameterList([torch.zeros(2, dtype=torch.float64)])
    >>> bowl = lambda model, scales: (scales * model[0] ** 2).sum()
    >>> scales = torch.tensor([1.0, 4.0], dtype=torch.float64)
    >>> round(loss_rise(point, bowl, (scales,), 0.1, direction="ascent").value, 6)
    0.04
    >>> round(loss_rise(point, bowl, (scales,), 0.1, direction="random", draws=500).value, 3)
    0.025

    References: Foret et al., Sharpness-Aware Minimization, ICLR 2021.

    Differs from SAM's inner step in that "ascent" looks for the maximum and "gradient" is only its first guess.
    """
    one_of("direction", direction, get_args(Direction), MeasurementError)
    whole_number("steps", steps, error=MeasurementError)
    whole_number("draws", draws, error=MeasurementError)
    radius = float(number("radius", radius, 0, excluding=(0,), error=MeasurementError))
    at = _Surroundings(model, loss, batch, mode, seed)
    base, gradient = at.loss_and_gradient(None)
    norm = _norm_of(gradient)
    if direction == "gradient" and norm == 0:
        raise MeasurementError(
            "The gradient is exactly zero, so that direction='gradient' has no direction; take "
            "direction='ascent' or direction='random' here."
        )
    if direction == "gradient":
        value = highest = at.loss_only(_scaled(gradient, radius / norm)) - base
    elif direction == "ascent":
        value = highest = _ascend(at.loss_and_gradient, at.directions(), radius, steps) - base
    else:
        sphere = at.directions()
        rises = [at.loss_only(_scaled(sphere(), radius)) - base for _ in range(draws)]
        value, highest = math.fsum(rises) / draws, max(rises)
    return Sharpness(value, highest, direction, radius, base, norm)


def first_order_flatness(
    model: nn.Module, loss: Loss, batch: Batch, radius: float, *, steps: int = 20, mode: Mode = "eval"
) -> Flatness:
    r"""GAM's first-order flatness :math:`R_1`: the radius times the largest gradient norm in the ball.

    The maximum is approached by the ascent of `loss_rise` on :math:`\lVert\nabla L\rVert`, whose slope
    :math:`\nabla^2 L\, g/\lVert g\rVert` is an exact Hessian-vector product (a second backward). The weights
    themselves are a point of the ball, so that the result is at least :math:`\rho\lVert\nabla L(w)\rVert`.
    It is a **lower bound** of the true maximum: the ascent may end at a local one, or before the top.

    The arguments are those of `loss_rise`; one of the ``steps`` is one pass forward and two backward. Every
    operation of the loss must have a second derivative; attention runs without its fused kernels, which
    have none.

    At the minimum of x^2 + 4 y^2 the gradient norm grows to 8 radius:

    >>> point = torch.nn.ParameterList([torch.zeros(2, dtype=torch.float64)])
    >>> bowl = lambda model, scales: (scales * model[0] ** 2).sum()
    >>> scales = torch.tensor([1.0, 4.0], dtype=torch.float64)
    >>> round(first_order_flatness(point, bowl, (scales,), 0.1).value, 6)
    0.08

    References: Zhang et al., Gradient Norm Aware Minimization Seeks First-Order Flatness, CVPR 2023.

    Differs from GAM's inner step, which in its accelerated form is one step along the slope with the
    Hessian-vector product replaced by a difference of two gradients.
    """
    whole_number("steps", steps, error=MeasurementError)
    radius = float(number("radius", radius, 0, excluding=(0,), error=MeasurementError))
    at = _Surroundings(model, loss, batch, mode, seed=0)
    base, gradient = at.loss_and_gradient(None)
    norm = _norm_of(gradient)
    # The ascent's first point is the weights again, with other attention kernels: rounding must not lower it.
    steepest = max(norm, _ascend(at.steepness_and_slope, at.directions(), radius, steps))
    return Flatness(radius * steepest, steepest, radius, base, norm)


def _ascend(surface: Surface, sphere: Callable[[], Vector], radius: float, steps: int) -> float:
    """The greatest height that projected ascent with a length that adapts meets in the ball."""
    height, slope = surface(None)
    best = height
    offset = _scaled(slope, 0.0)
    if _norm_of(slope) == 0:  # a stationary point gives no direction
        offset = _scaled(sphere(), radius)
        height, slope = surface(offset)
    length = 2 * radius
    for _ in range(steps):
        norm = _norm_of(slope)
        if norm == 0:
            break
        moved = [e + v for e, v in zip(offset, _scaled(slope, length / norm), strict=True)]
        trial = _scaled(moved, radius / max(radius, _norm_of(moved)))
        height_there, slope_there = surface(trial)
        if height_there > height:
            offset, height, slope = trial, height_there, slope_there
            length = min(2 * length, 8 * radius)
        else:
            length /= 2
    return max(best, height)


@dataclass(frozen=True)
class _Surroundings:
    """The loss and its derivatives as functions of an offset from the weights."""

    model: nn.Module
    loss: Loss
    batch: Batch
    mode: Mode
    seed: int

    def directions(self) -> Callable[[], Vector]:
        """Unit vectors, uniform on the sphere, from a generator of their own; the same on every device."""
        generator = torch.Generator().manual_seed(self.seed)

        def draw() -> Vector:
            normal = [
                torch.randn(w.shape, generator=generator, dtype=torch.float64).to(w.device, _double(w))
                for w in trainable(self.model).values()
            ]
            return _scaled(normal, 1 / _norm_of(normal))

        return draw

    def _forward(self, offset: Vector | None) -> tuple[Tensor, dict[str, Tensor]]:
        """The checked loss at an offset, and the weights there, on which it depends."""
        here = trainable(self.model)
        steps: Sequence[Tensor | float] = [0.0] * len(here) if offset is None else offset
        there = {
            name: (w.detach() + e).to(w.dtype).requires_grad_()
            for (name, w), e in zip(here.items(), steps, strict=True)
        }
        value = loss_of_parameters(self.model, self.loss)(there, self.batch)
        if not math.isfinite(value.item()):
            at = "the weights; repair the batch" if offset is None else "a point of the ball; shrink radius"
            raise MeasurementError(f"The loss is {value.item()}, not finite, at {at}.")
        return value, there

    def _gradient(self, value: Tensor, there: dict[str, Tensor], create_graph: bool = False) -> Vector:
        gradient = [g.to_dense() if g.is_sparse else g for g in gradients(value, there, create_graph)]
        if not math.isfinite(_norm_of(gradient)):
            raise MeasurementError(
                f"The loss is {value.item():g} but its gradient is not finite; make it differentiable there."
            )
        return gradient

    def loss_only(self, offset: Vector) -> float:
        with undisturbed(self.model, self.mode, self.seed):
            return float(self._forward(offset)[0].item())

    def loss_and_gradient(self, offset: Vector | None) -> tuple[float, Vector]:
        with undisturbed(self.model, self.mode, self.seed):
            value, there = self._forward(offset)
            return float(value.item()), self._gradient(value, there)

    def steepness_and_slope(self, offset: Vector | None) -> tuple[float, Vector]:
        """The norm of the gradient and its own gradient H g / |g|; zero where the norm has a kink."""
        with undisturbed(self.model, self.mode, self.seed), sdpa_kernel(SDPBackend.MATH):
            value, there = self._forward(offset)
            gradient = self._gradient(value, there, create_graph=True)
            norm = _norm_of(gradient)
            curved = [g for g in gradient if g.requires_grad]
            if norm == 0 or not curved:
                return norm, [torch.zeros_like(w) for w in there.values()]
            unit = [(g.detach().to(_double(g)) / norm).to(g.dtype) for g in curved]
            weights = list(there.values())
            slope = torch.autograd.grad(curved, weights, unit, allow_unused=True)
            return norm, [torch.zeros_like(w) if s is None else s for w, s in zip(weights, slope, strict=True)]


def _double(x: Tensor) -> torch.dtype:
    return torch.float32 if x.device.type == "mps" else torch.float64  # which has no float64


def _norm_of(vector: Vector) -> float:
    return math.hypot(*(float(torch.linalg.vector_norm(v.detach(), dtype=_double(v)).item()) for v in vector))


def _scaled(vector: Vector, factor: float) -> Vector:
    """In float64 on the way, since a factor may be beyond float32; half precision becomes float32."""
    return [(v.detach().to(_double(v)) * factor).to(accumulator_dtype(v.dtype)) for v in vector]
