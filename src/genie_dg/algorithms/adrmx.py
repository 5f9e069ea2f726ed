"""ADRMX: class features minus domain features, told apart by a discriminator and mixed anew."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from genie_dg._types import MAIN, DomainBatch, Network, Objective, Role, StepContext
from genie_dg.check import number
from genie_dg.search_space import Choice, Setting

from .adversarial import DISCRIMINATOR, Discriminator, DiscriminatorSettings
from .algorithm import Algorithm, AlgorithmRow, at_least_float32

_TEMPERATURE, _EPS = 0.07, 1e-5


def contrastive(features: Tensor, labels: Tensor) -> Tensor:
    r"""The supervised contrastive loss: samples of a class side by side, all others away.

    With the cosine :math:`c_{ij}` of two samples' features, :math:`e_{ij} = \tfrac12 \exp(c_{ij} / 0.07)`, the
    others :math:`P_i` of the class of i, and the n samples for which there are any,

    .. math::
        \frac{-1}{n + 1} \sum_{i : P_i \ne \emptyset} \frac1{|P_i|} \sum_{p \in P_i}
        \log\Bigl(\frac{e_{ip}}{10^{-5} + \sum_{j \ne i} e_{ij}} + 10^{-5}\Bigr) .

    Features of length 0 have the cosine 0 with all. Computed in float32 or float64 also inside autocast.

    >>> z = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 3.0]], dtype=torch.float64)  # cosines 1, 0, 0
    >>> near = torch.tensor(1 / 0.07, dtype=torch.float64).exp() / 2
    >>> expected = -2 / 3 * (near / (near + 0.5 + 1e-5) + 1e-5).log()
    >>> torch.allclose(contrastive(z, torch.tensor([4, 4, 1])), expected, rtol=1e-9, atol=0)
    True
    """
    with torch.autocast(features.device.type, enabled=False):
        z = at_least_float32(features)
        squares = z.square().sum(1, keepdim=True)
        units = z * torch.where(squares > 0, squares, 1.0).rsqrt()
        itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
        near = (units @ units.T / _TEMPERATURE).exp().masked_fill(itself, 0) / 2
        logs = (near / (_EPS + near.sum(1, keepdim=True)) + _EPS).log()
        partners = ((labels[:, None] == labels) & ~itself).to(z.dtype)
        counts = partners.sum(1)
        return -((partners * logs).sum(1) / counts.clamp_min(1)).sum() / ((counts > 0).sum() + 1)


def remix_pairs(labels: list[int], domains: list[int], generator: torch.Generator) -> list[tuple[int, int]]:
    """For each class that occurs in several domains a random sample, and another one from another domain.

    >>> remix_pairs([0, 0, 1, 1, 2], [0, 1, 0, 0, 1], torch.Generator().manual_seed(0)) in ([(0, 1)], [(1, 0)])
    True
    """
    pairs = []
    for label in sorted(set(labels)):
        order = [i for i in torch.randperm(len(labels), generator=generator).tolist() if labels[i] == label]
        others = [i for i in order if domains[i] != domains[order[0]]]
        pairs += [(order[0], others[0])] if others else []
    return pairs


def _classifier(inputs: int, outputs: int, like: Tensor) -> nn.Sequential:
    """Three linear layers, each hidden one half as wide as the one before."""
    half, quarter = max(inputs // 2, 1), max(inputs // 4, 1)
    first, second, third = nn.Linear(inputs, half), nn.Linear(half, quarter), nn.Linear(quarter, outputs)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third).to(like)


@dataclass(frozen=True, kw_only=True)
class ADRMXSettings(DiscriminatorSettings):
    """The settings of `ADRMX`, where they are explained."""

    cnt_lambda: float = 1.0
    dclf_lambda: float = 1.0
    disc_lambda: float = 0.75
    rmxd_lambda: float = 1.0
    d_steps_per_g_step: int = 2
    mlp_depth: int = 9
    lr_: float = 3e-5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("cnt_lambda", "dclf_lambda", "disc_lambda", "rmxd_lambda", "lr_"):
            number(name, getattr(self, name), 0)


@final
class ADRMX(Algorithm):
    r"""Additive disentanglement of domain features, with the remix loss.

    For each image there are features z of the network and features u of a second featurizer, a copy of the
    network's at the start. u shall hold the domain, and :math:`v = z - u` the class without it. With mean
    cross-entropies :math:`\ell` of classifiers h and h' for classes, k for domains, a discriminator D of
    domains and S as in `contrastive`,

    .. math::
        L_D &= \ell(D(v), d), \qquad R = \frac1C \sum_{(i, j)} \ell\bigl(h(v_i + u_j), y_i\bigr) \\
        L &= \ell(h(z), y) + \ell(h'(v), y) + \lambda_k\, \ell(k(u), d) + \lambda_r R
             + \lambda_s \bigl(S(z) + S(v)\bigr) - \lambda_D L_D .

    The sum in R is over one random pair for each of the C classes that occurs in several domains: two samples
    of the class from different domains; see `remix_pairs`. Step t (from 0) lowers :math:`L_D` in the
    discriminator when ``t % (1 + d_steps_per_g_step)`` is below ``d_steps_per_g_step``, and otherwise lowers L
    in everything else. Predictions are those of h(z). The network's own linear head is not used.

    Args:
        cnt_lambda: :math:`\lambda_s`.
        dclf_lambda: :math:`\lambda_k`.
        disc_lambda: :math:`\lambda_D`.
        rmxd_lambda: :math:`\lambda_r`.
        d_steps_per_g_step: steps of the discriminator for each of the rest.
        beta1: of the discriminator's Adam, whose other one is 0.9.
        mlp_width: units of the discriminator's hidden layers.
        mlp_depth: its linear layers, the first and the last included.
        lr_: learning rate of the discriminator; in public code it is that of the network, ``lr``, and it is
            drawn under that name.

    The formulas are those of DomainBed's code, which is the authors'; the paper's text was not at hand. Differs
    from it in: both samples of a pair are of the class and from different domains, as its comments say (there
    positions within the class are taken for positions in the batch, so any two of the first samples are mixed);
    the discriminator begins, as in DANN; the weight decay of the run is used (there it is drawn and left out);
    the network's optimizer knows no ``beta1``; the second featurizer starts as a copy also where weights are
    drawn; features of length 0 have a finite gradient; batches without any pair are allowed; the discriminator
    has no dropout, which is always 0 there.
    """

    def __init__(self, network: Network, domains: int, **settings: Any) -> None:
        super().__init__(network, domains)
        self.settings = s = ADRMXSettings(**settings)
        size, like = network.feature_size, next(network.parameters())
        self.discriminator = Discriminator(size, domains, s.mlp_width, s.mlp_depth, like)
        self.head = _classifier(size, network.classes, like)
        self.final_head = _classifier(size, network.classes, like)
        self.domain_network: Network = copy.deepcopy(network)
        self.domain_network.head = _classifier(size, domains, like)

    def roles(self) -> dict[str, Role]:
        """Both featurizers and the classifiers as ``"main"``; the discriminator under Adam as published."""
        adam = {"lr": self.settings.lr_, "beta1": self.settings.beta1, "beta2": 0.9}
        return {
            MAIN: Role.of(self.network.featurizer, self.domain_network, self.head, self.final_head),
            DISCRIMINATOR: Role.of(self.discriminator, optimizer="adam", settings=adam),
        }

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        images, labels, domains = batch.all_images, batch.all_labels, batch.domain_labels
        s = self.settings
        pairs = remix_pairs(labels.tolist(), domains.tolist(), context.generator())
        first, second = torch.tensor(pairs, dtype=torch.long, device=images.device).reshape(-1, 2).unbind(1)

        def discriminator_loss() -> Tensor:
            with torch.no_grad():
                v = self.network.features(images) - self.domain_network.features(images)
            return cross_entropy(self.discriminator(v, ()), domains)

        def main_loss() -> Tensor:
            z, u = self.network.features(images), self.domain_network.features(images)
            v = z - u
            mixed = self.classification_loss(self.head(v[first] + u[second]), labels[first], reduction="sum")
            return (
                self.classification_loss(self.head(z), labels)
                + self.classification_loss(self.final_head(v), labels)
                + s.dclf_lambda * cross_entropy(self.domain_network.head(u), domains)
                + s.rmxd_lambda * mixed / self.network.classes
                + s.cnt_lambda * (contrastive(z, labels) + contrastive(v, labels))
                - s.disc_lambda * cross_entropy(self.discriminator(v, ()), domains)
            )

        if s.is_turn_of_discriminator(context.step):
            yield Objective(DISCRIMINATOR, discriminator_loss)
        else:
            yield Objective(MAIN, main_loss)

    def predict(self, images: Tensor) -> Tensor:
        """h(z)."""
        logits: Tensor = self.head(self.network.features(images))
        return logits


_LARGE_LR = Setting(3e-5, Choice((2e-5, 3e-5, 4e-5, 5e-5)), "DomainBed")
_SMALL_LR = Setting(3e-3, Choice((5e-4, 1e-3, 2e-3, 3e-3)), "DomainBed")

ROW = AlgorithmRow(
    "ADRMX",
    ADRMX,
    paper="Demirel et al., ADRMX: Additive Disentanglement of Domain Features with Remix Loss, "
    "arXiv 2308.06624, 2023",
    space={
        **{f.name: Setting(f.default, None, "DomainBed") for f in fields(ADRMXSettings)},
        "mlp_depth": Setting(9, Choice((8, 9, 10)), "DomainBed"),
        "lr_": _LARGE_LR,
    },
    by_set={"large": {"lr": _LARGE_LR, "lr_": _LARGE_LR}, "small": {"lr": _SMALL_LR, "lr_": _SMALL_LR}},
    domainbed=1e-10,
    differs="DomainBed takes positions within a class for positions in the batch, so it mixes samples of any "
    "class and domain; here they are of one class and two domains, as in the paper. In DomainBed the first "
    "step is the discriminator's and the second the network's; here the discriminator has its "
    "d_steps_per_g_step steps first. DomainBed draws a weight decay and does not use it; here the optimizer of "
    "the run does. In DomainBed the network's Adam has the betas (beta1, 0.9); here its optimizer is the "
    "run's.",
    one_source="With one source domain there are no pairs to mix and no domains to tell apart: the losses of "
    "classes and the contrastive losses remain.",
)
