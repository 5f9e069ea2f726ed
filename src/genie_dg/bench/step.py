"""One training step: every objective of the algorithm, each stepped by the optimizer of its role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.amp import GradScaler
from torch.optim import Optimizer

from genie_dg._types import DomainBatch, Objective, Restart, StepContext
from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.optim.passes import backward, gather_gradients

from .parallel import ALONE, World
from .schedule import clip_gradients, scaled_lr

ADAM_LR = 5e-5
"""DomainBed's default learning rate of Adam, in whose scale a `Restart` names its own."""


@dataclass(frozen=True)
class StepSettings:
    """What is the same in all steps of a run.

    Args:
        autocast: the type of the forward pass; ``None`` computes in the type of the weights.
        scaler: for float16: scales losses before, and gradients after, the backward pass.
        world: the processes that share the step (`genie_dg.bench.sharing.shared`); gradients are averaged over
            them.
        default_lr: the default learning rate of the run's optimizer.
        clip: the largest norm of the gradient that a role is stepped with; 0 for any. Of SAM and its kin it is
            the gradient that their passes combine.
    """

    autocast: torch.dtype | None = None
    scaler: GradScaler | None = None
    world: World = ALONE
    default_lr: float = ADAM_LR
    clip: float = 0.0


PLAIN = StepSettings()


def batch_of(pairs: Sequence[tuple[Tensor, Tensor]]) -> DomainBatch:
    """The loader's pairs of images and labels, one for each domain, as a batch."""
    images, labels = zip(*pairs, strict=True)
    return DomainBatch(tuple(images), tuple(labels))


def take_step(
    algorithm: Algorithm,
    optimizers: Mapping[str, Optimizer],
    batch: DomainBatch,
    context: StepContext,
    settings: StepSettings = PLAIN,
    lr_factor: float = 1.0,
) -> dict[str, Tensor]:
    """Step every role that the algorithm asks for; returns the loss of each, before its step.

    The code of an algorithm after a ``yield`` runs after the step of that objective. Losses stay on their
    device, because to read one is to wait for it.

    Args:
        algorithm: yields the objectives.
        optimizers: one for each of its roles.
        batch: of this step.
        context: of this step.
        settings: of all steps.
        lr_factor: on the learning rates of all roles, in this step.
    """
    losses: dict[str, Tensor] = {}
    for objective in algorithm.objectives(batch, context):
        optimizer = optimizers[objective.role]
        if objective.restart is not None:
            start_afresh(optimizer, objective.restart, settings.default_lr)
        with scaled_lr(optimizer, lr_factor):
            loss = step_objective(objective, optimizer, context, settings)
        losses.setdefault(objective.role, loss)
    return losses


def start_afresh(optimizer: Optimizer, restart: Restart, default_lr: float = ADAM_LR) -> None:
    """Drop the state of an optimizer and, where the restart says so, change its learning rate.

    >>> optimizer = torch.optim.Adam([torch.nn.Parameter(torch.ones(2))], lr=1e-3)
    >>> start_afresh(optimizer, Restart(lr=1e-6))
    >>> optimizer.param_groups[0]["lr"], len(optimizer.state)
    (1e-06, 0)
    """
    optimizer.load_state_dict({**optimizer.state_dict(), "state": {}})
    if restart.lr is not None:
        for group in optimizer.param_groups:
            group["lr"] = restart.lr if default_lr == ADAM_LR else restart.lr * default_lr / ADAM_LR


def step_objective(
    objective: Objective, optimizer: Optimizer, context: StepContext, settings: StepSettings = PLAIN
) -> Tensor:
    """One optimizer step on one objective; returns the loss before it."""
    device = optimizer.param_groups[0]["params"][0].device.type
    autocast, scaler = settings.autocast, settings.scaler

    def closure() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, autocast, enabled=autocast is not None):
            loss = objective.loss()
        backward(loss if scaler is None else scaler.scale(loss), optimizer, context.create_graph)
        if not context.create_graph:  # gradients with a graph are whole as they are
            settings.world.average_gradients(optimizer)
        return loss

    if scaler is None and not settings.clip:
        loss: Tensor = optimizer.step(closure)  # type: ignore[arg-type, assignment]  # torch declares floats
    else:
        loss, stepping = gather_gradients(optimizer, closure, scaler)
        _step_clipped(stepping, scaler, settings.clip)
    if context.create_graph:
        optimizer.zero_grad(set_to_none=True)  # the graphs of this step end here
    return loss.detach().reshape(())


def _step_clipped(optimizer: Optimizer, scaler: GradScaler | None, clip: float) -> None:
    """Step with the gradient that is there, clipped; GradScaler unscales and checks it before."""
    if scaler is not None and clip:
        scaler.unscale_(optimizer)
    clip_gradients(optimizer, clip)
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()
