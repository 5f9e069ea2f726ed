"""URM: features that a discriminator cannot tell from uniform noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from genie_dg._types import MAIN, DomainBatch, Network, Objective, Role, StepContext
from genie_dg.check import number, one_of, whole_number
from genie_dg.search_space import Choice, LogUniform, Setting, Uniform

from .adversarial import DISCRIMINATOR
from .algorithm import Algorithm, AlgorithmRow

_WIDTH = 100
"""Units of the discriminator's hidden layers."""

_OUTPUTS: Mapping[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "tanh": (torch.tanh, -1.0),
    "relu": (torch.relu, 0.0),
    "sigmoid": (torch.sigmoid, 0.0),
}
"""For each ``urm_generator_output`` the function of the features and the least value of the noise, below 1."""

_OPTIMIZERS: Mapping[str, Mapping[str, float]] = {"adam": {}, "sgd": {"momentum": 0.9}}
"""For each ``urm_discriminator_optimizer`` what it has besides a learning rate and a weight decay."""


def discriminator(inputs: int, hidden_layers: int) -> nn.Sequential:
    """``1 + hidden_layers`` layers of 100 units, each followed by a leaky ReLU, then one logit.

    >>> [tuple(p.shape) for p in discriminator(6, 1).parameters() if p.ndim == 2]
    [(100, 6), (100, 100), (1, 100)]
    """
    layers: list[nn.Module] = [nn.Linear(inputs, _WIDTH), nn.LeakyReLU()]
    for _ in range(hidden_layers):
        layers += [nn.Linear(_WIDTH, _WIDTH), nn.LeakyReLU()]
    return nn.Sequential(*layers, nn.Linear(_WIDTH, 1))


@dataclass(frozen=True, kw_only=True)
class URMSettings:
    """The settings of `URM`, where they are explained."""

    urm_adv_lambda: float = 0.1
    urm_discriminator_label_smoothing: float = 0.0
    urm_discriminator_optimizer: str = "adam"
    urm_discriminator_hidden_layers: int = 1
    urm_generator_output: str = "tanh"
    urm_discriminator_lr: float = 5e-5
    weight_decay_: float = 0.0

    def __post_init__(self) -> None:
        for name in ("urm_adv_lambda", "urm_discriminator_lr", "weight_decay_"):
            number(name, getattr(self, name), 0)
        number("urm_discriminator_label_smoothing", self.urm_discriminator_label_smoothing, 0, 1)
        one_of("urm_discriminator_optimizer", self.urm_discriminator_optimizer, _OPTIMIZERS)
        whole_number("urm_discriminator_hidden_layers", self.urm_discriminator_hidden_layers, 0)
        one_of("urm_generator_output", self.urm_generator_output, _OUTPUTS)


