"""One run on several processes, which share the passes through the network; what they say to one another.

``torchrun --nproc-per-node 2 -m genie_dg.cli.main train ...`` starts them. The design:

1. Every process has the whole batch and runs the whole step of the algorithm, whose code knows of no processes.
2. Only the featurizer, which is where the time goes, is shared: each process sends its rows of the samples
   through it, and the features of all are gathered, with their gradients (`genie_dg.bench.sharing`).
3. What follows (heads, penalties, adversaries, buffers) every process computes from the same features, and so
   every process has the objective of the whole batch, whether that is a mean over samples or not.
4. Random numbers are those of the step, the same in all processes, so permutations, mixing weights and dropout
   of the features are those of one process.
5. Gradients are such that their mean over the processes is the gradient of one process.

Up to rounding, the run is that of one process, except for what is drawn at random inside the featurizer
(stochastic depth), which every process draws for its own rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

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

    def rows(self, samples: int) -> slice:
        """Which of the samples of a pass this process computes: as many as the others, or one more or less.

        >>> [World(rank, 3).rows(8) for rank in range(3)]
        [slice(0, 2, None), slice(2, 5, None), slice(5, 8, None)]
        """
        return slice(samples * self.rank // self.size, samples * (self.rank + 1) // self.size)

    def mine(self, batches: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Every ``size``-th batch, from the rank-th on."""
        return islice(iter(batches), self.rank, None, self.size)

    def gather(self, mine: Tensor, samples: int) -> Tensor:
        """All samples, from the `rows` of each process; without gradients."""
        everyone = [World(rank, self.size).rows(samples) for rank in range(self.size)]
        counts = [rows.stop - rows.start for rows in everyone]
        padded = mine.new_zeros(max(counts), *mine.shape[1:])
        padded[: len(mine)] = mine
        parts = [torch.empty_like(padded) for _ in counts]
        with _others(self):
            dist.all_gather([_bytes(part) for part in parts], _bytes(padded))
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def mean(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The mean of each tensor over the processes, in one message for each type."""
        result = list(tensors)
        for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
            places = [k for k, tensor in enumerate(tensors) if tensor.dtype == dtype]
            flat = torch.cat([tensors[k].reshape(-1) for k in places])
            with _others(self):
                dist.all_reduce(flat)
            flat /= self.size
            means = torch.split(flat, [tensors[k].numel() for k in places])
            for k, mean in zip(places, means, strict=True):
                result[k] = mean.view_as(tensors[k])
        return result

    def sum(self, *values: float) -> list[float]:
        """The sums over all processes."""
        if self.size == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        with _others(self):
            dist.all_reduce(total)
        return [float(value) for value in total]

    def average_gradients(self, optimizer: Optimizer) -> None:
        """Replace every gradient by its mean over the processes."""
        if self.size == 1:
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters if p.grad is not None]
        for gradient, mean in zip(gradients, self.mean(gradients), strict=True):
            gradient.copy_(mean)

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            with _others(self):
                dist.barrier()


ALONE = World()
"""One process, which has the run to itself."""


def _bytes(x: Tensor) -> Tensor:
    """The numbers as bytes, which every backend can send, whatever their type."""
    return x.view(-1).view(torch.uint8)


@contextmanager
def _others(world: World) -> Iterator[None]:
    """One sentence when the others do not answer."""
    try:
        yield
    except RuntimeError as error:
        lost = f"Process {world.rank} of {world.size} lost another one of its run"
        raise LostProcess(f"{lost}; start the run again, and it goes on from its last checkpoint.") from error


@contextmanager
def joined(device: str) -> Iterator[World]:
    """The processes that torchrun started, as a world; alone when it did not."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        yield World()
        return
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    # numbers of records are summed on the CPU
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo")
    try:
        yield World(dist.get_rank(), size)
    finally:
        with suppress(RuntimeError):  # of processes that are gone: what matters has been said
            dist.destroy_process_group()
