"""MixStyle: mix the channel statistics of samples, and so their styles, inside the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import final

import torch
from torch import Tensor

from genie_dg._types import MAIN, DomainBatch, Network, Objective, StepContext
from genie_dg.check import InputError, number, one_of
from genie_dg.search_space import Setting

from ._mixing import beta, on_map, statistics
from .algorithm import Algorithm, AlgorithmRow


def mix(x: Tensor, weights: Tensor, partner: Tensor, eps: float = 1e-6) -> Tensor:
    """Activations x with their channel statistics mixed with those of ``x[partner]``; see `MixStyle`.

    x is ``[n, c, h, w]``, ``weights`` are those of the own statistics, ``partner`` is a permutation of the
    samples, and ``eps`` is added to variances.

    >>> x = torch.tensor([[1.0, 3.0], [0.0, 20.0]]).view(2, 1, 1, 2)
    >>> mix(x, torch.tensor([0.5, 1.0]), torch.tensor([1, 0])).round(decimals=3).flatten().tolist()
    [0.5, 11.5, 0.0, 20.0]
    """
    mu, sigma = (s.detach() for s in statistics(x, (2, 3), eps))
    own = weights.to(x.dtype).reshape(-1, 1, 1, 1)
    mixed_mu = own * mu + (1 - own) * mu[partner]
    mixed_sigma = own * sigma + (1 - own) * sigma[partner]
    return (x - mu) / sigma * mixed_sigma + mixed_mu


def _unchanged(x: Tensor) -> Tensor:
    return x


@final
class MixStyle(Algorithm):
    r"""Cross-entropy on activations whose styles are mixed.

    With :math:`\mu, \sigma` the mean and the standard deviation of each channel of a sample over space, both
    taken as constants, :math:`\tilde x` another sample of the batch and :math:`\lambda \sim` Beta(alpha, alpha)
    for each sample,

    .. math::
        \hat x = \bigl(\lambda \sigma(x) + (1-\lambda)\sigma(\tilde x)\bigr) \frac{x - \mu(x)}{\sigma(x)}
        + \lambda \mu(x) + (1-\lambda)\mu(\tilde x) .

    At each point and step this happens with probability p, for the whole batch. Partners are a random
    permutation of the pooled batch (the paper's random shuffle). Predictions are never mixed.

    Args:
        network: makes the predictions; its points must be activation maps.
        mixstyle_p: p.
        mixstyle_alpha: alpha.
        mixstyle_points: names of points; empty for the network's first three, or as many as it has, not
            counting one named ``stem``: in a ResNet ``layer1`` to ``layer3``.

    Differs from the public code in: the variance divides by h w, as in the paper (there: h w - 1).
    """

    def __init__(
        self,
        network: Network,
        domains: int,
        *,
        mixstyle_p: float = 0.5,
        mixstyle_alpha: float = 0.1,
        mixstyle_points: Sequence[str] = (),
    ) -> None:
        super().__init__(network, domains)
        self.p = number("mixstyle_p", mixstyle_p, 0, 1)
        self.alpha = number("mixstyle_alpha", mixstyle_alpha, 0, excluding=(0,))
        self.points = tuple(mixstyle_points) or tuple(p for p in network.points if p != "stem")[:3]
        if not (self.points and network.points):
            raise InputError("MixStyle got a network without feature points; choose a backbone that has some.")
        for point in self.points:
            one_of("mixstyle_points", point, network.points)

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        images, labels = batch.all_images, batch.all_labels
        generator, edits = context.generator(), {}
        for point in self.points:
            coin = float(torch.rand((), generator=generator))
            weights = beta(self.alpha, (len(images),), generator).to(images.dtype).to(images.device)
            partner = torch.randperm(len(images), generator=generator).to(images.device)
            edit = partial(mix, weights=weights, partner=partner) if coin < self.p else _unchanged
            edits[point] = on_map("MixStyle", point, edit)  # a point that has no map is refused at once

        def loss() -> Tensor:
            return self.classification_loss(self.network.head(self.network.features(images, edits)), labels)

        yield Objective(MAIN, loss)


ROW = AlgorithmRow(
    "MixStyle",
    MixStyle,
    paper="Zhou et al., Domain Generalization with MixStyle, ICLR 2021",
    space={
        "mixstyle_p": Setting(0.5, None, "SWAD"),
        "mixstyle_alpha": Setting(0.1, None, "SWAD"),
        "mixstyle_points": Setting((), None, "the first three stages, as in SWAD"),
    },
)
