r"""What several update rules make of the same past gradients, at the same weights.

The state of an optimizer holds what its own rule needs. To compare rules at one point, `GradientHistory` keeps
the moving averages of all of them beside a training run, whatever optimizer trains. Each rule of `RULES` is

.. math::
    \Delta\theta = -\,f(m', v') \odot \bar g', \qquad m' = \beta_1 m + (1-\beta_1) g_D, \quad
    v' = \beta_2 v + (1-\beta_2) g_D^2 ,

with :math:`\bar g' = m' / (1 - \beta_1^t)` (plain SGD has no history: :math:`\Delta\theta = -g_D`). The
theorem's preconditioner p is the factor f at the averages so far. Mask and noise are left out: over their draws
the step is this one on average.

The OSGR of several preconditioners at one point of a training run, from one pass over the gradients.

Corollary R_GENIE >= R_SGD of the paper is about one point: the same weights, the same gradients, two
preconditioners. `SampleMoments` holds mean and variance of each weight's gradient over the two halves of a pool
of samples, so that a preconditioner that is itself computed from moments (of one half) meets gradients that it
has not seen (of the other), and the other way round. With N gradients in all

.. math::
    R = \frac{A}{A + B/n}, \qquad A = \sum_j p_j (\bar g_j^2 - s_j^2/N), \qquad B = \sum_j p_j s_j^2 ,

as in `genie_dg.diagnostics.osgr`. A ratio whose denominator is not positive is not a number here: `Gains.ratio`
is NaN, and whoever averages has to count it (`mean_of_defined`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from genie_dg.diagnostics import undisturbed
from genie_dg.diagnostics.gsnr import ratio
from genie_dg.diagnostics.per_sample import gradient_moments
from genie_dg.diagnostics.preconditioners import averaging, gate, inverse_variance, printed, trust, variance

from .figure_setup import cross_entropy
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


Pool = tuple[Tensor, Tensor]
"""Images and labels."""


@dataclass(frozen=True)
class Gains:
    """Loss decrease to first order on new samples, and on the samples of the step."""

    on_other: float
    on_d: float

    @property
    def ratio(self) -> float:
        """The OSGR, and NaN where the step does not lower the loss on its own samples."""
        return self.on_other / self.on_d if self.on_d > 0 else math.nan

    def __add__(self, other: Gains) -> Gains:
        return Gains(self.on_other + other.on_other, self.on_d + other.on_d)


def mean_of_defined(ratios: Sequence[float]) -> tuple[float, int]:
    """The mean of the ratios that exist (NaN without any), and how many do not.

    >>> mean_of_defined([0.5, math.nan, 0.25])
    (0.375, 1)
    """
    kept = [r for r in ratios if math.isfinite(r)]
    return (math.fsum(kept) / len(kept) if kept else math.nan), len(ratios) - len(kept)


@dataclass(frozen=True)
class Half:
    """Mean and variance of each weight's gradient over ``count`` samples, as vectors."""

    mean: Tensor
    variance: Tensor
    count: int

    @property
    def gsnr(self) -> Tensor:
        """Corrected for the number of samples, so that it may be negative."""
        return ratio(self.mean, self.variance, self.count)

    def gains(self, p: Tensor, n: float) -> Gains:
        """The two loss decreases with a preconditioner, for draws of n samples."""
        p = p.double()
        signal = float((p * (self.mean.square() - self.variance / self.count)).sum())
        return Gains(signal, signal + float((p * self.variance).sum()) / n)


@dataclass(frozen=True)
class SampleMoments:
    """The moments of two halves of a pool, and of all of it."""

    first: Half
    second: Half
    whole: Half

    @property
    def live(self) -> Tensor:
        """The weights whose gradient has a variance in both halves."""
        return (self.first.variance > 0) & (self.second.variance > 0)

    def gains(self, p: Tensor, n: float) -> Gains:
        """With a preconditioner that does not come from these samples."""
        return self.whole.gains(p, n)

    def gains_of(self, formula: Callable[[Tensor, Tensor, float], Tensor], n: float) -> Gains:
        """With p a function of (mean, variance, n) as in `theory`: from each half, for the other.

        A weight without variance in either half is left out; it has no GSNR.
        """
        total = Gains(0.0, 0.0)
        for own, other in ((self.first, self.second), (self.second, self.first)):
            p = formula(own.mean, own.variance, n)
            total = total + other.gains(torch.where(self.live, p, 0.0), n)
        return total

    def theorem_gains(self, n: float) -> Gains:
        r"""With eq. 5 exactly, in the corollary's closed form: :math:`R = n \bar r / (n \bar r + 1)`.

        :math:`\bar r` is the mean GSNR of the live weights. The inverse of an estimated variance has heavy
        tails, and the closed form does without it.
        """
        mean = float(self.whole.gsnr[self.live].mean())
        return Gains(mean, mean + 1 / n)

    def gsnr_variance_correlation(self) -> float:
        """Across the live weights, GSNR of one half against variance of the other, mean of both ways.

        R_GENIE >= R_SGD exactly where this is not positive, for the true moments (see `claims`).
        """
        live = self.live
        pairs = ((self.first, self.second), (self.second, self.first))
        rows = [torch.stack([a.gsnr[live], b.variance[live]]) for a, b in pairs]
        return float(sum(torch.corrcoef(row)[0, 1] for row in rows)) / 2


def sample_moments(model: nn.Module, pool: Pool) -> SampleMoments:
    """Moments by sample of every second sample of a pool, of the others, and of all; nothing is changed."""
    first, second = (_half(model, (pool[0][start::2], pool[1][start::2])) for start in (0, 1))
    return SampleMoments(first, second, _together(first, second))


def _half(model: nn.Module, pool: Pool) -> Half:
    moments = gradient_moments(model, cross_entropy, pool)
    spread = flatten(list(moments.spread.values())).double()
    return Half(flatten(list(moments.mean.values())).double(), spread / (moments.count - 1), moments.count)


def _together(a: Half, b: Half) -> Half:
    """Mean and variance of all samples of two halves."""
    count, gap = a.count + b.count, b.mean - a.mean
    within = a.variance * (a.count - 1) + b.variance * (b.count - 1)
    spread = within + gap.square() * (a.count * b.count / count)
    return Half(a.mean + gap * (b.count / count), spread / (count - 1), count)


def draw_gradients(model: nn.Module, pool: Pool, n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """The gradients of pairs D and D' of n samples, as many as the pool holds: two tensors [draws, weights]."""
    (x, y), count = pool, len(pool[1])
    draws = count // (2 * n)
    if draws < 1:
        raise PaperError(f"A draw of n={n} needs {2 * n} samples; got {count}, so give more or a smaller n.")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))[: 2 * n * draws]
    weights = [p for p in model.parameters() if p.requires_grad]
    with undisturbed(model):
        losses = (cross_entropy(model, x[part], y[part]) for part in torch.split(order, n))
        rows = [
            flatten(torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True))
            for loss in losses
        ]
    return torch.stack(rows[::2]), torch.stack(rows[1::2])


def step_gains(history: GradientHistory, rule: str, on_d: Tensor, on_other: Tensor) -> Gains:
    """To first order, summed over draws: what the rule's real next step for D gains on D' and on D.

    Momentum is part of the step, so that the gain on D may be negative.
    """
    step = history.directions(rule, on_d)
    on_new, on_own = ((step * gradient).sum(dtype=torch.float64) for gradient in (on_other, on_d))
    return Gains(float(on_new), float(on_own))
