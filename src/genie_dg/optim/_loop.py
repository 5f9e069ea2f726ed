"""The readable path: one parameter after the other, whole tensors, the update as written."""

from __future__ import annotations

import torch
from torch import Tensor

from ._target import Target, stream_keys, whole_draw
from ._update import Rule, Scalars, advance, compute_dtype, finish, gate_sums, kappa_of


def step_loop(
    rule: Rule,
    targets: list[Target],
    grads: list[Tensor],
    scalars: list[Scalars],
    steps: list[int | Tensor],
    seed: int,
    threshold: int,
) -> None:
    """Update every target in place: moments, then kappa, then parameters."""
    for target, g, s, t in zip(targets, grads, scalars, steps, strict=True):
        p, m, v = target.p, target.m, target.v
        runs = target.runs()
        if not runs:  # an empty tensor, perhaps the empty shard of one that is not
            if rule.needs_kappa and target.reduce is not None:
                target.reduce(torch.zeros(2, dtype=compute_dtype(p.dtype), device=p.device))
            continue
        keys = stream_keys(seed, runs, [t] * len(runs), p.device)
        draw = whole_draw(target, keys, runs, threshold)
        _, new_m, new_v, _ = advance(rule, p, g, m, v, s, draw, split=False)
        m.copy_(new_m)
        v.copy_(new_v)
        kappa: float | Tensor = 0.0
        if rule.needs_kappa:
            sums = gate_sums(rule, m, v, s)
            kappa = kappa_of(sums if target.reduce is None else target.reduce(sums))
        new_p, _ = finish(rule, p, m, v, s, kappa, draw, split=False)
        p.copy_(new_p)
