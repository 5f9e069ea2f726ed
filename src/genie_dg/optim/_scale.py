r"""What ``scale_free=True`` adds: gradients of one size, and steps as long as the weights have far to go.

With :math:`\beta` = ``beta`` and :math:`t = 1, 2, \dots`, every weight's gradient is brought to one size before
the moments see it:

.. math::
    w \leftarrow \beta w + (1-\beta) g^2, \qquad
    g \leftarrow g \cdot \texttt{GRADIENT\_SIZE} \big/ \sqrt{w / (1 - \beta^t)} .

So the loss may be multiplied by any number and the weights stay the same. `GRADIENT_SIZE` is small enough that
the gate is open and the noise zero for nearly every entry, as in the networks of the paper. How far to go is
estimated from how far the weights have come, as in Prodigy (Mishchenko & Defazio, 2023). With :math:`\theta_0`
the weights at the first step, sums over all weights, and the first moments :math:`m` for an average of its own,

.. math::
    r \leftarrow \beta r + (1-\beta) \langle g, \theta_0 - \theta \rangle, \qquad
    d \leftarrow \max(d, \min(r / \|m\|_1, \texttt{FAR} \cdot \mathrm{rms}(\theta_0))) .

As long as gradients say "further", :math:`r` is positive and :math:`d`, `NEAR` at first, grows. The rest of the
rule is the published one, and its step is multiplied by ``lr`` / `NEUTRAL_LR` * :math:`d` / `GRADIENT_SIZE`: at
the published ``lr`` of 0.015 a step has the root mean square :math:`d` where gradients agree.

The state is :math:`\sqrt w` (``grad_size``) and :math:`\theta_0` (``start``), and for each tensor :math:`r/n`
with :math:`n` its number of elements (``gain``) and :math:`d` (``distance``), all in the dtype of the
parameter, because torch turns loaded state into that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from genie_dg._moments import GRADIENT_SIZE, Scalar, to_one_size

from ._local import local, sum_over_ranks, sum_shards
from ._native import CHUNK_SIZE, flat_alike, library

Scratch = dict[int, Tensor]
"""Memory for scaled gradients that is used again: new memory of this size costs more than the arithmetic."""

NEAR, FAR = 1e-5, 0.3
"""The distance at the first step, too short for any network to suffer, and the longest, in sizes of weights."""

_TINY = 1e-30
"""Sums below this count as 0."""

STATE_NAMES = ("grad_size", "start", "gain", "distance")
"""The state, beside that of the published rule."""


def new_state(p: Tensor) -> dict[str, Tensor]:
    """The state of a parameter before its first step."""
    start, number = p.detach().clone(), torch.zeros((), dtype=p.dtype, device=p.device)
    distance = torch.full_like(number, NEAR)
    return {"grad_size": torch.zeros_like(start), "start": start, "gain": number, "distance": distance}


def distance_of(groups: Sequence[dict[str, Any]], state: Mapping[Tensor, Any], on_device: bool) -> Scalar:
    """The estimate after the steps so far; one for all groups that are ``scale_free``."""
    members = [
        (p, state[p])
        for group in groups
        if group["scale_free"]
        for p in group["params"]
        if "distance" in state.get(p, {})
    ]
    if not members:
        return NEAR
    device = members[0][0].device
    rows = []
    for _, own in members:
        m, start = local(own["exp_avg"]), local(own["start"])
        rows.append(_stacked([_norm(m, 1), _norm(start, 2).square()], device))
    slope, square = sum_shards([sum_over_ranks(p) for p, _ in members], torch.stack(rows)).sum(0).unbind()
    sizes = torch.tensor([float(p.numel()) for p, _ in members], dtype=_wide(device), device=device)
    gain = (_stacked([own["gain"] for _, own in members], device) * sizes).sum()
    before = _stacked([own["distance"] for _, own in members], device).max()
    longest = torch.where(square > 0, FAR * (square / sizes.sum()).sqrt(), torch.inf)
    estimate = torch.where(slope > 0, gain / slope.clamp(min=_TINY), 0.0)
    distance = torch.maximum(before, torch.minimum(estimate, longest))
    return distance if on_device else distance.item()


def _norm(x: Tensor, order: int) -> Tensor:
    """Of the entries that are finite."""
    native = library() if flat_alike(x) and order == 1 and not torch.compiler.is_compiling() else None
    if native is not None:
        return torch.tensor(native.sum_of_sizes(x.numel(), x.data_ptr()), dtype=torch.float64)
    wide = _wide(x.device)
    norm: Tensor = torch.linalg.vector_norm(x, order, dtype=None if x.dtype == wide else torch.float32)
    if torch.compiler.is_compiling() or x.device.type != "cpu" or not bool(norm.isfinite()):
        norm = torch.linalg.vector_norm(torch.nan_to_num(x, 0.0, 0.0, 0.0), order, dtype=wide)
    return norm


def _stacked(numbers: list[Tensor], device: torch.device) -> Tensor:
    return torch.stack([x.detach().to(device=device, dtype=_wide(device)) for x in numbers])


def _wide(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64


class _Rescaled(NamedTuple):
    """A local gradient of one size, the new ``grad_size`` (None if it is stored already), and the sum over the
    entries here of the gradient times the way back to the start.
    """

    grad: Tensor
    size: Tensor | None
    back: Tensor


def _rescale(
    p: Tensor, g: Tensor, own: dict[str, Tensor], beta: float, step: Scalar, scratch: Scratch | None
) -> _Rescaled:
    """Bring a local gradient to one size, by the C library if there is scratch for it.

    An entry that is not finite stays what it is, and its size what it was; 0 where there was no gradient but 0.
    """
    p, size, start = (local(x.detach()) for x in (p, own["grad_size"], own["start"]))
    power = beta ** (step.to(_wide(step.device)) if isinstance(step, Tensor) else step)
    native = library() if scratch is not None and not isinstance(power, Tensor) else None
    if native is not None and scratch is not None and flat_alike(g, p, size, start):
        out = scratch.get(id(own["start"]))
        if out is None or out.shape != g.shape or out.stride() != g.stride():
            out = scratch[id(own["start"])] = torch.empty_like(g)
        parts = torch.empty(-(-g.numel() // CHUNK_SIZE) or 1, dtype=torch.float64)
        addresses = (x.data_ptr() for x in (g, size, p, start, out, parts))
        threads = torch.get_num_threads() if g.numel() > CHUNK_SIZE else 1
        target = GRADIENT_SIZE * (1 - power) ** 0.5
        back = native.to_one_size(g.numel(), *addresses, beta, 1 - beta, target, threads)
        return _Rescaled(out, None, torch.tensor(back, dtype=torch.float64))
    wide = torch.float64 if g.dtype == torch.float64 else torch.float32
    g = g.to(wide)
    seen = torch.nan_to_num(g, 0.0, 0.0, 0.0)
    new = torch.hypot(size.to(wide) * beta**0.5, seen * (1 - beta) ** 0.5)
    g = g * to_one_size(new, power)
    return _Rescaled(g, new, torch.nan_to_num((start.to(wide) - p).mul_(g), 0.0, 0.0, 0.0).sum())


def _gains_of(
    group: dict[str, Any], params: list[Tensor], back: list[Tensor], scales: list[dict[str, Tensor]]
) -> list[Tensor]:
    """The new ``gain`` of each parameter, of whose elements here the sums are given."""
    device = params[0].device
    sums = sum_shards([sum_over_ranks(p) for p in params], _stacked(back, device))
    sizes = torch.tensor([float(max(p.numel(), 1)) for p in params], dtype=sums.dtype, device=device)
    weight = (1 - group["beta"]) * (-1 if group["maximize"] else 1)
    before = _stacked([own["gain"] for own in scales], device)
    return list((before * group["beta"] + sums / sizes * weight).unbind())


def rescale_all(
    group: dict[str, Any],
    params: list[Tensor],
    grads: list[Tensor],
    scales: list[dict[str, Tensor]],
    steps: list[int | Tensor],
    scratch: Scratch | None,
) -> tuple[list[Tensor], list[dict[str, Tensor]]]:
    """The local gradients of a group brought to one size, and the new states to `store` after the step."""
    rescaled = [
        _rescale(p, g, own, group["beta"], t, scratch)
        for p, g, own, t in zip(params, grads, scales, steps, strict=True)
    ]
    gains = _gains_of(group, params, [one.back for one in rescaled], scales)
    news = [
        {"gain": gain} if one.size is None else {"gain": gain, "grad_size": one.size}
        for one, gain in zip(rescaled, gains, strict=True)
    ]
    return [one.grad for one in rescaled], news


def store(old: Tensor, new: Scalar) -> None:
    """Keep a state in its own dtype, never infinite."""
    old = local(old)
    largest = torch.finfo(old.dtype).max
    if isinstance(new, Tensor):
        old.copy_(new.clamp(min=-largest, max=largest))
    else:
        old.fill_(max(min(new, largest), -largest))
