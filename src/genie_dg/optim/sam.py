"""SAM: the gradient at the worst place nearby."""

from __future__ import annotations

from torch import nn
from torch.optim.optimizer import Optimizer

from genie_dg import check

from ._options import OptionError
from .passes import ClosureGradient, ParameterVector, Passes


class SAM(Passes):
    r"""Sharpness-Aware Minimization: two passes, one step of any base optimizer.

    With the gradient :math:`g` at the weights :math:`w`, norms over all parameters together,

    .. math::
        \epsilon = \rho\, g / \|g\|, \qquad \text{gradient} = \nabla L(w + \epsilon)

    The weights are put back to the bit before ``base`` steps. Batch norms use the statistics of the batch in
    both passes; their running statistics change in the first only. Where the gradient is zero,
    :math:`\epsilon` is zero.

    Args:
        base: the optimizer that takes the step; it owns parameter groups, state and state dict.
        rho: :math:`\rho`, the radius; 0.05 is the published default.
        model: give it where the model is compiled; see `Passes`.

    ``step(closure)`` needs the closure; ``gather(closure)`` leaves the gradient in ``p.grad`` without a step.
    Under DDP every backward averages the gradients, so rho applies to the average and the replicas agree.

    Example:
        >>> w = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
        >>> optimizer = SAM(torch.optim.SGD([w], lr=0.1), rho=0.5)
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = w.square().sum() / 2
        ...     loss.backward()
        ...     return loss
        >>> optimizer.step(closure).item()
        12.5
        >>> w.grad  # w + 0.5 w / |w|
        tensor([3.3000, 4.4000])

    References:
        P. Foret, A. Kleiner, H. Mobahi, B. Neyshabur, "Sharpness-Aware Minimization for Efficiently Improving
        Generalization", ICLR 2021.
    """

    def __init__(self, base: Optimizer, *, rho: float = 0.05, model: nn.Module | None = None) -> None:
        self.rho = check.number("rho", rho, 0, error=OptionError)
        super().__init__(base, model)

    def combined(self, gradient: ClosureGradient) -> ParameterVector:
        """The gradient at w + epsilon."""
        g = gradient.at()
        offset = gradient.sphere(self.rho, g)
        spoilt = 0.0 * gradient.dot(g, g)  # NaN if the first gradient is not finite: a GradScaler must see it
        del g
        return [None if x is None else x + spoilt.to(x.device) for x in gradient.at(offset)]
