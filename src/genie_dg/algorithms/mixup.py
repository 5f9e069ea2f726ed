"""Inter-domain Mixup: images and labels between two domains."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from genie_dg._types import MAIN, DomainBatch, Network, Objective, StepContext
from genie_dg.check import number
from genie_dg.search_space import LogUniform, Setting

from ._mixing import beta
from .algorithm import Algorithm, AlgorithmRow

MixedPair = tuple[Tensor, Tensor, Tensor, float]
"""Mixed images, the labels of the first and of the second domain, and the weight of the first."""


def ring(order: list[int]) -> list[tuple[int, int]]:
    """Each with its neighbour, the last with the first: every domain comes first once and second once.

    >>> ring([2, 0, 1])
    [(2, 0), (0, 1), (1, 2)]
    """
    return list(zip(order, order[1:] + order[:1], strict=True))


def mixed_pairs(batch: DomainBatch, alpha: float, generator: torch.Generator) -> list[MixedPair]:
    """The domains in a random ring; each pair cut to the smaller size and mixed with one weight of its own.

    A single domain is paired with a shuffled copy of itself.
    """
    pairs = ring(torch.randperm(len(batch), generator=generator).tolist())
    weights = beta(alpha, (len(pairs),), generator).tolist()
    result: list[MixedPair] = []
    for (i, j), weight in zip(pairs, weights, strict=True):
        second, second_labels = batch.images[j], batch.labels[j]
        if i == j:
            shuffle = torch.randperm(len(second_labels), generator=generator).to(second_labels.device)
            second, second_labels = second[shuffle], second_labels[shuffle]
        n = min(batch.sizes[i], batch.sizes[j])
        images = weight * batch.images[i][:n] + (1 - weight) * second[:n]
        result.append((images, batch.labels[i][:n], second_labels[:n], weight))
    return result


class Mixup(Algorithm):
    r"""The loss of samples between two domains, with the labels of both.

    .. math::
        \tilde x = \lambda x_i + (1 - \lambda) x_j, \qquad
        L = \frac1P \sum_{\text{pairs}}
            \big[ \lambda\, \ell(f(\tilde x), y_i) + (1-\lambda)\, \ell(f(\tilde x), y_j) \big]

    The P = D pairs (i, j) are neighbours in a random ring of the domains; each has one weight
    :math:`\lambda \sim \mathrm{Beta}(\alpha, \alpha)`, ``mixup_alpha`` is alpha, and the larger batch of a pair
    is cut to the smaller. Each pair is a forward pass of its own.

    Args:
        mixup_alpha: small values keep most samples near one of the two domains, large ones mix evenly.

    References:
        Xu et al., Adversarial Domain Adaptation with Domain Mixup, AAAI 2020.
        Wang, Li, Kot, Heterogeneous Domain Generalization via Domain Mixup, ICASSP 2020.

    Differs from the papers on adaptation in that both domains of a pair are labelled training domains; there a
    source is mixed with the unlabelled target. Differs from the public code (DomainBed) in the random rule of
    ``mixup_alpha``, 10^U(-1, 1): the code of 2020 draws 10^U(-1, -1), which is always 0.1. A single domain is
    mixed with a shuffled copy of itself; there each sample is mixed with itself.
    """

    def __init__(self, network: Network, domains: int, *, mixup_alpha: float = 0.2) -> None:
        super().__init__(network, domains)
        self.mixup_alpha = number("mixup_alpha", mixup_alpha, 0, excluding=(0,))

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        pairs = mixed_pairs(batch, self.mixup_alpha, context.generator())

        def loss() -> Tensor:
            losses = []
            for images, first, second, weight in pairs:
                logits = self.network(images)
                one, two = (self.classification_loss(logits, labels) for labels in (first, second))
                losses.append(weight * one + (1 - weight) * two)
            return torch.stack(losses).mean()

        yield Objective(MAIN, loss)


ROW = AlgorithmRow(
    "Mixup",
    Mixup,
    paper="Yan et al., Improve Unsupervised Domain Adaptation with Mixup Training, arXiv 2001.00677, 2020",
    space={
        "mixup_alpha": Setting(0.2, LogUniform(-1, 1), "10^U(-1, 1); the public code of 2020 always gives 0.1")
    },
    one_source="With one source domain Mixup mixes that domain's samples with one another.",
    domainbed=1e-10,
    differs="A single domain is mixed with a shuffled copy of itself; DomainBed mixes each sample with itself, "
    "which is ERM. The paper mixes different samples.",
)
