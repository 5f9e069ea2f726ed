"""Two layers of EfficientNet-Lite that torch is slow at on CPU, in C (`_fast_layers.c`).

They are the layers that they stand for, with the same parameters under the same names and other roundings.
C serves float32 on CPU, channels last. Everything else, and everything that must see torch's own operations
(``vmap``, export, tracing, ``torch.compile``, autocast, gradients of gradients), takes torch's way, and so
does everything where there is no C compiler (`genie_dg._c_library`).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genie_dg import _c_library

SOURCE = Path(__file__).with_name("_fast_layers.c")
LANES = 8
"""Channels that C takes at a time."""

LARGEST_KERNEL = 16
"""Of a convolution in C, as in the C file; larger ones are torch's."""


class _Shape(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            *("pictures", "height", "width", "channels", "out_height", "out_width", "kernel", "stride"),
            *("top", "left"),
        )
    )


class Library(NamedTuple):
    """The functions of the C file."""

    depthwise: Callable[..., None]
    depthwise_backward: Callable[..., None]
    norm: Callable[..., None]
    norm_backward: Callable[..., None]


@functools.cache
def library() -> Library | None:
    """The library, built if need be; None where it cannot be had."""
    return _c_library.load(SOURCE, _bind)


def _bind(loaded: ctypes.CDLL) -> Library:
    address, whole, short = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
    arguments = {
        "depthwise": [*[address] * 4, short],
        "depthwise_backward": [*[address] * 6, short],
        "norm": [*[whole] * 3, *[address] * 4, short, short],
        "norm_backward": [*[whole] * 3, *[address] * 7, short, short],
    }
    functions = {name: getattr(loaded, f"genie_{name}") for name in arguments}
    for name, function in functions.items():
        function.argtypes, function.restype = arguments[name], None
    return Library(**functions)


def can_serve(x: Tensor, weight: Tensor) -> bool:
    """Whether C may compute a layer with this input."""
    return (
        type(x) is Tensor
        and x.device.type == weight.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.dim() == 4
        and x.shape[1] % LANES == 0
        and x.numel() > 0
        and x.is_contiguous(memory_format=torch.channels_last)
        and not (
            torch.compiler.is_compiling()
            or torch._C._get_tracing_state() is not None
            or torch.is_autocast_enabled("cpu")
        )
        and not torch._C._are_functorch_transforms_active()
        and torch.autograd.forward_ad._current_level < 0
        and library() is not None
    )


