"""MIRO: stay close, in information, to the network as it was before training."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from genie_dg._types import MAIN, DomainBatch, Group, Network, Role, StepContext
from genie_dg.check import InputError, number
from genie_dg.search_space import Setting

from .algorithm import AlgorithmRow, OneLoss

_EPS = 1e-6
"""The least variance."""

_INITIAL_VARIANCE = 0.1


def deviation(before: Tensor, now: Tensor, raw: Tensor) -> Tensor:
    r"""Mean over all entries of :math:`\frac12 [\log v + (f_0 - f)^2 / v]`, v for each channel.

    Args:
        before: :math:`f_0`, activations of the frozen network; channels are dimension 1, whether the activation
            is a map ``[n, c, h, w]`` or a vector ``[n, c]``.
        now: f, those of the network in training.
        raw: ``[c]``; :math:`v = \mathrm{softplus}(\text{raw}) + 10^{-6}`, the same for all samples and places.

    >>> raw = torch.tensor([math.log(math.expm1(2.0)), math.log(math.expm1(0.5))])
    >>> value = deviation(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 2.5]]), raw)
    >>> math.isclose(value, (math.log(2.0) + 2**2 / 2.0 + math.log(0.5) + 0.5**2 / 0.5) / 4, rel_tol=1e-5)
    True
    """
    if now.ndim < 2 or now.shape[1] != len(raw):
        raise InputError(
            f"Got an activation of shape {tuple(now.shape)}; expected {len(raw)} channels in dimension 1, as "
            "the network's point_channels says: correct it there."
        )
    variance = (softplus(raw) + _EPS).reshape(1, -1, *[1] * (now.ndim - 2))
    return (variance.log() + (before - now).to(variance.dtype).square() / variance).mean() / 2


@final
class MIRO(OneLoss):
    r"""Mutual-information regularisation with the network at its start.

    The featurizer as it is when MIRO is built (normally pretrained) is copied and frozen. With
    :math:`f_0^{(l)}, f^{(l)}` the activations of the frozen copy and of the network at point l for the same
    images,

    .. math::
        \text{loss} = \tfrac1N \sum_i \ell(f(x_i), y_i) + \lambda \sum_l \mathrm{mean}\,\tfrac12
        \Bigl[\log v^{(l)} + \frac{(f_0^{(l)} - f^{(l)})^2}{v^{(l)}}\Bigr],
        \qquad v^{(l)}_c = \mathrm{softplus}(b^{(l)}_c) + 10^{-6} .

    The mean encoder is the identity; the variance encoder is one number b for each channel of a point, so that
    :math:`v = 0.1` at the start. The copy is always in evaluation mode, is in no role, and is part of the state
    dict: a run that is continued keeps its first start.

    Args:
        network: makes the predictions, and is the start to stay close to; it needs feature points.
        miro_ld: :math:`\lambda`.
        miro_lr_mult: factor on the learning rate of the variances.

    Differs from the public code in: the least variance is 1e-6 (there: 1e-5).
    """

    def __init__(
        self, network: Network, domains: int, *, miro_ld: float = 0.1, miro_lr_mult: float = 10.0
    ) -> None:
        super().__init__(network, domains)
        if not network.points:
            raise InputError("MIRO got a network without feature points; choose a backbone that has some.")
        self.ld = number("miro_ld", miro_ld, 0)
        self.lr_mult = number("miro_lr_mult", miro_lr_mult, 0, excluding=(0,))
        self.start: Network = copy.deepcopy(network)
        self.start.head = nn.Identity()
        self.start.requires_grad_(False).eval()
        like = next(network.parameters())
        raw = math.log(math.expm1(_INITIAL_VARIANCE - _EPS))
        self.variances = nn.ParameterList(
            torch.full((network.point_channels[point],), raw, device=like.device, dtype=like.dtype)
            for point in network.points
        )

    def train(self, mode: bool = True) -> MIRO:
        """As usual, except that the frozen copy stays in evaluation mode."""
        super().train(mode)
        self.start.eval()
        return self

    def roles(self) -> dict[str, Role]:
        """The network and, at ``miro_lr_mult`` times its rate, the variances; both are ``"main"``."""
        variances = Group(tuple(self.variances), self.lr_mult)
        return {MAIN: Role((Group(tuple(self.network.parameters())), variances))}

    def loss(self, batch: DomainBatch, context: StepContext) -> Tensor:
        images, labels = batch.all_images, batch.all_labels
        with torch.no_grad():
            _, before = _activations(self.start, images)
        features, now = _activations(self.network, images)
        terms = [deviation(a, b, raw) for a, b, raw in zip(before, now, self.variances, strict=True)]
        classification = self.classification_loss(self.network.head(features), labels)
        return classification + self.ld * torch.stack(terms).sum()


def _activations(network: Network, images: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The features and the activations at all points."""
    seen: dict[str, Tensor] = {}

    def keep(point: str, x: Tensor) -> Tensor:
        seen[point] = x
        return x

    features = network.features(images, {point: partial(keep, point) for point in network.points})
    return features, [seen[point] for point in network.points]


ROW = AlgorithmRow(
    "MIRO",
    MIRO,
    paper="Cha et al., Domain Generalization by Mutual-Information Regularization with Pre-trained Models, "
    "ECCV 2022",
    space={"miro_ld": Setting(0.1, None, "MIRO"), "miro_lr_mult": Setting(10.0, None, "MIRO")},
)
