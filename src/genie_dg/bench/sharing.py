r"""The featurizer's samples shared among processes, with gradients of any order.

A tensor is either *common* (the same in all processes: weights, the batch, gathered features, the loss) or
*own* (of this process's rows). Four operations lead from one kind to the other. The gradient of a common tensor
is common; that of an own tensor is kept W times as large, W being the number of processes, so that the **mean**
over processes is the gradient in a weight whether its layer was shared (own gradients, whose sum counts) or
computed by all alike (common gradients, all the same). Then each operation has another one as its derivative:

.. math::
    \text{rows} \to \tfrac1W\,\text{gather}, \qquad \text{gather} \to W\,\text{rows}, \qquad
    \text{same} \to \text{mean}, \qquad \text{mean} \to \text{same},

which is why second derivatives (IGA, MLDG, AdaHessian) come out right as well. The last part of a backward
pass, the mean over processes for the weights, is left to `World.average_gradients`, one message for each
objective, unless an algorithm or an optimizer needs whole gradients before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from genie_dg._types import Edit, Network, Sharing
from genie_dg.check import InputError

from .parallel import World


class _Rows(torch.autograd.Function):
    """The rows of this process, times a factor: common to own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, world: World, factor: float) -> Tensor:
        ctx.world, ctx.samples, ctx.factor = world, len(x), factor
        return factor * x[world.rows(len(x))]  # never a view, which layers that work in place would refuse

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        factor = ctx.factor / ctx.world.size
        return _Gather.apply(outputs[0], ctx.world, ctx.samples, factor), None, None


class _Gather(torch.autograd.Function):
    """The rows of all processes, times a factor: own to common."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, world: World, samples: int, factor: float) -> Tensor:
        ctx.world, ctx.factor = world, factor
        gathered = world.gather(own, samples)
        return gathered if factor == 1 else factor * gathered

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        return _Rows.apply(outputs[0], ctx.world, ctx.factor * ctx.world.size), None, None, None


class _Same(torch.autograd.Function):
    """Common tensors that are used with own ones: common to own."""

    @staticmethod
    def forward(ctx: Any, world: World, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.world = world
        return tuple(tensor.view_as(tensor) for tensor in tensors)

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        return None, *_Mean.apply(ctx.world, *outputs)


class _Mean(torch.autograd.Function):
    """Means over the processes: own to common."""

    @staticmethod
    def forward(ctx: Any, world: World, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.world = world
        return tuple(mean.clone() for mean in world.mean(tensors))  # views of one tensor are not to be outputs

    @staticmethod
    def backward(ctx: Any, *outputs: Tensor) -> tuple[Tensor | None, ...]:
        return None, *_Same.apply(ctx.world, *outputs)


@dataclass(frozen=True)
class Shares(Sharing):
    """Rows in, features of all samples out.

    Args:
        world: the processes.
        whole_gradients: the gradients in the featurizer's weights are averaged within every backward pass, for
            algorithms that compute gradients of their own and optimizers that differentiate them; otherwise
            that is left to the loop.
    """

    world: World
    whole_gradients: bool = False

    def features(self, featurizer: nn.Module, images: Tensor) -> Tensor:
        if len(images) < self.world.size:
            raise InputError(
                f"got {len(images)} samples for {self.world.size} processes; raise the batch size."
            )
        rows = self._rows(images)
        with process_randomness(self.world.rank, images.device), joint_statistics(featurizer, self.world):
            own: Tensor = functional_call(featurizer, self._weights(featurizer), (rows,))
        return self._gather(own, len(images))

    def edit(self, edit: Edit, samples: int) -> Edit:
        return lambda x: self._rows(edit(self._gather(x, samples)))

    def _rows(self, x: Tensor) -> Tensor:
        rows: Tensor = _Rows.apply(x, self.world, 1.0) if x.requires_grad else x[self.world.rows(len(x))]
        return rows

    def _gather(self, x: Tensor, samples: int) -> Tensor:
        gathered: Tensor = _Gather.apply(x, self.world, samples, 1.0)
        return gathered

    def _weights(self, featurizer: nn.Module) -> dict[str, Tensor]:
        """The featurizer's weights, as they are here, with whole gradients; none where the loop sees to it."""
        if not (self.whole_gradients and torch.is_grad_enabled()):
            return {}
        weights = {name: p for name, p in featurizer.named_parameters() if p.requires_grad}
        same: Sequence[Tensor] = _Same.apply(self.world, *weights.values()) if weights else ()
        return dict(zip(weights, same, strict=True))


@contextmanager
def shared(algorithm: nn.Module, world: World, whole_gradients: bool = False) -> Iterator[None]:
    """Inside, all networks of an algorithm share their samples with the other processes.

    Args:
        algorithm: whose step is taken.
        world: the processes; nothing changes where there is one.
        whole_gradients: see `Shares`.
    """
    networks = [part for part in algorithm.modules() if isinstance(part, Network)] if world.size > 1 else []
    for network in networks:
        network.sharing = Shares(world, whole_gradients)
    try:
        yield
    finally:
        for network in networks:
            network.sharing = None


@contextmanager
def process_randomness(rank: int, device: torch.device) -> Iterator[None]:
    """Inside, torch's global stream is this process's own; afterwards it is common again.

    Where nothing was drawn, the stream goes on as if nothing had been inside, as it would in one process.
    """
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(int(torch.randint(2**62, ())) + rank)
        before = _stream(device)
        yield
        drawn = not torch.equal(_stream(device), before)
    if drawn:
        torch.manual_seed(int(torch.randint(2**62, ())))


def _stream(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


@contextmanager
def joint_statistics(module: nn.Module, world: World) -> Iterator[None]:
    """Inside, batch norms that are in training take the statistics of all processes' rows."""
    norms = [part for part in module.modules() if isinstance(part, _BatchNorm) and part.training]
    for norm in norms:
        norm.__dict__["forward"] = partial(_batch_norm, norm, world)
    try:
        yield
    finally:
        for norm in norms:
            del norm.__dict__["forward"]


def _batch_norm(norm: _BatchNorm, world: World, x: Tensor) -> Tensor:
    """What the module would return for the samples of all processes, for those of this one."""
    dims = [d for d in range(x.ndim) if d != 1]
    shape = [1, -1, *[1] * (x.ndim - 2)]
    wide = x.float() if x.dtype.itemsize < 4 else x
    size, total = _Mean.apply(world, wide.new_tensor(x.numel() / x.shape[1]), wide.sum(dims))
    (mean,) = _Same.apply(world, total / size)
    centred = wide - mean.view(shape)
    (squares,) = _Mean.apply(world, centred.square().sum(dims))
    (variance,) = _Same.apply(world, squares / size)
    _move_statistics(norm, mean, variance, size * world.size)
    y: Tensor = centred * (variance + norm.eps).rsqrt().view(shape)
    if norm.affine:
        y = y * norm.weight.view(shape) + norm.bias.view(shape)
    return y.to(x.dtype)


@torch.no_grad()
def _move_statistics(norm: _BatchNorm, mean: Tensor, variance: Tensor, count: Tensor) -> None:
    """As torch does: the running variance is the unbiased one."""
    if not norm.track_running_stats or norm.running_mean is None or norm.running_var is None:
        return
    share = norm.momentum
    if norm.num_batches_tracked is not None:
        norm.num_batches_tracked.add_(1)
        share = 1 / float(norm.num_batches_tracked) if share is None else share
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), share or 0.0)
    norm.running_var.lerp_((variance * count / (count - 1)).to(norm.running_var.dtype), share or 0.0)
