"""CAD and CondCAD: a contrastive guess of the domain must fail, over all samples or within each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from genie_dg._types import MAIN, DomainBatch, Network, Role, StepContext
from genie_dg.check import boolean, number
from genie_dg.search_space import Choice, Setting

from .algorithm import AlgorithmRow, OneLoss, at_least_float32

_BASE_TEMPERATURE = 0.07
"""The penalty is multiplied by ``temperature`` over this number."""

_PROJECTED = 128
"""Numbers that the projection returns."""


def log_share(scores: Tensor, chosen: Tensor, among: Tensor) -> Tensor:
    r"""For each row the logarithm of the softmax probability of the ``chosen`` entries among ``among``.

    .. math:: \log \frac{\sum_{j \in \text{chosen}_i} e^{s_{ij}}}{\sum_{j \in \text{among}_i} e^{s_{ij}}}

    >>> among = torch.tensor([[False, True, True]])
    >>> scores, chosen = torch.tensor([[9.0, 0.0, 0.0]]), torch.tensor([[False, True, False]])
    >>> log_share(scores, chosen, among).exp().item()  # the first entry is not among them
    0.5
    """
    nothing = float("-inf")
    all_of_them = scores.masked_fill(~among, nothing).logsumexp(1)
    return scores.masked_fill(~chosen, nothing).logsumexp(1) - all_of_them


def bottleneck_loss(
    z: Tensor, labels: Tensor, domains: Tensor, temperature: float, conditional: bool, flipped: bool
) -> Tensor:
    r"""How well the contrastive guess of the domain does; lower is better.

    With scores :math:`s_{ij} = z_i \cdot z_j / T`, :math:`A_i` all other samples (those of the same class when
    ``conditional``) and :math:`p_i(S) = \sum_{j \in S} e^{s_{ij}} / \sum_{j \in A_i} e^{s_{ij}}`, it is the
    mean over samples of

    .. math:: -\frac{T}{0.07} \log p_i(\text{other domains}) \quad\text{when flipped, else}\quad
        \frac{T}{0.07} \log p_i(\text{same domain}) .

    A sample with nobody in :math:`A_i` of the domains asked for is left out, and so is one with nobody of its
    class in the batch; without any sample it is 0. Computed in float32 or float64 also inside autocast.

    >>> z, labels, domains = torch.eye(3), torch.zeros(3), torch.tensor([0, 0, 1])
    >>> loss = bottleneck_loss(z, labels, domains, 0.07, False, True)
    >>> round(loss.item(), 4)  # all scores are equal: probabilities 1/2, 1/2 and 1
    0.4621
    """
    with torch.autocast(z.device.type, enabled=False):
        z = at_least_float32(z)
        others = ~torch.eye(len(z), dtype=torch.bool, device=z.device)
        same_class = (labels[:, None] == labels) & others
        same_domain = domains[:, None] == domains
        among = same_class if conditional else others
        chosen = among & ~same_domain if flipped else among & same_domain
        counted = same_class.any(1) & chosen.any(1)
        losses = log_share((z @ z.T / temperature)[counted], chosen[counted], among[counted])
        sign = -1.0 if flipped else 1.0
        return sign * temperature / _BASE_TEMPERATURE * losses.sum() / max(len(losses), 1)


@dataclass(frozen=True, kw_only=True)
class BottleneckSettings:
    """The settings of `Bottleneck`, where they are explained."""

    lmbda: float = 0.1
    temperature: float = 0.1
    is_normalized: bool = False
    is_project: bool = False
    is_flipped: bool = True

    def __post_init__(self) -> None:
        number("lmbda", self.lmbda, 0)
        number("temperature", self.temperature, 0, excluding=(0,))
        for name in ("is_normalized", "is_project", "is_flipped"):
            boolean(name, getattr(self, name))


class Bottleneck(OneLoss):
    r"""The mean loss of all samples plus :math:`\lambda` times `bottleneck_loss` of the features.

    All domains go through the network together.

    Args:
        lmbda: :math:`\lambda`, spelt as in the public code.
        temperature: T of `bottleneck_loss`.
        is_normalized: z are the features divided by their length.
        is_project: z are the features after two linear layers of their own with a ReLU between them, 128
            numbers; they are trained with the network and play no part in predictions.
        is_flipped: raise the probability of other domains, instead of lowering that of the same domain. Both
            have the same optimum; the authors found the first more stable.
    """

    conditional: ClassVar[bool]
    """Whether samples are compared within their class only (CondCAD)."""

    def __init__(self, network: Network, domains: int, **settings: Any) -> None:
        super().__init__(network, domains)
        self.settings = BottleneckSettings(**settings)
        size, like = network.feature_size, next(network.parameters())
        projection = nn.Sequential()
        if self.settings.is_project:
            projection = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, _PROJECTED))
        self.projection = projection.to(like.device, like.dtype)

    def roles(self) -> dict[str, Role]:
        """The network, with the projection where there is one, as ``"main"``."""
        return {MAIN: Role.of(self.network, self.projection)}

    def loss(self, batch: DomainBatch, context: StepContext) -> Tensor:
        features, labels, s = self.network.features(batch.all_images), batch.all_labels, self.settings
        z = self.projection(features)
        z = normalize(z, dim=1) if s.is_normalized else z
        penalty = bottleneck_loss(z, labels, batch.domain_labels, s.temperature, self.conditional, s.is_flipped)
        return self.classification_loss(self.network.head(features), labels) + s.lmbda * penalty


@final
class CAD(Bottleneck):
    """Contrastive adversarial domain bottleneck: a sample is compared with all others.

    The loss and the arguments are those of `Bottleneck`.

    Differs from the paper in that a sample counts only if the batch has another of its class, as in the
    authors' and DomainBed's code; the paper's CAD needs no labels. Differs from DomainBed's code in two things
    that its defaults do not reach: with ``is_flipped=False`` a sample is not its own partner (there it is, with
    a score of 0), and ``is_project=True`` works (there it stops with a NameError). With one source domain the
    gradient there is not a number; here the penalty is 0.
    """

    conditional = False


@final
class CondCAD(Bottleneck):
    """Conditional contrastive adversarial domain bottleneck: a sample is compared with those of its class.

    The loss and the arguments are those of `Bottleneck`.

    Differs from DomainBed's code in that ``is_project=True`` works (there it stops with a NameError).
    """

    conditional = True


_PAPER = "Ruan et al., Optimal Representations for Covariate Shift, ICLR 2022"
_SPACE = {
    "lmbda": Setting(0.1, Choice((1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2)), "DomainBed"),
    "temperature": Setting(0.1, Choice((0.05, 0.1)), "DomainBed"),
    "is_normalized": Setting(False, None, "DomainBed"),
    "is_project": Setting(False, None, "DomainBed"),
    "is_flipped": Setting(True, None, "DomainBed"),
}
_PROJECT = (
    "is_project=True works, as in the authors' own code; DomainBed's code stops with a NameError where the "
    "projection is made."
)
_ONE_SOURCE = "With one source domain {} equals ERM: no sample has a partner in another domain."
CAD_ROW = AlgorithmRow(
    "CAD",
    CAD,
    _PAPER,
    _SPACE,
    domainbed=1e-10,
    differs="With is_flipped=False a sample is not compared with itself, as its probability is over the other "
    "samples only; in DomainBed's code it is one of its own partners, with a score of 0. " + _PROJECT,
    one_source=_ONE_SOURCE.format("CAD"),
)
COND_CAD_ROW = AlgorithmRow(
    "CondCAD",
    CondCAD,
    _PAPER,
    _SPACE,
    domainbed=1e-10,
    differs=_PROJECT,
    one_source=_ONE_SOURCE.format("CondCAD"),
)
