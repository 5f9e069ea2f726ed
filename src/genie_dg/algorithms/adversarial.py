"""DANN and CDANN: features from which a discriminator cannot guess the domain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from genie_dg._types import MAIN, DomainBatch, Network, Objective, Role, StepContext
from genie_dg.check import number, whole_number
from genie_dg.search_space import Choice, LogUniform, Setting

from .algorithm import Algorithm, AlgorithmRow

DISCRIMINATOR = "discriminator"
"""The role of the adversary."""

_SPACE: Mapping[str, Setting] = {
    "lambda_": Setting(1.0, LogUniform(-2, 2), "DomainBed"),
    "weight_decay_d": Setting(0.0, LogUniform(-6, -2), "DomainBed"),
    "d_steps_per_g_step": Setting(1, LogUniform(0, 3, base=2.0, whole=True), "DomainBed"),
    "grad_penalty": Setting(0.0, LogUniform(-2, 1), "DomainBed"),
    "beta1": Setting(0.5, Choice((0.0, 0.5)), "DomainBed"),
    "mlp_width": Setting(256, LogUniform(6, 10, base=2.0, whole=True), "DomainBed"),
    "mlp_depth": Setting(3, Choice((3, 4, 5)), "DomainBed"),
    "mlp_dropout": Setting(0.0, Choice((0.0, 0.1, 0.5)), "DomainBed"),
    "lr_d": Setting(5e-5, LogUniform(-5, -3.5), "DomainBed"),
}

_ONE_SOURCE = (
    "With one source domain there is nothing to guess: the discriminator's loss is 0, every main step equals a "
    "step of ERM, and the steps given to the discriminator are spent on nothing."
)

_DIFFERS = (
    "The discriminator takes the first step; DomainBed counts steps from 1, so with d_steps_per_g_step=1 the "
    "network begins. The paper steps both at once. The network's optimizer is the run's own; DomainBed's is "
    "Adam with betas (beta1, 0.9). The paper has SGD with momentum."
)


class Discriminator(nn.Module):
    """``depth`` linear layers: ``inputs``, then ``width`` units ``depth - 1`` times, then ``outputs`` logits.

    ReLU and dropout follow every layer but the last. The dropout factors come with the call, so that the same
    call gives the same answer.
    """

    def __init__(self, inputs: int, outputs: int, width: int, depth: int, like: Tensor) -> None:
        super().__init__()
        sizes = [inputs, *[width] * (depth - 1), outputs]
        self.layers = nn.ModuleList(
            nn.Linear(a, b, device=like.device, dtype=like.dtype) for a, b in pairwise(sizes)
        )

    def forward(self, x: Tensor, factors: Sequence[Tensor]) -> Tensor:
        for k, layer in enumerate(self.layers):
            x = layer(x)
            if k < len(self.layers) - 1:
                x = torch.relu(x) * factors[k] if factors else torch.relu(x)
        return x


def class_balance(labels: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    r"""Weights :math:`w_i = 1 / (C\,N_{y_i})`: every class of the batch weighs the same, and all weigh 1.

    :math:`N_y` counts the samples of class y in the batch over all domains, C the classes that occur in it.

    >>> class_balance(torch.tensor([0, 2, 2, 0, 2, 2])).tolist()
    [0.25, 0.125, 0.125, 0.25, 0.125, 0.125]
    """
    inverse = 1 / (labels[:, None] == labels).sum(1).to(dtype)
    return inverse / inverse.sum()  # the sum is C


def squared_slope(total: Tensor, inputs: Tensor) -> Tensor:
    """Mean over samples of the squared length of the gradient of ``total`` in ``inputs``, with its graph.

    >>> x = torch.tensor([[1.0, 2.0], [0.0, 3.0]], requires_grad=True)
    >>> squared_slope((x**2).sum(), x).item()  # (2^2 + 4^2 + 0^2 + 6^2) / 2
    28.0
    """
    (slope,) = torch.autograd.grad(total, inputs, create_graph=True)
    return slope.square().flatten(1).sum(1).mean()


@dataclass(frozen=True, kw_only=True)
class DiscriminatorSettings:
    """What every game with a `Discriminator` has as settings."""

    d_steps_per_g_step: int = 1
    beta1: float = 0.5
    mlp_width: int = 256
    mlp_depth: int = 3

    def __post_init__(self) -> None:
        number("beta1", self.beta1, 0, 1, excluding=(1,))
        for name, least in (("d_steps_per_g_step", 1), ("mlp_width", 1), ("mlp_depth", 2)):
            whole_number(name, getattr(self, name), least)

    def is_turn_of_discriminator(self, step: int) -> bool:
        """It has the first ``d_steps_per_g_step`` of ``1 + d_steps_per_g_step`` steps."""
        return step % (1 + self.d_steps_per_g_step) < self.d_steps_per_g_step


@dataclass(frozen=True, kw_only=True)
class AdversarialSettings(DiscriminatorSettings):
    """The settings of `Adversarial`, where they are explained."""

    lambda_: float = 1.0
    weight_decay_d: float = 0.0
    grad_penalty: float = 0.0
    mlp_dropout: float = 0.0
    lr_d: float = 5e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("lambda_", "weight_decay_d", "grad_penalty", "lr_d"):
            number(name, getattr(self, name), 0)
        number("mlp_dropout", self.mlp_dropout, 0, 1, excluding=(1,))


class Adversarial(Algorithm):
    r"""The network classifies and hides the domain; the discriminator looks for it.

    With features :math:`z_i`, domains :math:`d_i`, discriminator D, weights :math:`w_i` that sum to 1 and
    :math:`\ell_i = -\log \mathrm{softmax}(D(u_i))_{d_i}`, where :math:`u_i` is what the discriminator sees,

    .. math::
        L_D = \sum_i w_i \ell_i + \gamma\,\frac1N \sum_i \Bigl\lVert
              \frac{\partial \sum_j \ell_j}{\partial u_i} \Bigr\rVert^2, \qquad
        L = \frac1N \sum_i \ell(f(x_i), y_i) - \lambda L_D .

    Step t (from 0) lowers :math:`L_D` in the discriminator when ``t % (1 + d_steps_per_g_step)`` is below
    ``d_steps_per_g_step``, and otherwise lowers L in the network.

    The discriminator is always trained by Adam with (``beta1``, 0.9), whichever optimizer is under study: the
    adversary is part of the algorithm, and an optimizer must not gain by weakening its opponent.

    Args:
        lambda_: :math:`\lambda`, published as ``lambda``, which is a keyword of Python.
        weight_decay_d: of the discriminator.
        d_steps_per_g_step: steps of the discriminator for each step of the network.
        grad_penalty: :math:`\gamma`.
        beta1: of the discriminator's Adam.
        mlp_width: units of the discriminator's hidden layers.
        mlp_depth: its linear layers, the first and the last included.
        mlp_dropout: after each hidden layer.
        lr_d: learning rate of the discriminator.
    """

    conditional: ClassVar[bool]
    """Whether the discriminator is given the class and classes are balanced (CDANN)."""

    def __init__(self, network: Network, domains: int, **settings: Any) -> None:
        super().__init__(network, domains)
        self.settings = s = AdversarialSettings(**settings)
        like = next(network.parameters())
        self.discriminator = Discriminator(network.feature_size, domains, s.mlp_width, s.mlp_depth, like)
        size = (network.classes, network.feature_size)
        embedding = nn.Embedding(*size, device=like.device, dtype=like.dtype) if self.conditional else None
        self.class_embedding = embedding

    def roles(self) -> dict[str, Role]:
        """The network as ``"main"``; the discriminator, with its class embedding, under Adam as published."""
        s, embedding = self.settings, self.class_embedding
        adversary = [self.discriminator] if embedding is None else [self.discriminator, embedding]
        adam = {"lr": s.lr_d, "weight_decay": s.weight_decay_d, "beta1": s.beta1, "beta2": 0.9}
        return {**super().roles(), DISCRIMINATOR: Role.of(*adversary, optimizer="adam", settings=adam)}

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        images, labels, domains = batch.all_images, batch.all_labels, batch.domain_labels
        factors = self._dropout_factors(images, context.generator())

        def discriminator_loss() -> Tensor:
            with torch.no_grad():
                features = self.network.features(images)
            return self._domain_loss(features, labels, domains, factors)

        def main_loss() -> Tensor:
            features = self.network.features(images)
            classification = self.classification_loss(self.network.head(features), labels)
            domain_loss = self._domain_loss(features, labels, domains, factors)
            return classification - self.settings.lambda_ * domain_loss

        if self.settings.is_turn_of_discriminator(context.step):
            yield Objective(DISCRIMINATOR, discriminator_loss)
        else:
            yield Objective(MAIN, main_loss)

    def _dropout_factors(self, images: Tensor, generator: torch.Generator) -> list[Tensor]:
        """For each hidden layer 0 or 1 / (1 - p) for each sample and unit; empty without dropout."""
        p, shape = self.settings.mlp_dropout, (len(images), self.settings.mlp_width)
        if p == 0:
            return []
        kept = [torch.rand(shape, generator=generator) >= p for _ in range(self.settings.mlp_depth - 1)]
        return [mask.to(images.device, images.dtype) / (1 - p) for mask in kept]

    def _domain_loss(self, features: Tensor, labels: Tensor, domains: Tensor, factors: list[Tensor]) -> Tensor:
        """L_D."""
        embedding, grad_penalty = self.class_embedding, self.settings.grad_penalty
        inputs = features if embedding is None else features + embedding(labels)
        if grad_penalty and not inputs.requires_grad:
            inputs = inputs.detach().requires_grad_()
        losses = cross_entropy(self.discriminator(inputs, factors), domains, reduction="none")
        loss = losses.mean() if embedding is None else (class_balance(labels, losses.dtype) * losses).sum()
        if grad_penalty:
            loss = loss + grad_penalty * squared_slope(losses.sum(), inputs)
        return loss


@final
class DANN(Adversarial):
    r"""Domain-adversarial training: the discriminator sees :math:`u_i = z_i`, and :math:`w_i = 1/N`.

    The losses, the order of steps and the arguments are those of `Adversarial`.

    Differs from the paper in: steps alternate, where the paper reverses a gradient and steps both players at
    once; :math:`\lambda` is constant; the gradient penalty is DomainBed's.

    Differs from DomainBed's code in: the first step is the discriminator's (there steps count from 1, so that
    with ``d_steps_per_g_step=1`` the network begins); the network's optimizer is the run's own and knows no
    ``beta1``. As there, the network's loss has the whole :math:`L_D` with its penalty.
    """

    conditional = False


@final
class CDANN(Adversarial):
    r"""Class-conditional adversarial training: the discriminator sees :math:`u_i = z_i + e(y_i)`.

    The embedding e of classes is learnt by the discriminator's side, and every class of the batch weighs the
    same: the :math:`w_i` are `class_balance`. The penalty is not weighted. The losses, the order of steps and
    the arguments are those of `Adversarial`.

    Differs from the paper (class prior-normalised domain loss) in: one discriminator that is given the class
    takes the place of one for each class; classes are counted over the whole batch, as in DomainBed, not within
    each domain, because a batch has few samples of a class in a domain. Differs from DomainBed's code in: C
    counts the classes that occur (there: 1 + the largest label of the batch, so that the weights may add up to
    less than 1); and in what DANN differs.
    """

    conditional = True


DANN_ROW = AlgorithmRow(
    "DANN",
    DANN,
    paper="Ganin et al., Domain-Adversarial Training of Neural Networks, JMLR 2016",
    space=_SPACE,
    one_source=_ONE_SOURCE,
    adversarial=True,
    domainbed=1e-10,
    differs=_DIFFERS,
)
CDANN_ROW = AlgorithmRow(
    "CDANN",
    CDANN,
    paper="Li et al., Deep Domain Generalization via Conditional Invariant Adversarial Networks, ECCV 2018",
    space=_SPACE,
    one_source=_ONE_SOURCE,
    adversarial=True,
    domainbed=1e-10,
    differs=_DIFFERS + " The weights of the classes in a batch add up to 1; DomainBed counts classes up to the "
    "largest label of the batch, so a missing one takes weight away. The paper weighs every class that occurs "
    "the same.",
)
