"""GENIE, the optimizer: state and the choice of a path. The update itself is in `_update`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from genie_dg import _random
from genie_dg._moments import Scalar
from genie_dg._options import UpdateRule

from ._gauges import Alarm, gauges_of
from ._local import local_gradient, local_parameters
from ._options import check_group, check_loaded_groups, rule_of, shared_scalars
from ._plan import GroupPlan, PlanInputs
from ._scale import STATE_NAMES, Scratch, distance_of, new_state, rescale_all, store
from ._update import Randomness, step_loop


def _check_state(p: Tensor, grad: Tensor, state: dict[str, Any]) -> None:
    """One shape for parameter, gradient and moments; and one dtype for parameter and moments, made so.

    The dtypes differ after ``model.float()`` or ``p.data = ...`` between two steps.
    """
    for name in ("exp_avg", "exp_avg_sq", *(name for name in ("start", "grad_size") if name in state)):
        own = state[name]
        if own.dtype != p.dtype:  # overflow saturates
            wide, largest = torch.promote_types(own.dtype, p.dtype), torch.finfo(p.dtype).max
            own = state[name] = own.to(wide).clamp(-largest, largest).to(p.dtype)
        if own.shape != p.shape or grad.shape != p.shape:
            raise RuntimeError(
                f"GENIE got a parameter of shape {tuple(p.shape)}, a gradient of shape {tuple(grad.shape)} and "
                f"a state of shape {tuple(own.shape)}; after a change of shape, build the optimizer anew."
            )


class GENIE(Optimizer):
    r"""Generalization-ENhancing Iterative Equalizer: one backward pass, no closure, two moments.

    For each tensor, with gradient :math:`g` and :math:`t = 1, 2, \dots`

    .. math::
        m &\leftarrow \beta m + (1-\beta) g, \qquad v \leftarrow \beta v + (1-\beta) g^2 \\
        c &= 1 - \beta^t, \qquad \rho = \tfrac{(1-\beta)(1+\beta^t)}{(1+\beta)(1-\beta^t)} \\
        \bar g &= m / c, \qquad s^2 = (v/c - \bar g^2) / (1-\rho) \\
        a &= \tanh(\min(1/s^2, 10)), \qquad q = 1 / (1 + \rho s^2 / (\bar g^2 + 10^{-8})) \\
        \kappa &= \textstyle\sum a |\bar g| q / \sum a \\
        \theta &\leftarrow \theta - \texttt{lr}\,(\bar g q a + (1-a)\,\kappa\,\xi)\, M / (1-p)

    with :math:`\beta` = ``beta``, :math:`p` = ``dropout``, :math:`\xi \sim N(0, 1)` and :math:`M` = 1 with
    probability :math:`1-p`, else 0. :math:`q` is the *trust*: with :math:`r` the gradient signal-to-noise
    ratio and :math:`n = 1/\rho` the effective number of samples it is :math:`nr/(nr+1)`.
    ``formulation="algorithm1"`` is Algorithm 1 of the paper as printed, with raw moments:

    .. math::
        s^2 = v - m^2, \quad a = \tanh(1/s^2), \quad
        \theta \leftarrow \theta - \texttt{lr}\,\bigl(\tfrac{m}{c} \tfrac{a m^2}{v} + \sigma\xi(1-a)\bigr) M

    ``formulation="theorem"`` is what the paper's theory asks for (eq. 5), steps divided by the gradient's
    variance: :math:`\bar g\,\bar{s^2} / (s^2 + \bar{s^2}/10)` with :math:`\bar{s^2}` the tensor's mean variance
    in place of :math:`\bar g q a`, and no noise. It is there to test the theory, and runs in the readable loop.

    Args:
        params: parameters, groups of parameters or named parameters, as for any torch optimizer.
        lr: the step size; a number or a one-element tensor. 0.015 is the published default.
        beta: decay of both moving averages, in [0, 1).
        dropout: probability that an entry is not updated in a step, in [0, 1).
        noise: add the noise term. It is exactly 0 in float32 wherever :math:`s^2 \le 0.1`.
        precondition: multiply by trust and gate; without it the step is the momentum :math:`\bar g`.
        scale_free: bring the gradient of every weight to one size first, and make steps as long as the weights
            have far to go (see `_scale`). Then neither the scale of the loss nor the kind of network decides:
            leave ``lr`` at 0.015, which means "as estimated"; 0.03 is twice that. The state is twice as large.
            Coupled weight decay is added to the gradient of that size.
        formulation: ``"released"`` (the paper's appendix listing), ``"algorithm1"`` or ``"theorem"``.
        noise_std: :math:`\sigma` of ``"algorithm1"``. The paper gives no value.
        weight_decay: coupled (L2) by default: ``weight_decay * p`` is added to the gradient *before* the
            moments, which therefore see the regularised gradient.
        decoupled_weight_decay: shrink the weights by ``1 - lr * weight_decay`` instead; the moments then
            see the loss gradient alone. Masked entries are shrunk too.
        maximize: ascend.
        foreach: True packs small tensors and works in blocks, False is the readable loop.
        fused: True compiles one kernel with torch.compile on the first step (some seconds), the fastest on
            CUDA. Both None: on CPU a small C library, built on first use in about a second, serves float32,
            the fastest there; foreach serves the rest, and all without a C compiler (see `_native`).
        capturable: keep the step count on the device and never wait for it (CUDA graphs).
        seed: names the random stream. Mask and noise are a pure function of (seed, step, index of the
            parameter, index of the element); torch's generators are neither read nor moved.

    State: ``step``, ``exp_avg``, ``exp_avg_sq`` for each parameter, with ``scale_free`` also ``start``,
    ``grad_size`` and two numbers, and nothing else, in the dtype of the parameter. ``p.grad`` is never written.

    Example:
        >>> p = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
        >>> optimizer = GENIE([p], lr=0.1, noise=False, dropout=0.0)
        >>> for g in ([1.0, 1.0], [1.0, -1.0], [1.0, 1.0]):  # a steady and a contradictory gradient
        ...     p.grad = torch.tensor(g)
        ...     optimizer.step()
        >>> p.detach()
        tensor([0.7000, 0.8958])

    Differs from the paper in: one sample has no variance, so :math:`s^2` is :math:`10^{-8}` at t = 1 (the
    listing divides 0 by 0); a variance within the rounding of :math:`v/c` and :math:`\bar g^2`, which is what
    is left of a constant gradient, is 0 (the listing takes :math:`10^{-8}` where it comes out at or below 0, so
    rounding decides; see `genie_dg._moments`); :math:`\kappa` counts finite entries only, so a NaN stays where
    it is; overflow saturates; the printed formulas of ``"algorithm1"`` get a floor of :math:`10^{-8}` under
    divisions and its mask keeps with probability :math:`1-p`. Differs from the authors' code in: ``lr`` is the
    step size and schedulers work; no copy of the weights is kept.

    References:
        S. Cho, D. Kim, K. Kim, "One-Step Generalization Ratio Guided Optimization for Domain
        Generalization", ICML 2025.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.015,
        *,
        beta: float = 0.95,
        dropout: float = 0.4,
        noise: bool = True,
        precondition: bool = True,
        scale_free: bool = False,
        formulation: str = "released",
        noise_std: float = 0.1,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        seed: int = 0,
    ) -> None:
        options: dict[str, Any] = {"lr": lr}
        options |= {"beta": beta, "dropout": dropout, "noise": noise, "precondition": precondition}
        options |= {"scale_free": scale_free, "formulation": formulation, "noise_std": noise_std}
        options |= {"weight_decay": weight_decay, "decoupled_weight_decay": decoupled_weight_decay}
        options |= {"maximize": maximize, "foreach": foreach, "fused": fused, "capturable": capturable}
        options |= {"seed": seed}
        check_group(options)
        super().__init__(params, options)
        self._plans: dict[int, GroupPlan] = {}
        self._scratch: Scratch = {}
        self._alarm = Alarm()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; its own options are checked like those of the constructor."""
        check_group({**self.defaults, **param_group, "params": ()})
        super().add_param_group(param_group)
        check_group(self.param_groups[-1])

    def __setstate__(self, state: dict[str, Any]) -> None:
        check_loaded_groups(state["param_groups"])
        super().__setstate__(state)
        self._plans, self._scratch, self._alarm = {}, {}, Alarm()
        for group in self.param_groups:
            for name, value in self.defaults.items():
                if name != "differentiable":  # torch adds it to every optimizer's defaults
                    group.setdefault(name, value)
            for p in group["params"]:
                own = self.state.get(p, {})
                if "step" in own:
                    step = torch.as_tensor(own["step"], dtype=torch.float32)
                    own["step"] = step if group["capturable"] else step.cpu()

    def _init_group(
        self,
        group: dict[str, Any],
        params: list[Tensor],
        grads: list[Tensor],
        exp_avgs: list[Tensor],
        exp_avg_sqs: list[Tensor],
        state_steps: list[Tensor],
        scales: list[dict[str, Tensor]] | None = None,
    ) -> None:
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                continue
            if grad.layout != torch.strided:
                raise RuntimeError(
                    f"GENIE got a gradient of layout {grad.layout} for a parameter of shape "
                    f"{tuple(p.shape)}; it needs dense gradients, so use sparse=False in the embedding."
                )
            state = self.state[p]
            if len(state) == 0:
                where = p.device if group["capturable"] else torch.device("cpu")
                state["step"] = torch.zeros((), dtype=torch.float32, device=where)
                for name in ("exp_avg", "exp_avg_sq"):
                    state[name] = torch.zeros_like(p, memory_format=torch.contiguous_format)
            if group["scale_free"] and not all(name in state for name in STATE_NAMES):
                state.update(new_state(p))
            _check_state(p, grad, state)
            params.append(p)
            grads.append(grad)
            exp_avgs.append(state["exp_avg"])
            exp_avg_sqs.append(state["exp_avg_sq"])
            state_steps.append(state["step"])
            if group["scale_free"] and scales is not None:
                scales.append({name: state[name] for name in STATE_NAMES})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of every parameter that has a gradient.

        Args:
            closure: optional; clears gradients, computes the loss, calls backward and returns the loss.

        Returns:
            What the closure returned, or None.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._alarm.start(self.param_groups)
        first, distance = 0, self._distance()
        for group in self.param_groups:
            self._step_group(group, first, distance)
            first += len(group["params"])
        self._alarm.look(self.param_groups, self.state)
        return loss

    def _distance(self) -> Scalar:
        """How long the steps of ``scale_free`` groups are."""
        mine = [group for group in self.param_groups if group["scale_free"]]
        on_device = any(group["capturable"] for group in mine) or torch.compiler.is_compiling()
        return distance_of(mine, self.state, on_device)

    def _step_group(self, group: dict[str, Any], first: int, distance: Scalar) -> None:
        lists: list[list[Tensor]] = [[] for _ in range(5)]
        params, grads, averages, squares, counts = lists
        scales: list[dict[str, Tensor]] = []
        self._init_group(group, params, grads, averages, squares, counts, scales)
        if not params:
            return
        numbers = [first + i for i, p in enumerate(group["params"]) if p.grad is not None]
        on_device = group["capturable"] or torch.compiler.is_compiling()
        if on_device:
            torch._foreach_add_(counts, 1.0)
        steps: list[int | Tensor] = [t if on_device else int(t.item()) + 1 for t in counts]
        if isinstance(distance, Tensor) and not on_device:
            distance = distance.item()
        grads = [local_gradient(p, g) for p, g in zip(params, grads, strict=True)]
        news: list[dict[str, Tensor]] = []
        if scales:
            plain = group["foreach"] is not None or group["fused"] is not None or on_device
            grads, news = rescale_all(group, params, grads, scales, steps, None if plain else self._scratch)
        rule, scalars = rule_of(group), shared_scalars(group, steps, distance)
        readable = (group["foreach"] is False and not group["fused"]) or group["formulation"] == "theorem"
        if readable or torch.compiler.is_compiling():
            randomness = Randomness(group["seed"], _random.drop_threshold(group["dropout"]))
            parameters = local_parameters(params, averages, squares, numbers)
            step_loop(rule, parameters, grads, scalars, steps, randomness)
        else:
            inputs = PlanInputs.of(group, [*params, *averages, *squares], numbers, steps)
            self._plan(first, group, rule, inputs).run(grads, scalars, steps)
        if not on_device:  # counted last: a step that failed has not been taken
            torch._foreach_add_(counts, torch.ones(()), alpha=1.0)
        for own, new in zip(scales, news, strict=True):
            for name, value in {**new, "distance": distance}.items():
                store(own[name], value)

    def _plan(self, first: int, group: dict[str, Any], rule: UpdateRule, inputs: PlanInputs) -> GroupPlan:
        """The plan of a group, made anew where something has changed."""
        plan = self._plans.pop(first, None)
        if plan is None or not plan.inputs.same_as(inputs):
            plan = GroupPlan(group, rule, inputs)
        if plan.reusable:
            self._plans[first] = plan
        return plan

    def gauges(self) -> dict[str, float]:
        """What the optimizer is doing now, from its state alone: no randomness, nothing changes.

        Returns:
            ``trust``: mean of q over all entries; ``live``: share of entries whose noise is not zero
            (:math:`s^2 > 0.1`); ``relative_step``: root mean square of the update over that of the weights.
            Networks learn between 3e-6 and 0.03: see the page on learning rates. Of a sharded parameter the
            local shard counts. Before the first step all are NaN.
        """
        return gauges_of(self.param_groups, self.state)
