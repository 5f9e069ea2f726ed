"""ERM++: empirical risk with a warm start of the head and an average of the weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from genie_dg._types import MAIN, DomainBatch, Network, Objective, Restart, Role, StepContext
from genie_dg.check import number, whole_number
from genie_dg.search_space import LogUniform, Setting

from .algorithm import Algorithm, AlgorithmRow

_LINEAR = "linear"
"""The role of the head while it is trained alone."""


def newest_share(steps: int, start: int) -> float:
    """How much the weights after ``steps`` steps count in the average: all of it before step ``start``.

    From then on the average holds the weights after the steps ``start - 1`` to ``steps``, one as much as the
    other.

    >>> [newest_share(steps, 600) for steps in (1, 599, 600, 601)]
    [1.0, 1.0, 0.5, 0.3333333333333333]
    """
    return 1 / (max(steps - start, -1) + 2)


@final
class ERMPlusPlus(Algorithm):
    r"""The mean of the samples' losses; first the head alone learns, later the mean of the weights predicts.

    .. math::
        L = \frac1N \sum_i \ell(f_{\theta_t}(x_i), y_i), \qquad
        \bar\theta_T = \frac{1}{T - T_0 + 2} \sum_{t = T_0 - 1}^{T} \theta_t \quad (T \ge T_0)

    The first ``linear_steps`` steps lower L in the head only, as the role ``"linear"`` with an optimizer of its
    own; all others lower it in the whole network, as ``"main"``. Predictions are those of the averaged network
    :math:`\bar\theta`, which before step :math:`T_0` is the network itself; it is part of the state dict.

    Batch-norm statistics are averaged like weights. Where they are not frozen, the averaged network then sees
    the step's batch in training mode, as in DomainBed, which moves its statistics as training does.

    Args:
        linear_lr: learning rate of the head in its own phase, as it would be for Adam; another optimizer takes
            the same multiple of its own default (`Restart`).
        linear_steps: how long that phase is.
        sma_start_iter: :math:`T_0`, counted from 1; fixed in DomainBed's code.

    Differs from the paper in what is not part of a step: the schedule of the learning rate and the number of
    steps that the paper finds on validation data, the second training on all data, and the initial weights are
    those of the run. Differs from DomainBed's code in: the head is trained alone for ``linear_steps`` steps
    (there for one more, since steps are counted after the choice); the featurizer's unused gradient is not
    computed meanwhile; there is no LARS, which is off there. The schedule belongs to a training script of its
    own there, too.
    """

    def __init__(
        self,
        network: Network,
        domains: int,
        *,
        linear_lr: float = 5e-5,
        linear_steps: int = 500,
        sma_start_iter: int = 600,
    ) -> None:
        super().__init__(network, domains)
        self.linear_lr = number("linear_lr", linear_lr, 0)
        self.linear_steps = whole_number("linear_steps", linear_steps, 0)
        self.sma_start_iter = whole_number("sma_start_iter", sma_start_iter)
        self.averaged: Network = copy.deepcopy(network)
        self.averaged.requires_grad_(False)

    def roles(self) -> dict[str, Role]:
        """The whole network as ``"main"`` and, where it has a phase of its own, its head as ``"linear"``."""
        head = {_LINEAR: Role.of(self.network.head)} if self.linear_steps else {}
        return {**super().roles(), **head}

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        images, labels = batch.all_images, batch.all_labels

        def linear_loss() -> Tensor:
            with torch.no_grad():
                features = self.network.features(images)
            return self.classification_loss(self.network.head(features), labels)

        def loss() -> Tensor:
            return self.classification_loss(self.network(images), labels)

        if context.step < self.linear_steps:
            restart = Restart(self.linear_lr) if context.step == 0 else None
            yield Objective(_LINEAR, linear_loss, restart)
        else:
            yield Objective(MAIN, loss)
        self._average(newest_share(context.step + 1, self.sma_start_iter), images)

    def predict(self, images: Tensor) -> Tensor:
        """Logits of the averaged network."""
        logits: Tensor = self.averaged(images)
        return logits

    @torch.no_grad()
    def _average(self, share: float, images: Tensor) -> None:
        """Give the new weights their share, then show the batch to batch norms that learn."""
        means, news = self.averaged.state_dict(), self.network.state_dict()
        for name, mean in means.items():
            if share == 1 or not mean.is_floating_point():
                mean.copy_(news[name])
            else:
                mean.lerp_(news[name], share)
        norms = (module for module in self.averaged.modules() if isinstance(module, _NormBase))
        if any(norm.training and norm.track_running_stats for norm in norms):
            self.averaged.features(images)


ROW = AlgorithmRow(
    "ERM++",
    ERMPlusPlus,
    paper="Teterwak et al., ERM++: An Improved Baseline for Domain Generalization, WACV 2025",
    space={
        "linear_lr": Setting(5e-5, LogUniform(-5, -3.5), "DomainBed"),
        "linear_steps": Setting(500, None, "DomainBed"),
        "sma_start_iter": Setting(600, None, "DomainBed"),
    },
    domainbed=1e-10,
    differs="DomainBed trains the head alone for linear_steps + 1 steps, as it counts a step after choosing; "
    "here it is linear_steps, as the name says, and with one more here the updates agree.",
)
