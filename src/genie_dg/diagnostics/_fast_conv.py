r"""Convolutions whose weight gradient is fast for each sample.

Under ``vmap(grad(...))`` torch writes the weight gradients of a batch as one grouped convolution, which is
slow on CPU. Here they are one batched matrix product: with the columns :math:`X_i` of sample i (``unfold``)
and the output's gradient :math:`Y_i`, the weight's gradient is :math:`Y_i X_i^\top`. Output and input gradient
run on the flattened batch, as in ordinary training. The numbers are the same up to rounding; on a ResNet-18
the gradients of 64 samples of 32 pixels take about a seventh of the time.

`fast_convolutions` switches this on for two-dimensional convolutions with numeric padding; everything else is
left to torch.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn import grad as nn_grad
from torch.overrides import TorchFunctionMode

Pair = tuple[int, int]
Options = tuple[Pair, Pair, Pair, int]
"""Stride, padding, dilation and groups."""


class Workspace:
    """Memory for the weight gradients of one chunk of samples, used again for the next chunk.

    Large results are otherwise allocated anew for every chunk, and the operating system hands out such memory
    page by page, which takes several times as long as the product itself. Whoever gives a workspace must be
    done with the gradients of one chunk before the next is computed.
    """

    def __init__(self) -> None:
        self._buffers: list[Tensor] = []
        self._next = 0

    def begin(self) -> None:
        """A new chunk: all buffers may be written again."""
        self._next = 0

    def product(self, left: Tensor, right: Tensor) -> Tensor:
        """``torch.bmm(left, right)`` in the next buffer; the calls of each chunk come in the same order."""
        shape = torch.Size((*left.shape[:2], right.shape[2]))
        index, self._next = self._next, self._next + 1
        if index == len(self._buffers):
            self._buffers.append(left.new_empty(0))
        if self._buffers[index].numel() < shape.numel() or self._buffers[index].dtype != left.dtype:
            self._buffers[index] = left.new_empty(shape.numel())
        out = self._buffers[index][: shape.numel()].view(shape)  # the last chunk may be smaller
        return torch.bmm(left, right, out=out)


_workspace: ContextVar[Workspace | None] = ContextVar("workspace", default=None)


def _batch_first(x: Tensor, dim: int | None, size: int) -> Tensor:
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


class _WeightGradient(torch.autograd.Function):
    """The weight's gradient; for a batch, one for each sample."""

    @staticmethod
    def forward(x: Tensor, dy: Tensor, shape: torch.Size, options: Options) -> Tensor:
        dw: Tensor = nn_grad.conv2d_weight(x, shape, dy, *options)  # type: ignore[no-untyped-call]
        return dw

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Nothing is kept: this gradient is not differentiated again."""

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], x: Tensor, dy: Tensor, shape: torch.Size, options: Options
    ) -> tuple[Tensor, int]:
        s, p, d, groups = options
        x, dy = (_batch_first(t, dim, info.batch_size) for t, dim in ((x, in_dims[0]), (dy, in_dims[1])))
        samples, images = x.shape[:2]
        x, dy = x.flatten(0, 1), dy.flatten(0, 1)
        if tuple(shape[2:]) == (1, 1) and tuple(p) == (0, 0):
            columns = x[:, :, :: s[0], :: s[1]].flatten(2)
        else:
            columns = F.unfold(x, (shape[2], shape[3]), d, p, s)
        left = dy.reshape(samples, images, groups, shape[0] // groups, -1)
        right = columns.reshape(samples, images, groups, shape[1] * shape[2] * shape[3], -1)
        # [sample, group, out, images * places] times [sample, group, images * places, in * kernel]
        left = left.permute(0, 2, 3, 1, 4).flatten(3).flatten(0, 1)
        right = right.permute(0, 2, 1, 4, 3).flatten(2, 3).flatten(0, 1)
        workspace = _workspace.get()
        product = torch.bmm(left, right) if workspace is None else workspace.product(left, right)
        return product.reshape(samples, *shape), 0


class _Convolution(torch.autograd.Function):
    """``F.conv2d`` without bias."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, s: Pair, p: Pair, d: Pair, groups: int) -> Tensor:
        return torch.conv2d(x, weight, None, s, p, d, groups)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, *ctx.options = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        need_x, need_weight = ctx.needs_input_grad[:2]
        dx = dw = None
        if need_x:
            dx = nn_grad.conv2d_input(x.shape, weight, dy, *ctx.options)  # type: ignore[no-untyped-call]
        if need_weight:
            dw = _WeightGradient.apply(x, dy, weight.shape, tuple(ctx.options))
        return dx, dw, None, None, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[Any, ...], x: Tensor, weight: Tensor, *options: Any
    ) -> tuple[Tensor, int]:
        x_dim, weight_dim = in_dims[:2]
        if weight_dim is not None:  # weights that differ from sample to sample: torch's own rule
            plain = torch.vmap(lambda a, b: torch.conv2d(a, b, None, *options), (x_dim, weight_dim))
            return plain(x, weight), 0
        x = _batch_first(x, x_dim, info.batch_size)
        y: Tensor = _Convolution.apply(x.flatten(0, 1), weight, *options)
        return y.reshape(*x.shape[:2], *y.shape[1:]), 0


def _pair(value: Any) -> Pair | None:
    if isinstance(value, int):
        return value, value
    if isinstance(value, (tuple, list)) and len(value) in (1, 2) and all(isinstance(v, int) for v in value):
        return value[0], value[-1]
    return None  # "same" and "valid" are left to torch


def _arguments(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1,
) -> tuple[Tensor, Tensor, Tensor | None, Pair | None, Pair | None, Pair | None, int]:  # fmt: skip
    return input, weight, bias, _pair(stride), _pair(padding), _pair(dilation), groups


class fast_convolutions(TorchFunctionMode):  # ``with fast_convolutions():``
    """Inside, two-dimensional convolutions of batches use the rule of this module.

    Args:
        workspace: memory that is used again from chunk to chunk; see `Workspace`.
    """

    def __init__(self, workspace: Workspace | None = None) -> None:
        super().__init__()
        self._own = workspace

    def __enter__(self) -> Any:
        self._token = _workspace.set(self._own)
        if self._own is not None:
            self._own.begin()
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        _workspace.reset(self._token)
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is not torch.conv2d:
            return func(*args, **kwargs)
        x, weight, bias, s, p, d, groups = _arguments(*args, **kwargs)
        if x.dim() != 4 or s is None or p is None or d is None or torch.is_autocast_enabled(x.device.type):
            return func(*args, **kwargs)
        y = _Convolution.apply(x, weight, s, p, d, groups)
        return y if bias is None else y + bias.view(-1, 1, 1)
