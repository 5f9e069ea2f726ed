"""Marginal transfer learning: the classifier also sees a summary of the sample's domain."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from genie_dg._types import MAIN, DomainBatch, Network, Objective, Role, StepContext
from genie_dg.check import number
from genie_dg.search_space import Choice, Setting

from .algorithm import Algorithm, AlgorithmRow


class MTL(Algorithm):
    r"""Classify :math:`(z, m_d)`: the features of a sample and the mean features of its domain.

    .. math::
        m_d^t = (1 - \rho)\, m_d^{t-1} + \rho\, \frac1{n_d} \sum_{i \in d} z_i, \qquad
        L = \frac1N \sum_i \ell\big(h([z_i, m_{d(i)}^t]), y_i\big)

    z are the network's features, h a linear head of its own on ``2 * feature_size`` numbers (the network's head
    is not used), ``mtl_ema`` is rho. The batch's part of m carries a gradient, the old part does not. In the
    first step of the run m is the batch mean itself. The averages are stored once a step, those of the first
    evaluation. Each domain is a forward pass of its own.

    `predict` takes the images it is given as a sample of one unseen domain: m is the mean of their features, so
    a prediction depends on the batch it is made in.

    Args:
        network: its featurizer is trained, its head is not.
        mtl_ema: the weight of the new batch, in [0, 1], as in the public code. 1 takes each batch's own mean; 0
            keeps the mean of the first batch for good.

    Differs from the paper in that the embedding of a domain is the mean of learnt features and h is linear;
    there both are kernels, and the mean is over the domain's whole sample. Differs from the public code
    (DomainBed): there the embedding is overwritten with random numbers before it is used, the averages start
    from 0, and the losses of the domains are summed.
    """

    embeddings: Tensor
    started: Tensor

    def __init__(self, network: Network, domains: int, *, mtl_ema: float = 0.99) -> None:
        super().__init__(network, domains)
        self.mtl_ema = number("mtl_ema", mtl_ema, 0, 1)
        size, like = network.feature_size, next(network.parameters())
        self.head = nn.Linear(2 * size, network.classes, dtype=like.dtype, device=like.device)
        self.register_buffer("embeddings", torch.zeros(domains, size, dtype=like.dtype, device=like.device))
        self.register_buffer("started", torch.zeros((), dtype=torch.bool, device=like.device))

    def roles(self) -> dict[str, Role]:
        """The featurizer and the head of this algorithm as ``"main"``."""
        return {MAIN: Role.of(self.network.featurizer, self.head)}

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        labels = batch.all_labels
        new: list[Tensor] = []

        def loss() -> Tensor:
            features = [self.network.features(images) for images in batch.images]
            embeddings = self._averaged(torch.stack([z.mean(0) for z in features]))
            if not new:
                new.append(embeddings.detach().clone())
            logits = [self._classify(z, m) for z, m in zip(features, embeddings, strict=True)]
            return self.classification_loss(torch.cat(logits), labels)

        yield Objective(MAIN, loss)
        if new:
            self.embeddings.copy_(new[0])
            self.started.fill_(True)

    def predict(self, images: Tensor) -> Tensor:
        """Logits for images of one domain, which need not be a training domain."""
        features = self.network.features(images)
        return self._classify(features, features.mean(0))

    def _averaged(self, means: Tensor) -> Tensor:
        """The moving averages with this batch in them."""
        averages = (1 - self.mtl_ema) * self.embeddings + self.mtl_ema * means
        return torch.where(self.started, averages, means)

    def _classify(self, features: Tensor, embedding: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.cat([features, embedding.expand_as(features)], 1))
        return logits


ROW = AlgorithmRow(
    "MTL",
    MTL,
    paper="Blanchard et al., Domain Generalization by Marginal Transfer Learning, JMLR 2021",
    space={"mtl_ema": Setting(0.99, Choice((0.5, 0.9, 0.99, 1.0)), "DomainBed")},
    one_source="With one source domain MTL sees one embedding only; it cannot learn what embeddings mean.",
    differs="The embedding of a domain is the running mean of its features, as the paper's is a mean over the "
    "domain; DomainBed overwrites it with random numbers before it is used. The running means begin at the "
    "first batch's; DomainBed's begin at 0. The paper has no running means. The loss is the mean over all "
    "samples, which with equal batches is the paper's mean over domains; DomainBed sums the losses of the "
    "domains.",
)