def _same(size: int, kernel: int, stride: int) -> tuple[int, int, int]:
    """TensorFlow's "same": the output's size, and the padding before and after."""
    out = -(-size // stride)
    padding = max((out - 1) * stride + kernel - size, 0)
    return out, padding // 2, padding - padding // 2


def plain_depthwise(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """The convolution as torch computes it."""
    kernel = weight.shape[-1]
    (_, top, bottom), (_, left, right) = (_same(size, kernel, stride) for size in x.shape[-2:])
    if top or bottom or left or right:
        x = F.pad(x, [left, right, top, bottom])
    return F.conv2d(x, weight, None, stride, groups=len(weight))


@final
class DepthwiseConvolution(nn.Conv2d):
    """A convolution of every channel by itself, padded like TensorFlow's "same", without a bias.

    Args:
        original: the layer that it stands for, whose parameter it takes.
    """

    def __init__(self, original: nn.Conv2d) -> None:
        with torch.device("meta"):  # no random numbers are drawn
            super().__init__(
                original.in_channels,
                original.out_channels,
                original.kernel_size[0],
                original.stride[0],
                groups=original.groups,
                bias=False,
            )
        self.weight = original.weight

    def forward(self, x: Tensor) -> Tensor:
        """``[n, channels, height, width]`` to the same with height and width divided by the stride."""
        if self.kernel_size[0] <= LARGEST_KERNEL and can_serve(x, self.weight):
            y: Tensor = _Depthwise.apply(x, self.weight, self.stride[0])
            return y
        return plain_depthwise(x, self.weight, self.stride[0])


class _Depthwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int) -> Tensor:
        n, channels, height, width = x.shape
        kernel = weight.shape[-1]
        (rows, top, _), (columns, left, _) = (_same(size, kernel, stride) for size in (height, width))
        shape = _Shape(n, height, width, channels, rows, columns, kernel, stride, top, left)
        y = torch.empty((n, channels, rows, columns), memory_format=torch.channels_last)
        called = library()
        assert called is not None
        taps = _by_tap(weight)
        called.depthwise(
            ctypes.byref(shape), x.data_ptr(), taps.data_ptr(), y.data_ptr(), torch.get_num_threads()
        )
        ctx.save_for_backward(x, weight)
        ctx.shape, ctx.stride = shape, stride
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient that is differentiated itself
            gx, gw = _with_a_graph(plain_depthwise, (x, weight), (ctx.stride,), g, ctx.needs_input_grad)
            return gx, gw, None
        g = g.contiguous(memory_format=torch.channels_last)
        taps = _by_tap(weight)
        gx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        gw = torch.empty_like(taps) if ctx.needs_input_grad[1] else None
        called = library()
        assert called is not None
        called.depthwise_backward(
            ctypes.byref(ctx.shape),
            *(t if t is None else t.data_ptr() for t in (x, taps, g, gx, gw)),
            torch.get_num_threads(),
        )
        return gx, None if gw is None else gw.t().reshape(weight.shape), None


def _by_tap(weight: Tensor) -> Tensor:
    """``[channels, 1, k, k]`` as ``[k * k, channels]``."""
    return weight.detach().reshape(len(weight), -1).t().contiguous()


def _with_a_graph(
    function: Callable[..., Tensor],
    tensors: tuple[Tensor, ...],
    options: tuple[Any, ...],
    g: Tensor,
    needed: tuple[bool, ...],
) -> list[Tensor | None]:
    """The gradients of torch's way, which can be differentiated again."""
    asked = [t for t, need in zip(tensors, needed, strict=False) if need]
    gradients = iter(torch.autograd.grad(function(*tensors, *options), asked, g, create_graph=True))
    return [next(gradients) if need else None for _, need in zip(tensors, needed, strict=False)]


def plain_norm(
    x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, eps: float, bounded: bool
) -> Tensor:
    """Batch norm with fixed statistics, and the clamp where asked for, as torch computes them."""
    y = F.batch_norm(x, mean, variance, weight, bias, eps=eps)
    return F.relu6(y) if bounded else y


@final
class NormAndClamp(nn.BatchNorm2d):
    """Batch norm, followed by a clamp to [0, 6] (ReLU6) where ``bounded``.

    Args:
        original: the batch norm that it stands for, whose parameters and statistics it takes.
        bounded: clamp.
    """

    def __init__(self, original: nn.BatchNorm2d, bounded: bool) -> None:
        super().__init__(original.num_features, original.eps, original.momentum, device="meta")
        self.weight, self.bias, self.bounded = original.weight, original.bias, bounded
        for name, buffer in original.named_buffers():
            setattr(self, name, buffer)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape as ``x``."""
        if not self.training and can_serve(x, self.weight):
            y: Tensor = _Norm.apply(
                x, self.weight, self.bias, self.running_mean, self.running_var, self.eps, self.bounded
            )
            return y
        y = super().forward(x)
        return F.relu6(y) if self.bounded else y


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        variance: Tensor,
        eps: float,
        bounded: bool,
    ) -> Tensor:
        y = torch.empty_like(x)
        _, scale, shift = _line(weight, bias, mean, variance, eps)
        called = library()
        assert called is not None
        addresses = (t.data_ptr() for t in (x, scale, shift, y))
        called.norm(len(x), x[0, 0].numel(), x.shape[1], *addresses, bounded, torch.get_num_threads())
        ctx.save_for_backward(x, weight, bias, mean, variance)
        ctx.eps, ctx.bounded = eps, bounded
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, variance = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient that is differentiated itself
            options = (mean, variance, ctx.eps, ctx.bounded)
            gradients = _with_a_graph(plain_norm, (x, weight, bias), options, g, ctx.needs_input_grad)
            return (*gradients, None, None, None, None)
        g = g.contiguous(memory_format=torch.channels_last)
        root, scale, shift = _line(weight, bias, mean, variance, ctx.eps)
        gx, sums = torch.empty_like(x), torch.empty(len(x), 2, x.shape[1])
        called = library()
        assert called is not None
        addresses = (t.data_ptr() for t in (x, scale, shift, mean, g, gx, sums))
        called.norm_backward(
            len(x), x[0, 0].numel(), x.shape[1], *addresses, ctx.bounded, torch.get_num_threads()
        )
        plain, centred = sums.sum(0)
        return gx, centred * root, plain, None, None, None, None


def _line(
    weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """1 / standard deviation, and batch norm as x * scale + shift."""
    root = torch.rsqrt(variance + eps)
    scale = weight.detach() * root
    return root, scale, bias.detach() - mean * scale


def replace_layers(network: Any) -> None:
    """Put these layers into an EfficientNet-Lite of ``efficientnet_lite_pytorch``, block by block.

    Batch norms that a ReLU6 follows do its work, so that it becomes an identity.
    """
    for part in (network, *network._blocks):
        for name, layer in list(part.named_children()):
            if isinstance(layer, nn.BatchNorm2d):
                setattr(part, name, NormAndClamp(layer, bounded=name != "_bn2"))  # _bn2 ends a block
            elif isinstance(layer, nn.ReLU6):
                setattr(part, name, nn.Identity())
            elif isinstance(layer, nn.Conv2d) and layer.groups > 1:
                setattr(part, name, DepthwiseConvolution(layer))
