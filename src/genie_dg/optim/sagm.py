"""SAGM: the plain gradient and SAM's together, the second one taken a step further down."""

from __future__ import annotations

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from genie_dg import check

from ._options import OptionError
from .passes import ClosureGradient, ParameterVector, Passes, weighted_sum


class SAGM(Passes):
    r"""Sharpness-Aware Gradient Matching: two passes, one step of any base optimizer.

    The objective is :math:`L(w) + L_p(w - \alpha \nabla L(w))` with SAM's loss
    :math:`L_p(w) = L(w + \rho\, \nabla L / \|\nabla L\|)`. To first order in :math:`\alpha` the second term is
    :math:`L_p - \alpha \langle \nabla L_p, \nabla L \rangle`, so both losses are lowered and their gradients
    are aligned. With the gradient :math:`g` at the weights :math:`w`, norms over all parameters together,

    .. math::
        \epsilon = \rho\, g / \|g\| - \alpha\, g, \qquad
        \text{gradient} = \tfrac12 \bigl(g + \nabla L(w + \epsilon)\bigr)

    The weights are put back to the bit before ``base`` steps. Batch norms use the statistics of the batch in
    both passes; their running statistics change in the first only. Where the gradient is zero,
    :math:`\epsilon` is zero.

    Args:
        base: the optimizer that takes the step; it owns parameter groups, state and state dict.
        rho: :math:`\rho`, the radius; 0.05 is the published default.
        alpha: :math:`\alpha`, at least 0; published are 0.001 and, for OfficeHome and DomainNet, 0.0005.
        model: give it where the model is compiled; see `Passes`.

    ``step(closure)`` needs the closure; ``gather(closure)`` leaves the gradient in ``p.grad`` without a step.
    With a GradScaler it is ``gather(closure, scaler)``: :math:`\alpha g` is a move by the gradient itself, not
    by its direction, so the scale of the loss must be known. Under DDP every backward averages the gradients,
    so rho and alpha apply to the average and the replicas agree.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
        >>> optimizer = SAGM(torch.optim.SGD([w], lr=0.1), rho=0.5, alpha=0.2)
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = w.square().sum() / 2
        ...     loss.backward()
        ...     return loss
        >>> optimizer.step(closure).item()
        12.5
        >>> w.grad  # the mean of w and w + 0.5 w / |w| - 0.2 w
        tensor([2.8500, 3.8000])

    Differs from the paper in: half the sum of the two gradients takes the place of the sum, as in the authors'
    code, so that with rho = alpha = 0 it is the base alone. Differs from the authors' code in: processes agree
    on g before the second pass (there each moves along the gradient of its own share); a zero gradient moves
    nothing (there :math:`10^{-12}` is added to the norm).

    References:
        P. Wang, Z. Zhang, Z. Lei, L. Zhang, "Sharpness-Aware Gradient Matching for Domain Generalization",
        CVPR 2023.
    """

    def __init__(
        self, base: Optimizer, *, rho: float = 0.05, alpha: float = 0.001, model: nn.Module | None = None
    ) -> None:
        self.rho = check.number("rho", rho, 0, error=OptionError)
        self.alpha = check.number("alpha", alpha, 0, error=OptionError)
        super().__init__(base, model)

    def combined(self, gradient: ClosureGradient) -> ParameterVector:
        """The mean of the gradients at w and at w + epsilon."""
        g = gradient.at()
        length = gradient.dot(g, g).sqrt()
        usable = torch.isfinite(length) & (length > 0)
        by = self.rho / length - self.alpha / gradient.scale
        offset: ParameterVector = [
            None if x is None else torch.where(usable.to(x.device), x * by.to(x.device), 0.0) for x in g
        ]
        return weighted_sum((0.5, g), (0.5, gradient.at(offset)))
