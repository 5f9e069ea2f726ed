"""SagNet: classify by content whatever the style, and leave nothing of the class in the style."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor, nn

from genie_dg._types import MAIN, DomainBatch, Edit, Network, Objective, Role, StepContext
from genie_dg.check import number, one_of
from genie_dg.search_space import LogUniform, Setting

from ._mixing import on_map, statistics
from .algorithm import Algorithm, AlgorithmRow

_STYLE = "style"
"""The role of the style head."""

_EPS = 1e-5


def _dims(x: Tensor) -> tuple[int, ...]:
    """Where statistics are taken: over space in maps, over the entries of vectors."""
    return (2, 3) if x.ndim == 4 else (1,)


def randomise_style(x: Tensor, alpha: Tensor, partner: Tensor) -> Tensor:
    r"""The content of x in a style between its own and that of ``z' = x[partner]``.

    .. math::
        (\alpha\,\sigma(z) + (1-\alpha)\,\sigma(z')) \frac{z - \mu(z)}{\sigma(z)}
        + \alpha\,\mu(z) + (1-\alpha)\,\mu(z')

    >>> x = torch.tensor([[1.0, 3.0], [0.0, 20.0]])
    >>> randomise_style(x, torch.tensor([0.5, 1.0]), torch.tensor([1, 0])).round(decimals=3).tolist()
    [[0.5, 11.5], [0.0, 20.0]]
    """
    mu, sigma = statistics(x, _dims(x), _EPS)
    own = alpha.to(x.dtype).reshape(-1, *[1] * (x.ndim - 1))
    new_sigma = own * sigma + (1 - own) * sigma[partner]
    return (x - mu) / sigma * new_sigma + own * mu + (1 - own) * mu[partner]


def randomise_content(x: Tensor, partner: Tensor) -> Tensor:
    r"""The style of x on the content of ``z' = x[partner]``, which is a constant.

    .. math:: \sigma(z) \frac{z' - \mu(z')}{\sigma(z')} + \mu(z)

    >>> x = torch.tensor([[1.0, 3.0], [20.0, 0.0]])
    >>> randomise_content(x, torch.tensor([1, 0])).round(decimals=3).tolist()
    [[3.0, 1.0], [0.0, 20.0]]
    """
    mu, sigma = statistics(x, _dims(x), _EPS)
    content = ((x - mu) / sigma)[partner].detach()
    return content * sigma + mu


@final
class SagNet(Algorithm):
    r"""Style-agnostic network: three objectives a step, in this order.

    With the featurizer :math:`G_f`, the head :math:`G_c`, a linear style head :math:`G_s`, K classes, and SR
    and CR as in `randomise_style` (:math:`\alpha \sim U(0, 1)` for each sample) and `randomise_content`, all
    with random partners in the pooled batch:

    .. math::
        L_c = -\tfrac1N \sum_i \log G_c(\mathrm{SR}(z_i))_{y_i} \;\text{ in } G_f, G_c; \qquad
        L_s = -\tfrac1N \sum_i \log G_s(\mathrm{CR}(z_i))_{y_i} \;\text{ in } G_s;

        L_a = -\lambda\,\tfrac1N \sum_i \tfrac1K \sum_k \log G_s(\mathrm{CR}(z_i))_k \;\text{ in } G_f .

    The first and the third are stepped as ``"main"``, the second as ``"style"``. The third says nothing of the
    head, which gets no gradient from it and is left alone. Both roles use the optimizer of the run.

    Args:
        sag_w_adv: :math:`\lambda`.
        sag_point: where SR and CR act. Empty: on the final feature vector, with statistics over its entries, as
            in DomainBed. A name of ``network.points``: on the activation map there, with statistics of each
            channel over space, as in the paper; what follows is the rest of the featurizer.

    Differs from the paper (algorithm 1) in: the third objective changes all weights of the featurizer (there:
    the affine parameters of its normalisation layers), and behind ``sag_point`` head and style head share the
    rest of the featurizer (there: each has its own). Differs from the public code in: standard deviations are
    interpolated (there: variances), and variances divide by n (there: n - 1); both are the paper's.
    """

    def __init__(self, network: Network, domains: int, *, sag_w_adv: float = 0.1, sag_point: str = "") -> None:
        super().__init__(network, domains)
        self.w_adv = number("sag_w_adv", sag_w_adv, 0)
        self.point = one_of("sag_point", sag_point, network.points or ["an empty text"]) if sag_point else ""
        like = next(network.parameters())
        self.style_head = nn.Linear(network.feature_size, network.classes, device=like.device, dtype=like.dtype)

    def roles(self) -> dict[str, Role]:
        """The network as ``"main"``, the style head as ``"style"``."""
        return {**super().roles(), _STYLE: Role.of(self.style_head)}

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        images, labels = batch.all_images, batch.all_labels
        generator, n = context.generator(), len(images)
        alpha = torch.rand(n, generator=generator).to(images.device)
        style, content, again = (torch.randperm(n, generator=generator).to(images.device) for _ in range(3))

        def content_loss() -> Tensor:
            features = self._features(images, lambda x: randomise_style(x, alpha, style))
            return self.classification_loss(self.network.head(features), labels)

        def style_loss() -> Tensor:
            with torch.no_grad():
                features = self._features(images, lambda x: randomise_content(x, content))
            return self.classification_loss(self.style_head(features), labels)

        def adversarial_loss() -> Tensor:
            features = self._features(images, lambda x: randomise_content(x, again))
            log_probabilities: Tensor = self.style_head(features).log_softmax(1)
            return -self.w_adv * log_probabilities.mean()

        yield Objective(MAIN, content_loss)
        yield Objective(_STYLE, style_loss)
        yield Objective(MAIN, adversarial_loss)

    def _features(self, images: Tensor, randomise: Edit) -> Tensor:
        """The final features, randomised at the point."""
        if not self.point:
            return randomise(self.network.features(images))
        return self.network.features(images, {self.point: on_map("SagNet", self.point, randomise)})


ROW = AlgorithmRow(
    "SagNet",
    SagNet,
    paper="Nam et al., Reducing Domain Gap by Reducing Style Bias, CVPR 2021",
    space={
        "sag_w_adv": Setting(0.1, LogUniform(-2, 1), "DomainBed"),
        "sag_point": Setting("", None, "DomainBed"),
    },
    differs="Standard deviations are interpolated between two styles, as in the paper; DomainBed interpolates "
    "variances. Variances divide by n, as in the paper; DomainBed divides by n - 1.",
)
