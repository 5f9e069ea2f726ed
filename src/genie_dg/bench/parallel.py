"""One run on several processes: each takes a share of every domain's batch, and gradients are averaged.

``torchrun --nproc-per-node 2 -m genie_dg.cli.main train ...`` starts them. The loss must be a mean over
samples (rows of the table say so), because then the mean of the shares' gradients is the gradient of the whole
batch. Up to rounding, the run is that of one process, except for dropout, which every process draws for its
own share, and for batch-norm statistics that are not frozen, which are those of the first process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from genie_dg._types import DomainBatch
from genie_dg.check import GenieError


class LostProcess(GenieError, RuntimeError):
    """Another process of the run has ended."""


@dataclass(frozen=True)
class World:
    """This process among those of the run."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes the records."""
        return self.rank == 0

    def share(self, batch: DomainBatch) -> DomainBatch:
        """This process's part of every domain's batch.

        >>> batch = DomainBatch((torch.arange(4.0),), (torch.arange(4),))
        >>> World(1, 2).share(batch).labels
        (tensor([2, 3]),)
        """
        if self.size == 1:
            return batch
        images = tuple(x.chunk(self.size)[self.rank] for x in batch.images)
        return DomainBatch(images, tuple(y.chunk(self.size)[self.rank] for y in batch.labels))

    def mine(self, batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Every ``size``-th batch, from the rank-th on."""
        return islice(iter(batches), self.rank, None, self.size)

    def sum(self, *values: float) -> list[float]:
        """The sums over all processes."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        with _others(self):
            dist.all_reduce(total)
        return [float(value) for value in total]

    def average_gradients(self, optimizer: Optimizer) -> None:
        """Replace every gradient by its mean over the processes, in one message for each type."""
        if self.size == 1:
            return
        found: dict[torch.dtype, list[Tensor]] = {}
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    found.setdefault(p.grad.dtype, []).append(p.grad)
        for gradients in found.values():
            flat = torch.cat([g.reshape(-1) for g in gradients])
            with _others(self):
                dist.all_reduce(flat)
            flat /= self.size
            means = torch.split(flat, [g.numel() for g in gradients])
            for gradient, mean in zip(gradients, means, strict=True):
                gradient.copy_(mean.view_as(gradient))

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            with _others(self):
                dist.barrier()


@contextmanager
def _others(world: World) -> Iterator[None]:
    """One sentence when the others do not answer."""
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0][:200]
        raise LostProcess(
            f"Process {world.rank} of {world.size} lost another one of its run ({reason}); "
            "start the run again, and it goes on from its last checkpoint."
        ) from error


@contextmanager
def joined(device: str) -> Iterator[World]:
    """The processes that torchrun started, as a world; alone when it did not."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World()
        return
    dist.init_process_group("nccl" if device.startswith("cuda") else "gloo")
    try:
        yield World(dist.get_rank(), size)
    finally:
        with suppress(RuntimeError):  # of processes that are gone: what matters has been said
            dist.destroy_process_group()
