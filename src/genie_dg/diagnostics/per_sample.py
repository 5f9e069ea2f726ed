r"""Gradients by sample, by micro-batch or by domain, and their mean and variance in bounded memory.

The axis says what one gradient belongs to:

- ``"sample"``: the gradient :math:`g_i = \nabla \ell(\theta; z_i)` of one sample, by ``vmap(grad)`` over
  chunks of a batch;
- ``"micro-batch"``: the gradient of the mean loss of a few samples, one backward each; works for every model;
- ``"domain"``: the gradient of the mean loss of one domain.

All of them end in `GradientMoments`: how many gradients, their mean and the sum of their squared deviations,
for each parameter. A matrix of all gradients exists only when it is asked for (`per_sample_gradients`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import grad, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from genie_dg.check import one_of, whole_number

from ._fast_conv import Workspace, fast_convolutions
from ._isolation import Mode, undisturbed
from ._losses import (
    Batch,
    Loss,
    MeasurementError,
    Parameters,
    accumulator_dtype,
    gradients,
    independent,
    loss_of_parameters,
    pieces,
    sample_count,
    take,
    trainable,
)

Axis: TypeAlias = Literal["sample", "micro-batch", "domain"]
AXES: tuple[Axis, ...] = ("sample", "micro-batch", "domain")
CHUNK_BYTES = 512 * 2**20
"""How much memory the gradients of one chunk of samples may take when ``chunk`` is not given."""


@dataclass(frozen=True)
class GradientMoments:
    """Mean and spread of gradients along a named axis.

    Args:
        axis: what one gradient belongs to: ``"sample"``, ``"micro-batch"`` or ``"domain"``.
        unit: how many samples one gradient averages (1 for samples; for domains 1, since domains are counted).
        count: how many gradients there were.
        mean: for each parameter the mean gradient.
        spread: for each parameter :math:`\\sum_i (g_i - \\bar g)^2`.
    """

    axis: str
    unit: int
    count: int
    mean: Parameters
    spread: Parameters

    @property
    def variance(self) -> Parameters:
        """The unbiased variance of one gradient, :math:`s^2 = \\sum (g_i - \\bar g)^2 / (N-1)`."""
        return {name: spread / (self.count - 1) for name, spread in self.spread.items()}

    @property
    def label(self) -> str:
        """The axis in words, for titles and logs."""
        return f"micro-batch of {self.unit}" if self.axis == "micro-batch" else self.axis


class RunningMoments:
    r"""Mean and spread of many gradients, one at a time, in the memory of three gradients.

    Welford's recurrence for the k-th gradient g:

    .. math::
        \delta = g - \bar g, \qquad \bar g \leftarrow \bar g + \delta / k, \qquad
        M \leftarrow M + \tfrac{k-1}{k}\,\delta^2 .

    Count, :math:`\bar g` and :math:`M = \sum (g_i - \bar g)^2` carry the same information as count, sum and sum
    of squares, but nothing cancels when the signal is much larger than the noise.
    """

    def __init__(self, like: Iterable[Tensor]) -> None:
        self.count = 0
        self.mean = [
            torch.zeros_like(p, dtype=accumulator_dtype(p.dtype), memory_format=torch.contiguous_format)
            for p in (p.detach() for p in like)
        ]
        self.spread = [torch.zeros_like(m) for m in self.mean]
        self._delta = [torch.empty_like(m) for m in self.mean]

    @torch.no_grad()
    def add(self, gradient: Sequence[Tensor]) -> None:
        """One gradient, a tensor for each parameter."""
        self.count += 1
        k = self.count
        for g, mean, spread, delta in zip(gradient, self.mean, self.spread, self._delta, strict=True):
            torch.sub(g, mean, out=delta)
            mean.add_(delta, alpha=1 / k)
            spread.addcmul_(delta, delta, value=(k - 1) / k)


def gradient_moments(
    model: nn.Module, loss: Loss, batch: Batch, *, axis: Axis = "sample", micro_batch: int | None = None,
    chunk: int | None = None, mode: Mode = "eval", seed: int = 0,
) -> GradientMoments:  # fmt: skip
    """Mean and spread of the gradients of a batch; the model is left as it was.

    Args:
        model: parameters with ``requires_grad`` are measured; shared ones count once.
        loss: ``loss(model, *batch)``, the mean over the batch.
        batch: tensors whose first dimension counts samples; with ``axis="domain"`` a list, or a dict by name,
            of one such batch for each domain.
        axis: what one gradient belongs to. A model that cannot be vmapped (in-place writes, branches on values)
            is measured by micro-batches instead, and a warning says so.
        micro_batch: samples of a micro-batch (default 1). What is left over at the end is not used.
        chunk: for samples, how many are differentiated at once, by default what fits 512 MB of gradients.
        mode: ``"eval"``, ``"dropout"`` (each sample its own mask) or ``"train"``; see `MODES`.
        seed: of the dropout masks. The random streams of the run are not touched.

    Example:
        >>> line = torch.nn.Linear(1, 1, bias=False)
        >>> slope = lambda model, x: model(x).mean()  # the gradient of sample x is x
        >>> moments = gradient_moments(line, slope, (torch.tensor([[1.0], [2.0], [6.0]]),))
        >>> moments.axis, moments.count, moments.mean["weight"].item(), moments.variance["weight"].item()
        ('sample', 3, 3.0, 7.0)
    """
    parameters = trainable(model)
    unit = _unit(axis, micro_batch, mode)
    if axis == "sample" and micro_batch is not None:
        axis = "micro-batch"
    with undisturbed(model, mode, seed):
        try:
            rows = gradient_rows(model, loss, batch, axis, unit, chunk)
            moments = _moments_of(rows, axis, unit, parameters)
        except MeasurementError:
            raise
        except Exception as error:
            if axis != "sample":
                raise
            rows = gradient_rows(model, loss, batch, "micro-batch", 1, None)
            moments = _moments_of(rows, "micro-batch", 1, parameters)  # raises an error of the model itself
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            warnings.warn(
                f"{type(model).__name__} cannot be vmapped ({reason}), so gradients were taken by "
                "micro-batches of 1 sample, one backward each; pass micro_batch=8 or so if that is too slow.",
                stacklevel=2,
            )
    _check(moments)
    return moments


def _moments_of(rows: Iterator[list[Tensor]], axis: str, unit: int, parameters: Parameters) -> GradientMoments:
    running = RunningMoments(parameters.values())
    for gradient in rows:
        running.add(gradient)
    mean, spread = (dict(zip(parameters, x, strict=True)) for x in (running.mean, running.spread))
    return GradientMoments(axis, unit, running.count, mean, spread)


def gradient_rows(
    model: nn.Module, loss: Loss, batch: Batch, axis: str, unit: int, chunk: int | None
) -> Iterator[list[Tensor]]:
    """One gradient after another along an axis; call it inside `undisturbed`."""
    if axis == "sample":
        for rows in _chunks(model, loss, batch, chunk, Workspace()):
            for index in range(len(rows[0])):
                yield [r[index] for r in rows]  # done with before the next chunk overwrites them
        return
    if axis == "domain":
        batches = list(batch.values()) if isinstance(batch, Mapping) else batch
    else:
        batches = [piece for piece in pieces(batch, unit) if sample_count(piece) == unit]
    for one in batches:
        sample_count(one)  # refuses what is no batch
        yield gradients(loss_of_parameters(model, loss)({}, one), trainable(model))


def _chunks(
    model: nn.Module, loss: Loss, batch: Batch, chunk: int | None, workspace: Workspace | None = None
) -> Iterator[list[Tensor]]:
    """Per-sample gradients of one chunk after another: a tensor ``[samples, ...]`` for each parameter."""
    parameters = {name: p.detach() for name, p in trainable(model).items()}
    of_parameters = loss_of_parameters(model, loss)

    def of_sample(parameters: Parameters, sample: Batch) -> Tensor:
        return of_parameters(parameters, take(sample, None))  # type: ignore[arg-type]  # [None] adds the batch

    differentiate = vmap(grad(of_sample), in_dims=(None, 0), randomness="different")
    size = sum(p.numel() * p.element_size() for p in parameters.values())
    for piece in pieces(batch, chunk or max(1, min(64, CHUNK_BYTES // max(1, size)))):
        with fast_convolutions(workspace), sdpa_kernel(SDPBackend.MATH):  # vmap has rules for this attention
            rows: Parameters = differentiate(parameters, piece)
        yield [rows[name] for name in parameters]


def _unit(axis: str, micro_batch: int | None, mode: Mode) -> int:
    """Samples of one gradient, for choices that go together."""
    one_of("axis", axis, AXES, MeasurementError)
    if axis == "sample" and micro_batch is None and mode == "train":
        raise MeasurementError(
            "axis='sample' was asked for with mode='train', where batch norm mixes the samples of a batch; "
            "use mode='eval' or 'dropout', or axis='micro-batch' with micro_batch=8 or so."
        )
    size = 1 if micro_batch is None else whole_number("micro_batch", micro_batch, error=MeasurementError)
    return 1 if axis == "domain" else size


def per_sample_gradients(
    model: nn.Module, loss: Loss, batch: Batch, *, mode: Mode = "eval", chunk: int | None = None, seed: int = 0
) -> Parameters:
    """For each parameter a tensor ``[samples, *shape]``; takes samples times the memory of the model."""
    _unit("sample", None, mode)
    with undisturbed(model, mode, seed):
        columns = zip(*_chunks(model, loss, batch, chunk), strict=True)
        return {name: torch.cat(rows) for name, rows in zip(trainable(model), columns, strict=True)}


def _check(moments: GradientMoments) -> None:
    """Refuse moments that cannot be used: fewer than two gradients, not all finite, all zero."""
    if moments.count < 2:
        raise MeasurementError(
            f"Got {moments.count} gradient along the axis {moments.label!r}; expected two or more for a "
            "variance, so give more samples or smaller micro-batches."
        )
    bad = {name: int((~s.isfinite()).sum()) for name, s in moments.spread.items() if not s.isfinite().all()}
    if bad:
        first = next(iter(bad))
        raise MeasurementError(
            f"The gradients of {len(bad)} of {len(moments.spread)} tensors are not finite (first: {first!r}, "
            f"{bad[first]} entries); lower the learning rate or look for the overflow before measuring."
        )
    if not any(m.any() for m in moments.mean.values()) and not any(s.any() for s in moments.spread.values()):
        raise independent(moments.mean)
