"""GAM: first-order flatness, from four gradients."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from genie_dg import check

from ._options import OptionError
from .passes import ClosureGradient, ParameterVector, Passes, weighted_sum


class GAM(Passes):
    r"""Gradient norm Aware Minimization, accelerated form: four passes, one step of any base optimizer.

    Norms and products are over all parameters together. With :math:`g_i = \nabla L(w_i)` and :math:`w_0 = w`

    .. math::
        w_1 &= w + \rho' g_0 / \|g_0\|, \qquad h = g_1 - g_0 \\
        w_2 &= w + \rho\, h / \|h\|, \qquad w_3 = w_2 + \rho' g_2 / \|g_2\| \\
        a &= \beta_1 g_1 + (1-\beta_1) g_3, \qquad c = g_0 + |1-\beta_0|\, g_2 \\
        \text{gradient} &= a - \gamma\, \Bigl(c - \frac{\langle c, a\rangle}{\|a\|^2} a\Bigr)

    :math:`h` points to where the gradient norm rises, so :math:`w_2` is the place of the largest gradient norm
    nearby. The weights are put back to the bit before ``base`` steps; running statistics of batch norms change
    in the first pass only. Where a norm is zero, so is the move.

    Args:
        base: the optimizer that takes the step; it owns parameter groups, state and state dict.
        rho: :math:`\rho`, the radius in which the largest gradient norm is sought.
        rho_prime: :math:`\rho'`, the length of the small moves.
        beta0: :math:`\beta_0`, at least 0.
        beta1: :math:`\beta_1` in [0, 1].
        gamma: :math:`\gamma`, at least 0.
        model: give it where the model is compiled; see `Passes`.

    The published settings for ResNets are rho 0.2, rho_prime 0.02 to 0.03, beta0 0.1 to 0.5, beta1 0.1 to 0.6
    and gamma 0.03 to 0.05; the defaults are the lower ends.

    ``step(closure)`` needs the closure; ``gather(closure)`` leaves the gradient in ``p.grad`` without a step.
    Under DDP every backward averages the gradients, so the radii apply to the average and the replicas agree.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        >>> optimizer = GAM(torch.optim.SGD([w], lr=0.1), rho=0.5, rho_prime=0.1, gamma=0.5)
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = w.pow(4).sum() / 4
        ...     loss.backward()
        ...     return loss
        >>> optimizer.step(closure).item()
        4.25
        >>> w.grad
        tensor([ 0.7952, 16.7523])

    References:
        X. Zhang, R. Xu, H. Yu, H. Zou, P. Cui, "Gradient Norm Aware Minimization Seeks First-Order Flatness and
        Improves Generalization", CVPR 2023.
    """

    def __init__(
        self,
        base: Optimizer,
        *,
        rho: float = 0.2,
        rho_prime: float = 0.02,
        beta0: float = 0.1,
        beta1: float = 0.1,
        gamma: float = 0.03,
        model: nn.Module | None = None,
    ) -> None:
        self.rho = check.number("rho", rho, 0, error=OptionError)
        self.rho_prime = check.number("rho_prime", rho_prime, 0, error=OptionError)
        self.beta0 = check.number("beta0", beta0, 0, error=OptionError)
        self.beta1 = check.number("beta1", beta1, 0, 1, error=OptionError)
        self.gamma = check.number("gamma", gamma, 0, error=OptionError)
        super().__init__(base, model)

    def combined(self, gradient: ClosureGradient) -> ParameterVector:
        """The combination of the four gradients."""
        g0 = gradient.at()
        g1 = gradient.at(gradient.sphere(self.rho_prime, g0))
        offset = gradient.sphere(self.rho, weighted_sum((1.0, g1), (-1.0, g0)))
        g2 = gradient.at(offset)
        g3 = gradient.at(weighted_sum((1.0, offset), (1.0, gradient.sphere(self.rho_prime, g2))))
        a = weighted_sum((self.beta1, g1), (1.0 - self.beta1, g3))
        c = weighted_sum((1.0, g0), (abs(1.0 - self.beta0), g2))
        square = gradient.dot(a, a)
        along = torch.where(square == 0, 0.0, gradient.dot(c, a) / square)
        return weighted_sum((1.0 + self.gamma * along, a), (-self.gamma, c))
