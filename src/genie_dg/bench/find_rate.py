"""The learning rate of a run, found before it: `suggest_lr` on the run's network, batches and optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from torch import Tensor, nn
from torch.optim import Optimizer

from genie_dg._types import MAIN, DomainBatch, StepContext
from genie_dg.algorithms.erm import ERM
from genie_dg.check import InputError
from genie_dg.data.domains import DomainSet
from genie_dg.data.loaders import Training, ahead
from genie_dg.optim.range_test import SuggestedRate, suggest_lr
from genie_dg.runs.config import RunConfig
from genie_dg.runtime import same_kernels

from .assemble import assemble
from .build import build_optimizers
from .options import RunOptions
from .step import batch_of


@dataclass(frozen=True)
class RunBatches:
    """The batches of a run from its first step on, the same ones each time they are read."""

    training: Training
    steps: int

    def __iter__(self) -> Iterator[DomainBatch]:
        with ahead(self.training, self.steps) as at:
            for step in range(self.steps):
                yield batch_of(at(step))


def check_config(config: RunConfig) -> None:
    """Refuse what a range test cannot say anything about."""
    if config.algorithm != "ERM":
        raise InputError(f"got algorithm={config.algorithm}; the rate is found with ERM alone; leave it out.")
    if "lr" in config.optimizer_settings:
        raise InputError("got a learning rate, which is what is looked for; leave lr out.")


def find_rate(
    config: RunConfig,
    data: DomainSet,
    options: RunOptions,
    steps: int = 100,
    report: Callable[[int], None] | None = None,
) -> SuggestedRate:
    """Find the learning rate for the first steps of a run with ERM.

    Args:
        config: the run; its settings of the optimizer have no lr.
        data: the set it names, opened.
        options: where it happens.
        steps: of each short training, as for `suggest_lr`.
        report: called with the number of training steps so far, after each.
    """
    check_config(config)
    with same_kernels(config.threads):
        parts = assemble(config, data, options)
        parts.algorithm.train()
        context = StepContext(0, create_graph=parts.create_graph)

        def loss(algorithm: nn.Module, batch: DomainBatch) -> Tensor:
            assert isinstance(algorithm, ERM)
            return algorithm.loss(batch, context)

        def optimizer(_: object, lr: float) -> Optimizer:
            settings = {**config.optimizer_settings, "lr": lr}
            return build_optimizers(replace(config, optimizer_settings=settings), parts.algorithm)[MAIN]

        batches = RunBatches(parts.training, steps)
        graph = parts.create_graph
        return suggest_lr(
            parts.algorithm, loss, batches, optimizer, steps=steps, create_graph=graph, report=report
        )
