r"""What several update rules make of the same past gradients, at the same weights.

The state of an optimizer holds what its own rule needs. To compare rules at one point, `GradientHistory` keeps
the moving averages of all of them beside a training run, whatever optimizer trains. Each rule of `RULES` is

.. math::
    \Delta\theta = -\,f(m', v') \odot \bar g', \qquad m' = \beta_1 m + (1-\beta_1) g_D, \quad
    v' = \beta_2 v + (1-\beta_2) g_D^2 ,

with :math:`\bar g' = m' / (1 - \beta_1^t)` (plain SGD has no history: :math:`\Delta\theta = -g_D`). The
theorem's preconditioner p is the factor f at the averages so far. Mask and noise are left out: over their draws
the step is this one on average.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from genie_dg.diagnostics.preconditioners import averaging, gate, inverse_variance, printed, trust, variance

from .request import PaperError

BETA, ADAM_BETAS = 0.95, (0.9, 0.999)
GENIE_BETAS = (BETA, BETA)
ADAM_EPS = 1e-8

Factor = Callable[[Tensor, Tensor, int, Sequence[int]], Tensor]
"""f from (m, v, t, sizes of the tensors); the last dimension of m and v counts all weights."""


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """One vector in float32 or wider."""
    return torch.cat([t.detach().flatten().to(torch.promote_types(t.dtype, torch.float32)) for t in tensors])


def _one(m: Tensor, v: Tensor, t: int, sizes: Sequence[int]) -> Tensor:
    return torch.ones_like(m)


def _adam(m: Tensor, v: Tensor, t: int, sizes: Sequence[int]) -> Tensor:
    return 1 / ((v / (1 - ADAM_BETAS[1] ** t)).sqrt() + ADAM_EPS)


def _trust(m: Tensor, v: Tensor, t: int, sizes: Sequence[int]) -> Tensor:
    a = averaging(BETA, t)
    mean = m * a.inverse_correction
    return trust(mean.square(), variance(v, mean, a), a.rho)


def _released(m: Tensor, v: Tensor, t: int, sizes: Sequence[int]) -> Tensor:
    a = averaging(BETA, t)
    return _trust(m, v, t, sizes) * gate(variance(v, m * a.inverse_correction, a))


def _algorithm1(m: Tensor, v: Tensor, t: int, sizes: Sequence[int]) -> Tensor:
    _, gated, trusted = printed(m, v, averaging(BETA, t))
    return gated * trusted


def _theorem(m: Tensor, v: Tensor, t: int, sizes: Sequence[int]) -> Tensor:
    a = averaging(BETA, t)
    s2 = variance(v, m * a.inverse_correction, a)
    by_tensor = torch.split(s2, list(sizes), -1)
    return torch.cat([inverse_variance(part, part.mean(-1, keepdim=True)) for part in by_tensor], -1)


RULES: dict[str, tuple[Factor, tuple[float, float] | None]] = {
    "SGD": (_one, None),
    "averaged gradient": (_one, GENIE_BETAS),
    "Adam": (_adam, ADAM_BETAS),
    "trust": (_trust, GENIE_BETAS),
    "released": (_released, GENIE_BETAS),
    "algorithm1": (_algorithm1, GENIE_BETAS),
    "eq. 5": (_theorem, GENIE_BETAS),
}
"""By name the factor f and the decays of the averages it is computed from; none: the gradient itself. "averaged
gradient" is GENIE without preconditioning; "trust" is "released" without its gate; "eq. 5" is
``formulation="theorem"``: the inverse variance, in units of the tensor's mean and at most 10."""


class GradientHistory:
    """The moving averages that the rules need, kept beside a training run.

    Call `add` after each step, while ``.grad`` still holds its gradient; a weight without one counts as zero.

    Args:
        model: its trainable weights, in the order of ``named_parameters()``.

    Example:
        >>> line = torch.nn.Linear(1, 1, bias=False)
        >>> history = GradientHistory(line)
        >>> line.weight.grad = torch.tensor([[2.0]])
        >>> history.add()
        >>> history.preconditioner("Adam").item(), history.directions("released", torch.ones(3, 1)).shape
        (0.5, torch.Size([3, 1]))
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self.sizes = [p.numel() for p in self._parameters]
        self.steps = 0
        zeros = torch.zeros_like(flatten(self._parameters))
        self._averages = {betas: (zeros.clone(), zeros.clone()) for betas in (GENIE_BETAS, ADAM_BETAS)}

    @torch.no_grad()
    def add(self) -> None:
        """Take the present gradients into the averages."""
        g = flatten([torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters])
        for (b1, b2), (m, v) in self._averages.items():
            m.lerp_(g, 1 - b1)
            v.mul_(b2).addcmul_(g, g, value=1 - b2)
        self.steps += 1

    @property
    def seen(self) -> Tensor:
        """The weights that have had a gradient other than 0; of the others no rule knows anything."""
        return self._averages[ADAM_BETAS][1] > 0

    @torch.no_grad()
    def preconditioner(self, rule: str) -> Tensor:
        """The factor p of a rule at the averages so far, one vector."""
        if self.steps == 0:
            raise PaperError("The history holds no gradient, so no rule has a step; call add() after a step.")
        factor, betas = RULES[rule]
        return factor(*self._averages[betas or GENIE_BETAS], self.steps, self.sizes)

    @torch.no_grad()
    def directions(self, rule: str, gradients: Tensor) -> Tensor:
        """The next steps of a rule, times -1 and at learning rate 1, for gradients [draws, weights]."""
        factor, betas = RULES[rule]
        if betas is None:
            return gradients
        (m, v), (b1, b2) = self._averages[betas], betas
        m, v = m * b1 + gradients * (1 - b1), v * b2 + gradients.square() * (1 - b2)
        return factor(m, v, self.steps + 1, self.sizes) * (m / (1 - b1 ** (self.steps + 1)))