@final
class URM(Algorithm):
    r"""Uniform risk minimization: the network classifies and makes its features look like uniform noise.

    With :math:`z = a(\text{features})`, where a is ``urm_generator_output``, noise u of the same shape, uniform
    in [-1, 1) for ``"tanh"`` and in [0, 1) otherwise, the discriminator D and the binary cross entropy B of
    logits and targets, a step lowers, in this order,

    .. math::
        L = \frac1N \sum_i \ell(h(z_i), y_i) + \lambda\, \frac1N \sum_i B(D(z_i), 1)
        \text{ in the network}; \qquad
        L_D = \frac1N \sum_i B(D(u_i), t_i) + \lambda\, \frac1N \sum_i B(D(z_i), f_i) \text{ in D} .

    D is shown the features of the first evaluation of L, before the network's step. Targets are
    :math:`t_i \sim U(1 - s, 1)` and :math:`f_i \sim U(0, s)`, where s is the label smoothing: 1 and 0 without
    it. Predictions are h(z). Domains play no part: all samples are pooled.

    Args:
        urm_adv_lambda: :math:`\lambda`, in both losses.
        urm_discriminator_label_smoothing: s.
        urm_discriminator_optimizer: ``"adam"``, or ``"sgd"`` with momentum 0.9, whichever optimizer is under
            study.
        urm_discriminator_hidden_layers: layers of D between its first and its last.
        urm_generator_output: a, which is ``"tanh"``, ``"relu"`` or ``"sigmoid"``.
        urm_discriminator_lr: learning rate of D.
        weight_decay_: of D; in a search it is the network's, as public code has one for both.

    Differs from DomainBed's code in: the weight decay of D is a setting of its own (there it is the network's,
    which is 0 for small images), and the setting ``urm`` is left out, which has one value there. The paper is
    followed as far as DomainBed's code, which is its authors' own, shows it.
    """

    def __init__(self, network: Network, domains: int, **settings: Any) -> None:
        super().__init__(network, domains)
        self.settings = URMSettings(**settings)
        layers = self.settings.urm_discriminator_hidden_layers
        like = next(network.parameters())
        self.discriminator = discriminator(network.feature_size, layers).to(like.device, like.dtype)

    def roles(self) -> dict[str, Role]:
        """The network as ``"main"``; the discriminator under an optimizer of its own, as published."""
        s, name = self.settings, self.settings.urm_discriminator_optimizer
        rates = {"lr": s.urm_discriminator_lr, "weight_decay": s.weight_decay_, **_OPTIMIZERS[name]}
        adversary = Role.of(self.discriminator, optimizer=name, settings=rates)
        return {**super().roles(), DISCRIMINATOR: adversary}

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        images, labels = batch.all_images, batch.all_labels
        noise, targets = self._drawn(images, context.generator())
        adv_lambda = self.settings.urm_adv_lambda
        seen: list[Tensor] = []

        def main_loss() -> Tensor:
            features = self._features(images)
            if not seen:
                seen.append(features.detach().to(noise.dtype))
            classification = self.classification_loss(self.network.head(features), labels)
            return classification + adv_lambda * self._distance(features, torch.ones_like(targets[0]))

        def discriminator_loss() -> Tensor:
            real, fake = targets
            return self._distance(noise, real) + adv_lambda * self._distance(seen[0], fake)

        yield Objective(MAIN, main_loss)
        yield Objective(DISCRIMINATOR, discriminator_loss)

    def predict(self, images: Tensor) -> Tensor:
        """Logits of the features after ``urm_generator_output``."""
        logits: Tensor = self.network.head(self._features(images))
        return logits

    def _features(self, images: Tensor) -> Tensor:
        function, _ = _OUTPUTS[self.settings.urm_generator_output]
        return function(self.network.features(images))

    def _drawn(self, images: Tensor, generator: torch.Generator) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The noise, and the targets of noise and of features."""
        like, n = next(self.discriminator.parameters()), len(images)
        noise = torch.rand(n, self.network.feature_size, generator=generator, dtype=like.dtype)
        smoothing = self.settings.urm_discriminator_label_smoothing
        real, fake = torch.rand(2, n, generator=generator, dtype=like.dtype)
        _, low = _OUTPUTS[self.settings.urm_generator_output]
        noise, real, fake = low + (1 - low) * noise, 1 - smoothing * (1 - real), smoothing * fake
        return noise.to(like.device), (real.to(like.device), fake.to(like.device))

    def _distance(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The mean binary cross entropy of the discriminator's answers, at least in float32."""
        logits = self.discriminator(inputs)[:, 0]
        return binary_cross_entropy_with_logits(logits.to(targets.dtype), targets)


ROW = AlgorithmRow(
    "URM",
    URM,
    paper="Krishnamachari et al., Uniformly Distributed Feature Representations for Fair and Robust Learning, "
    "TMLR 2024",
    space={
        "urm_adv_lambda": Setting(0.1, Uniform(0, 0.2), "DomainBed"),
        "urm_discriminator_label_smoothing": Setting(0.0, Uniform(0, 0), "DomainBed"),
        "urm_discriminator_optimizer": Setting("adam", Choice(("adam",)), "DomainBed"),
        "urm_discriminator_hidden_layers": Setting(1, Choice((1, 2, 3)), "DomainBed"),
        "urm_generator_output": Setting("tanh", Choice(("tanh", "relu")), "DomainBed"),
        "urm_discriminator_lr": Setting(5e-5, LogUniform(-6, -4.5), "DomainBed"),
        "weight_decay_": Setting(0.0, LogUniform(-6, -2), "DomainBed"),
    },
    by_set={
        "small": {
            "urm_discriminator_lr": Setting(1e-3, LogUniform(-5.5, -3.5), "DomainBed"),
            "weight_decay_": Setting(0.0, None, "DomainBed"),
        }
    },
    domainbed=1e-10,
)
