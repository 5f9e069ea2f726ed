"""The loss near the weights: value, gradient and steepness as functions of an offset."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from genie_dg.check import number

from ._functional import (
    Batch,
    Loss,
    MeasurementError,
    Parameters,
    accumulator_dtype,
    gradients,
    loss_of_parameters,
    trainable,
)
from ._isolation import Mode, undisturbed

Vector: TypeAlias = "list[Tensor]"
"""A tensor for each trainable parameter."""


@dataclass(frozen=True)
class Landscape:
    """The loss and its derivatives as functions of an offset from the weights."""

    model: nn.Module
    loss: Loss
    batch: Batch
    mode: Mode
    seed: int

    def absolute(self, radius: float, relative: bool) -> float:
        """The radius of the ball; with ``relative`` it is given as a multiple of the norm of the weights."""
        number("radius", radius, 0, excluding=(0,), error=MeasurementError)
        size = norm_of(list(trainable(self.model).values())) if relative else 1.0
        if size == 0:
            raise MeasurementError("All weights are zero and relative=True; give an absolute radius instead.")
        return float(radius * size)

    def directions(self) -> Callable[[], Vector]:
        """Unit vectors, uniform on the sphere, from a generator of their own; the same on every device."""
        generator = torch.Generator().manual_seed(self.seed)

        def draw() -> Vector:
            normal = [
                torch.randn(w.shape, generator=generator, dtype=torch.float64).to(w.device, _double(w))
                for w in trainable(self.model).values()
            ]
            return scaled(normal, 1 / norm_of(normal))

        return draw

    def _forward(self, offset: Vector | None) -> tuple[Tensor, Parameters]:
        """The checked loss at an offset, and the weights there, on which it depends."""
        here = trainable(self.model)
        steps: Sequence[Tensor | float] = [0.0] * len(here) if offset is None else offset
        there = {
            name: (w.detach() + e).to(w.dtype).requires_grad_()
            for (name, w), e in zip(here.items(), steps, strict=True)
        }
        value = loss_of_parameters(self.model, self.loss)(there, self.batch)
        if not math.isfinite(value.item()):
            here_or_there = "the weights; repair them or the batch", "a point of the ball; shrink radius"
            at = here_or_there[offset is not None]
            raise MeasurementError(f"The loss is {value.item()}, not finite, at {at}.")
        return value, there

    def _gradient(self, value: Tensor, there: Parameters, create_graph: bool = False) -> Vector:
        gradient = [g.to_dense() if g.is_sparse else g for g in gradients(value, there, create_graph)]
        if not math.isfinite(norm_of(gradient)):
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
            norm = norm_of(gradient)
            curved = [g for g in gradient if g.requires_grad]
            if norm == 0 or not curved:
                return norm, [torch.zeros_like(w) for w in there.values()]
            unit = [(g.detach().to(_double(g)) / norm).to(g.dtype) for g in curved]
            weights = list(there.values())
            slope = torch.autograd.grad(curved, weights, unit, allow_unused=True)
            return norm, [torch.zeros_like(w) if s is None else s for w, s in zip(weights, slope, strict=True)]


def _double(x: Tensor) -> torch.dtype:
    return torch.float32 if x.device.type == "mps" else torch.float64  # which has no float64


def norm_of(vector: Vector) -> float:
    return math.hypot(*(float(torch.linalg.vector_norm(v.detach(), dtype=_double(v)).item()) for v in vector))


def scaled(vector: Vector, factor: float) -> Vector:
    """In float64 on the way, since a factor may be beyond float32; half precision becomes float32."""
    return [(v.detach().to(_double(v)) * factor).to(accumulator_dtype(v.dtype)) for v in vector]
