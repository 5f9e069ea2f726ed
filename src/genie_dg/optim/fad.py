"""FAD: flatness of order zero and one together, from four gradients."""

from __future__ import annotations

from torch import nn
from torch.optim.optimizer import Optimizer

from genie_dg import check

from ._options import OptionError
from .passes import ClosureGradient, ParameterVector, Passes, weighted_sum


class FAD(Passes):
    r"""Flatness-Aware minimization for Domain generalization: four passes, one step of any base optimizer.

    The objective is :math:`L + \beta\,[\alpha R_0 + (1-\alpha) R_1]` with

    .. math::
        R_0(w) = \max_{\|e\| \le \rho} L(w+e) - L(w), \qquad
        R_1(w) = \rho \max_{\|e\| \le \rho} \|\nabla L(w+e)\|

    Its gradient is approximated to first order. With :math:`g_i = \nabla L(w_i)`, :math:`w_0 = w` and norms
    over all parameters together

    .. math::
        w_1 &= w + \rho\, g_0 / \|g_0\|, \qquad h_0 = g_1 - g_0 \approx \nabla R_0 \\
        w_2 &= w + \rho\, h_0 / \|h_0\|, \qquad w_3 = w_2 + \rho\, g_2 / \|g_2\|,
        \qquad h_1 = g_3 - g_2 \approx \nabla R_1 \\
        \text{gradient} &= g_0 + \beta\,(\alpha h_0 + (1-\alpha) h_1)

    :math:`h_0` also points to where the gradient norm rises, so the largest one nearby is taken to be at
    :math:`w_2`; there :math:`\nabla R_1 = \rho \nabla^2 L\, g_2 / \|g_2\|`, a difference of two gradients.
    With alpha = beta = 1 the gradient is SAM's. The weights are put back to the bit before ``base`` steps;
    running statistics of batch norms change in the first pass only. Where a norm is zero, so is the move.

    Args:
        base: the optimizer that takes the step; it owns parameter groups, state and state dict.
        rho: :math:`\rho`, the radius.
        alpha: :math:`\alpha` in [0, 1], the share of :math:`R_0`.
        beta: :math:`\beta`, at least 0, the weight of both.
        model: give it where the model is compiled; see `Passes`.

    The defaults are chosen here. This is derived from the published objective: there is no public code to
    compare with.

    ``step(closure)`` needs the closure; ``gather(closure)`` leaves the gradient in ``p.grad`` without a step.
    Under DDP every backward averages the gradients, so rho applies to the average and the replicas agree.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        >>> optimizer = FAD(torch.optim.SGD([w], lr=0.1), rho=0.5, alpha=0.25, beta=0.5)
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = w.pow(4).sum() / 4
        ...     loss.backward()
        ...     return loss
        >>> optimizer.step(closure).item()
        4.25
        >>> w.grad
        tensor([ 1.0643, 13.1980])

    References:
        X. Zhang, R. Xu, H. Yu, Y. Dong, P. Tian, P. Cui, "Flatness-Aware Minimization for Domain
        Generalization", ICCV 2023.
    """

    def __init__(
        self,
        base: Optimizer,
        *,
        rho: float = 0.05,
        alpha: float = 0.5,
        beta: float = 0.1,
        model: nn.Module | None = None,
    ) -> None:
        self.rho = check.number("rho", rho, 0, error=OptionError)
        self.alpha = check.number("alpha", alpha, 0, 1, error=OptionError)
        self.beta = check.number("beta", beta, 0, error=OptionError)
        super().__init__(base, model)

    def combined(self, gradient: ClosureGradient) -> ParameterVector:
        """The gradient of the objective."""
        g0 = gradient.at()
        g1 = gradient.at(gradient.sphere(self.rho, g0))
        h0 = weighted_sum((1.0, g1), (-1.0, g0))
        offset = gradient.sphere(self.rho, h0)
        g2 = gradient.at(offset)
        g3 = gradient.at(weighted_sum((1.0, offset), (1.0, gradient.sphere(self.rho, g2))))
        h1 = weighted_sum((1.0, g3), (-1.0, g2))
        return weighted_sum((1.0, g0), (self.beta * self.alpha, h0), (self.beta * (1.0 - self.alpha), h1))
