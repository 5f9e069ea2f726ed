"""SelfReg: samples of one class, whatever their domain, get close logits and close features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from genie_dg._types import MAIN, DomainBatch, Network, Objective, Role, StepContext
from genie_dg.check import InputError

from ._mixing import beta
from .algorithm import Algorithm, AlgorithmRow

_ALPHA = 0.5
"""The mixing weight is drawn from Beta(0.5, 0.5)."""

_FEATURE_WEIGHT = 0.3
"""The weight of the distances between features beside those between logits."""


def partners(labels: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two random partners of the same class for every sample, which may be the sample itself.

    Each is a permutation of every class; classes in increasing order, and for each class the first permutation
    before the second.

    >>> labels = torch.tensor([1, 0, 1, 1, 2])
    >>> first, second = partners(labels, torch.Generator().manual_seed(0))
    >>> labels[first].tolist(), labels[second].tolist(), first.sort().values.tolist()
    ([1, 0, 1, 1, 2], [1, 0, 1, 1, 2], [0, 1, 2, 3, 4])
    """
    on_cpu = labels.cpu()
    first, second = torch.empty_like(on_cpu), torch.empty_like(on_cpu)
    for label in sorted(set(on_cpu.tolist())):
        members = (on_cpu == label).nonzero()[:, 0]
        first[members] = members[torch.randperm(len(members), generator=generator)]
        second[members] = members[torch.randperm(len(members), generator=generator)]
    return first.to(labels.device), second.to(labels.device)


def regularization(x: Tensor, targets: Tensor, first: Tensor, second: Tensor, weight: float) -> Tensor:
    r"""The distances of x to the target of a partner and to a mixture of the targets of two partners.

    .. math::
        \lambda\, \overline{(x_i - t_{p(i)})^2} + (1 - \lambda)\,
        \overline{\big(x_i - \lambda\, t_{p(i)} - (1 - \lambda)\, t_{q(i)}\big)^2}

    A bar is the mean over samples and entries; p is ``first``, q is ``second``, lambda is ``weight``.

    >>> x, targets = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0], [2.0]])
    >>> first, second = torch.tensor([1, 0]), torch.tensor([0, 1])
    >>> regularization(x, targets, first, second, 0.75).item()  # 0.75 * (4 + 1) / 2 + 0.25 * (2.25 + 0.25) / 2
    2.1875
    """
    mixed = weight * targets[first] + (1 - weight) * targets[second]
    return weight * mse_loss(x, targets[first]) + (1 - weight) * mse_loss(x, mixed)


@final
class SelfReg(Algorithm):
    r"""The loss of all samples plus distances within each class, of logits and of features.

    .. math::
        L = R + \min(\bar R, 1)\, \big[ \mathrm{reg}(f, f) + 0.3\, \mathrm{reg}(z, c(z)) \big],
        \qquad \lambda \sim \mathrm{Beta}(0.5, 0.5)

    R is the mean cross entropy of all samples and :math:`\bar R` its value, a constant for the gradient; f are
    the logits, z the features, reg is `regularization` with the random `partners` of the step, one lambda for
    all, and c, the class-specific domain perturbation layer, is a perceptron of three linear layers with batch
    norms, trained with the network. It plays no part in predictions. Its batch norms need two samples in a
    batch; a class with one sample is its own partner. All domains go through the network together.

    Differs from the paper in that there is neither its curriculum of domains nor its average of weights, as in
    DomainBed. Differs from DomainBed's code in that c is trained: there its weights belong to no optimizer and
    stay as they were drawn, while the authors' own training code trains them.
    """

    def __init__(self, network: Network, domains: int) -> None:
        super().__init__(network, domains)
        size, like = network.feature_size, next(network.parameters())
        hidden = size if size == 2048 else 2 * size
        perturbation = nn.Sequential(
            nn.Linear(size, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.BatchNorm1d(hidden), nn.ReLU(),
            nn.Linear(hidden, size), nn.BatchNorm1d(size),
        )  # fmt: skip
        self.perturbation = perturbation.to(like.device, like.dtype)

    def roles(self) -> dict[str, Role]:
        """The network and the perturbation layer as ``"main"``."""
        return {MAIN: Role.of(self.network, self.perturbation)}

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        images, labels = batch.all_images, batch.all_labels
        if len(labels) < 2:
            raise InputError("SelfReg got a batch with 1 sample; expected 2 or more, so raise the batch size.")
        generator = context.generator()
        weight = float(beta(_ALPHA, (), generator))
        first, second = partners(labels, generator)

        def loss() -> Tensor:
            features = self.network.features(images)
            logits = self.network.head(features)
            classification = self.classification_loss(logits, labels)
            of_logits = regularization(logits, logits, first, second, weight)
            of_features = regularization(features, self.perturbation(features), first, second, weight)
            scale = classification.detach().clamp(max=1.0)
            return classification + scale * (of_logits + _FEATURE_WEIGHT * of_features)

        yield Objective(MAIN, loss)


ROW = AlgorithmRow(
    "SelfReg",
    SelfReg,
    paper="Kim et al., SelfReg: Self-Supervised Contrastive Regularization for Domain Generalization, "
    "ICCV 2021",
    domainbed=1e-09,
    differs="The class-specific domain perturbation layer is trained, as in the authors' own training code; in "
    "DomainBed's code its weights belong to no optimizer.",
    one_source="With one source domain SelfReg pairs samples of that domain only; no two domains are brought "
    "together.",
)
