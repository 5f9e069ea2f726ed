"""Three numbers that say what GENIE is doing, read from its state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

from ._shards import local
from ._update import CALM, Rule, Scalars, direction


@torch.no_grad()
def gauges(
    optimizer: Optimizer,
    rule_of: Callable[[dict[str, Any]], Rule],
    scalars_of: Callable[[dict[str, Any], int], Scalars],
) -> dict[str, float]:
    """See `GENIE.gauges`. Of a sharded parameter the local shard counts."""
    count, trusted, live = 0, 0.0, 0
    sizes: list[Tensor] = []
    for group in optimizer.param_groups:
        rule = rule_of(group)
        for p in group["params"]:
            state = optimizer.state.get(p)
            if not state or local(p).numel() == 0:
                continue
            scalars = scalars_of(group, int(state["step"].item()))
            d = direction(rule, local(state["exp_avg"]), local(state["exp_avg_sq"]), scalars)
            count += d.step.numel()
            trusted += float(d.trust.sum(dtype=torch.float64))
            live += int((d.s2 > CALM).sum())
            sizes.append((d.step.abs() * scalars.size).flatten().float())
    if count == 0:
        return {"trust": float("nan"), "live": float("nan"), "top_1_percent": float("nan")}
    every = torch.cat([s.to(sizes[0].device) for s in sizes])
    top = every.topk(max(1, count // 100), sorted=False).values
    total = float(every.sum(dtype=torch.float64))
    share = float(top.sum(dtype=torch.float64)) / total if total > 0 else float("nan")
    return {"trust": trusted / count, "live": live / count, "top_1_percent": share}
