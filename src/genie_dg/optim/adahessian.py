"""AdaHessian: Adam with the diagonal of the Hessian in the place of the gradient's square."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from genie_dg import _random, check
from genie_dg._options import check_seed

from ._local import words_at


def draw_signs(seed: int, step: int, index: int, like: Tensor) -> Tensor:
    """-1 or 1, each with probability 1/2: a pure function of (seed, step, index of the parameter, element).

    >>> draw_signs(0, 1, 0, torch.empty(8))
    tensor([-1., -1.,  1.,  1.,  1., -1.,  1.,  1.])
    """
    base = _random.stream_base(seed, torch.tensor([index]), torch.tensor([0]))
    key = _random.stream_key(base, step).flatten().tolist()
    words = words_at(torch.arange(like.numel(), dtype=torch.int32, device=like.device), *key)
    minus = _random.drop_mask(words, _random.drop_threshold(0.5))
    return torch.where(minus, -1.0, 1.0).to(like.dtype).reshape(like.shape)


def hessian_diagonal(params: Sequence[Tensor], signs: Sequence[Tensor]) -> list[Tensor]:
    """Hutchinson's estimate z * (H z) for each parameter, from the graphs of the gradients in ``p.grad``.

    Its mean over random signs z is the diagonal of the Hessian H. A parameter without curvature (its gradient
    has no graph, or no gradient depends on it) gets zero.
    """
    curved = [
        (p.grad, z) for p, z in zip(params, signs, strict=True) if p.grad is not None and p.grad.requires_grad
    ]
    if not curved:
        raise RuntimeError(
            "AdaHessian got gradients without a graph, from which it cannot compute the Hessian; "
            "call loss.backward(create_graph=True) or torch.autograd.grad(..., create_graph=True)."
        )
    gradients, probes = zip(*curved, strict=True)
    products = torch.autograd.grad(gradients, params, grad_outputs=probes, allow_unused=True)
    return [
        torch.zeros_like(p) if product is None else product * z
        for p, product, z in zip(params, products, signs, strict=True)
    ]


def spatial_average(diagonal: Tensor) -> Tensor:
    """The mean over the kernel of each pair of channels, for the weights of a convolution of images."""
    return diagonal.mean((2, 3), keepdim=True).expand_as(diagonal) if diagonal.dim() == 4 else diagonal


class AdaHessian(Optimizer):
    r"""Second-order steps with a moving average of the Hessian's diagonal.

    For each entry, with gradient :math:`g`, random signs :math:`z` and :math:`t = 1, 2, \dots`

    .. math::
        D &= z \odot (H z), \qquad D^{(s)} = \text{mean of } D \text{ over each convolution kernel} \\
        m &\leftarrow \beta_1 m + (1-\beta_1) g, \qquad
        v \leftarrow \beta_2 v + (1-\beta_2) D^{(s)} D^{(s)} \\
        \theta &\leftarrow (1 - \texttt{lr}\,\lambda)\,\theta - \texttt{lr}\,
        \frac{m / (1-\beta_1^t)}{\left(\sqrt{v / (1-\beta_2^t)}\right)^k + \epsilon}

    The closure, or the caller, leaves gradients with their graph in ``p.grad``; one product with the Hessian is
    computed from it in each step.

    Args:
        params: parameters or groups of parameters.
        lr: the step size.
        betas: :math:`(\beta_1, \beta_2)`, each in [0, 1).
        eps: :math:`\epsilon`.
        hessian_power: :math:`k`, from 0 (momentum) to 1.
        weight_decay: :math:`\lambda`, decoupled.
        average: whether kernels of convolutions (tensors of four dimensions) are averaged.
        seed: names the random stream of :math:`z`. Torch's generators are neither read nor moved, so a state
            dict alone continues a run, and ranks with different torch seeds stay together.

    State: ``step``, ``exp_avg`` and ``exp_hessian_diag_sq`` for each parameter. ``p.grad`` is never written.

    Example:
        >>> p = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
        >>> optimizer = AdaHessian([p], lr=0.5, eps=0.0)
        >>> p.grad, = torch.autograd.grad((torch.tensor([3.0, 50.0]) * p**2).sum(), p, create_graph=True)
        >>> optimizer.step()  # half of Newton's step, on a separable quadratic
        >>> p.detach()
        tensor([0.5000, 0.5000])

    Differs from the paper in: weight decay is decoupled, as in the authors' code. Differs from the authors'
    code in: the mean over a kernel is of D, as printed, and not of its absolute value. Differs from
    ``pytorch_optimizer.AdaHessian``, which has no spatial average, refuses a parameter without curvature, and
    draws from torch's global generator.

    References:
        Z. Yao, A. Gholami, S. Shen, M. Mustafa, K. Keutzer, M. Mahoney, "ADAHESSIAN: An Adaptive Second Order
        Optimizer for Machine Learning", AAAI 2021.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.15,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-4,
        hessian_power: float = 1.0,
        weight_decay: float = 0.0,
        average: bool = True,
        seed: int = 0,
    ) -> None:
        defaults = {
            "lr": check.number("lr", lr, 0),
            "betas": tuple(check.number(f"beta{i}", b, 0, 1, excluding=(1,)) for i, b in enumerate(betas, 1)),
            "eps": check.number("eps", eps, 0),
            "hessian_power": check.number("hessian_power", hessian_power, 0, 1),
            "weight_decay": check.number("weight_decay", weight_decay, 0),
            "average": check.boolean("average", average),
            "seed": check_seed(seed),
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update; returns what the closure returned, or None."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        members = [(p, group) for group in self.param_groups for p in group["params"]]
        live = [(i, p, group) for i, (p, group) in enumerate(members) if p.grad is not None]
        if not live:
            return loss
        for _, p, _ in live:
            if not self.state[p]:
                self.state[p]["step"] = torch.zeros((), dtype=torch.float32)
                for name in ("exp_avg", "exp_hessian_diag_sq"):
                    self.state[p][name] = torch.zeros_like(p)
        ages = [int(self.state[p]["step"].item()) + 1 for _, p, _ in live]
        signs = [draw_signs(group["seed"], t, i, p) for t, (i, p, group) in zip(ages, live, strict=True)]
        diagonals = hessian_diagonal([p for _, p, _ in live], signs)
        for t, (_, p, group), diagonal in zip(ages, live, diagonals, strict=True):
            self.state[p]["step"] += 1
            self._step_one(p, group, t, spatial_average(diagonal) if group["average"] else diagonal)
        return loss

    def _step_one(self, p: Tensor, group: dict[str, Any], t: int, diagonal: Tensor) -> None:
        assert p.grad is not None
        (beta1, beta2), state, lr = group["betas"], self.state[p], group["lr"]
        state["exp_avg"].lerp_(p.grad, 1 - beta1)
        state["exp_hessian_diag_sq"].mul_(beta2).addcmul_(diagonal, diagonal, value=1 - beta2)
        bottom = (state["exp_hessian_diag_sq"] / (1 - beta2**t)).pow_(group["hessian_power"] / 2)
        p.mul_(1 - lr * group["weight_decay"])
        p.addcdiv_(state["exp_avg"], bottom.add_(group["eps"]), value=-lr / (1 - beta1**t))
