"""The PAC-Bayes reading of one step: a divergence whose gradient is GENIE's step, and the bound it enters."""

from __future__ import annotations

import math

from torch import Tensor


def kl_divergence(next_mean: Tensor, mean: Tensor, q: Tensor, variance: Tensor) -> Tensor:
    r"""How far the posterior :math:`N(\theta_{t+1}, q^2 \rho^2)` is from the prior :math:`N(\theta_t, \rho^2)`.

    .. math::
        KL = \frac12 \sum_j
        \left[ q_j^2 + \frac{(\theta_{t+1,j} - \theta_{t,j})^2}{\rho_j^2} - 1 - \log q_j^2 \right]

    The covariance part :math:`q^2 - 1 - \log q^2` is smallest at q = 1: distrust (q < 1) makes it larger.

    Args:
        next_mean: :math:`\theta_{t+1}`.
        mean: :math:`\theta_t`.
        q: the variance adaptation factor :math:`E[g]^2 / E[g^2]`, above 0; at 0 the divergence is infinite.
        variance: :math:`\rho^2`, above 0.

    Example:
        >>> kl_divergence(torch.tensor([2.0]), torch.tensor([1.0]), torch.tensor([0.5]), torch.tensor([4.0]))
        tensor(0.4431)

    Differs from the paper in nothing, but the units there do not agree: :math:`\rho^2` is the variance of a
    gradient and serves as the variance of a weight, and :math:`\theta_{t+1} = \theta_t - q g` has no step size.
    With a step size :math:`\alpha` both standard deviations become :math:`\alpha \rho`, the divergence stays,
    and its gradient is :math:`q g / (\alpha \rho^2)`.
    """
    return ((q.square() + (next_mean - mean).square() / variance - 1 - q.square().log()) / 2).sum()


def kl_gradient(gradient: Tensor, q: Tensor, variance: Tensor) -> Tensor:
    r"""The gradient :math:`q g / \rho^2` of `kl_divergence` in :math:`\theta_t`, the next point held fixed.

    With :math:`q = E[g]^2 / E[g^2]` this is the theorem's preconditioner without 1/n times :math:`g`. The
    catch: :math:`\theta_{t+1} = \theta_t - q g` moves along with :math:`\theta_t`. When it may do so, the
    divergence depends on :math:`q g` alone and its gradient in :math:`\theta_t` is 0.

    Args:
        gradient: :math:`g`.
        q: the variance adaptation factor, above 0.
        variance: :math:`\rho^2`, above 0.

    Example:
        >>> kl_gradient(torch.tensor([3.0]), torch.tensor([0.5]), torch.tensor([4.0]))
        tensor([0.3750])
    """
    return q * gradient / variance


def risk_bound(
    empirical: float, divergence: float, n: float, *, delta: float = 0.05, limit: float = 1.0,
    weight: float = 0.0,
) -> float:  # fmt: skip  # fmt: skip
    r"""The right-hand side of the paper's PAC-Bayes bound,

    .. math::
        E_{\theta \sim \tilde p}[L(\theta)] + \frac{\lambda C^2}{8 n} + \frac{KL + \log(1/\delta)}{\lambda} .

    A value of C or more says nothing, because no loss is above C.

    Args:
        empirical: the mean loss over the posterior, in [0, C].
        divergence: KL of the posterior from the prior.
        n: samples.
        delta: the bound holds with probability 1 - delta over their draw.
        limit: C, the largest loss; 1 for the error rate.
        weight: :math:`\lambda > 0`; 0 takes the best one, :math:`\sqrt{8 n (KL + \log(1/\delta))} / C`, which
            depends on the samples, so that the value is a little too small for a bound that holds.

    Example:
        >>> round(risk_bound(0.1, 5.0, 1000), 4)  # 0.1 + sqrt((5 + log 20) / 2000)
        0.1632
    """
    information = divergence - math.log(delta)
    scale = weight or math.sqrt(8 * n * information) / limit
    return empirical + scale * limit**2 / (8 * n) + information / scale
