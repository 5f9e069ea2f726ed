"""M-SVAG: momentum damped, entry by entry, by the variance of the gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from genie_dg import check
from genie_dg._moments import averaging


class MSVAG(Optimizer):
    r"""Momentum with stochastic variance-adapted gradients.

    For each entry, with gradient :math:`g` (plus ``weight_decay`` times the weight) and :math:`t = 1, 2, \dots`

    .. math::
        \tilde m &\leftarrow \beta \tilde m + (1-\beta) g, \qquad
        \tilde v \leftarrow \beta \tilde v + (1-\beta) g^2 \\
        m &= \tilde m / (1-\beta^t), \qquad v = \tilde v / (1-\beta^t) \\
        \rho &= \tfrac{(1-\beta)(1+\beta^t)}{(1+\beta)(1-\beta^t)}, \qquad s = \frac{v - m^2}{1-\rho} \\
        \theta &\leftarrow \theta - \texttt{lr}\, \frac{m^2}{m^2 + \rho s}\, m

    GENIE without mask is this rule times a gate, and the gate is 1 where the variance is small.

    Args:
        params: parameters or groups of parameters.
        lr: the step size :math:`\alpha`.
        beta: :math:`\beta`, the decay of both averages, in [0, 1).
        weight_decay: coupled (L2): the averages see the regularised gradient.

    State: ``step``, ``exp_avg`` and ``exp_avg_sq`` for each parameter. ``p.grad`` is never written.

    Example:
        >>> p = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
        >>> optimizer = MSVAG([p], lr=0.1)
        >>> for g in ([1.0, 1.0], [1.0, -1.0], [1.0, 1.0]):  # a steady and a contradictory gradient
        ...     p.grad = torch.tensor(g)
        ...     optimizer.step()
        >>> p.detach()
        tensor([0.7000, 0.8933])

    Differs from the paper in: the regulariser is an argument. The first gradient has no variance, so its factor
    is 1, or 0 where the gradient is 0; :math:`v - m^2` below zero, which is rounding, counts as zero. Differs
    from ``pytorch_optimizer.MSVAG``, which takes ``weight_decay`` and ignores it.

    References:
        L. Balles, P. Hennig, "Dissecting Adam: The Sign, Magnitude and Variance of Stochastic Gradients",
        ICML 2018.
    """

    def __init__(
        self, params: ParamsT, lr: float = 0.015, *, beta: float = 0.9, weight_decay: float = 0.0
    ) -> None:
        defaults = {
            "lr": check.number("lr", lr, 0),
            "beta": check.number("beta", beta, 0, 1, excluding=(1,)),
            "weight_decay": check.number("weight_decay", weight_decay, 0),
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update; returns what the closure returned, or None."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._step_one(p, group)
        return loss

    def _step_one(self, p: Tensor, group: dict[str, Any]) -> None:
        assert p.grad is not None
        state = self.state[p]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
        state["step"] += 1
        m, v, beta, g = state["exp_avg"], state["exp_avg_sq"], group["beta"], p.grad
        if group["weight_decay"]:
            g = g.add(p, alpha=group["weight_decay"])
        m.lerp_(g, 1 - beta)
        v.mul_(beta).addcmul_(g, g, value=1 - beta)
        a = averaging(beta, int(state["step"].item()))
        mean = m * a.inverse_correction
        square = mean * mean
        s = ((v * a.inverse_correction - square) * a.inverse_freedom).clamp_(min=0)
        total = square + s * a.rho
        p.addcmul_(mean, torch.where(total > 0, square / total, 0.0), value=-group["lr"])
