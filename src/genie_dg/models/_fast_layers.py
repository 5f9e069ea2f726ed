"""The blocks of EfficientNet-Lite with fixed batch-norm statistics, faster on CPU than torch's own layers.

A batch norm whose statistics are fixed is a factor and a shift for every channel, so it is folded into the
convolution before it (`folded`), and autograd finds the gradients of both. What is left of the middle of a
block, clamp, depthwise convolution, clamp, is one pass in C (`_fast_layers.c`). Roundings differ from torch's
layers; what is computed does not.

C serves float32 on CPU, in the layout channels last, to which inputs are brought. Everything else, and all
that must see torch's own operations (``vmap``, export, tracing, ``torch.compile``, autocast, gradients of
gradients), takes torch's way, and so does everything where there is no C compiler (`genie_dg._c_library`).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genie_dg import _c_library

_SOURCE = Path(__file__).with_name("_fast_layers.c")
_FLAGS = ("-ffp-contract=fast",)
_LANES = 8
"""Channels that C takes at a time."""

LARGEST_KERNEL = 16
"""Of a convolution in C, as in the C file; larger ones are torch's."""


class _Shape(ctypes.Structure):
    _names = "pictures height width channels out_height out_width kernel stride top left"
    _fields_ = tuple((name, ctypes.c_int64) for name in _names.split())


class _Library(NamedTuple):
    """The functions of the C file."""

    group: Callable[..., int]
    depthwise: Callable[..., None]
    depthwise_backward: Callable[..., None]


@functools.cache
def layer_library() -> _Library | None:
    """The layer_library, built if need be; None where it cannot be had."""
    return _c_library.load_library(_SOURCE, _bind, _FLAGS)


def _bind(loaded: ctypes.CDLL) -> _Library:
    address, threads = ctypes.c_void_p, ctypes.c_int32
    loaded.genie_group.argtypes, loaded.genie_group.restype = [address], ctypes.c_int64
    for function, arrays in ((loaded.genie_depthwise, 5), (loaded.genie_depthwise_backward, 9)):
        function.argtypes, function.restype = [address, *[address] * arrays, threads], None
    return _Library(loaded.genie_group, loaded.genie_depthwise, loaded.genie_depthwise_backward)


def serves_layers(x: Tensor, weight: Tensor) -> bool:
    """Whether C may compute a layer with this input."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return False
    if torch._C._are_functorch_transforms_active() or torch.is_autocast_enabled("cpu"):
        return False
    on_cpu = type(x) is Tensor and x.device.type == weight.device.type == "cpu"
    floats = x.dtype == weight.dtype == torch.float32 and x.dim() == 4 and x.numel() > 0
    return on_cpu and floats and torch.autograd.forward_ad._current_level < 0 and layer_library() is not None


def _same(size: int, kernel: int, stride: int) -> tuple[int, int, int]:
    """TensorFlow's "same": the output's size, and the padding before and after."""
    out = -(-size // stride)
    padding = max((out - 1) * stride + kernel - size, 0)
    return out, padding // 2, padding - padding // 2


def padded_same(x: Tensor, kernel: int, stride: int) -> Tensor:
    """Zeros around the pictures, as TensorFlow's "same" has them."""
    (_, top, bottom), (_, left, right) = (_same(size, kernel, stride) for size in x.shape[-2:])
    return F.pad(x, [left, right, top, bottom]) if top or bottom or left or right else x


def folded(convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """The kernel and the bias of a convolution and the batch norm after it, with its statistics as they are."""
    assert norm.running_var is not None
    assert norm.running_mean is not None
    factor = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    return convolution.weight * factor[:, None, None, None], norm.bias - norm.running_mean * factor


def convolve(x: Tensor, convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> Tensor:
    """A convolution, padded like TensorFlow's "same", and the batch norm after it."""
    y, bias = convolve_and_bias(x, convolution, norm)
    return y + bias[:, None, None]


def convolve_and_bias(x: Tensor, convolution: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """The same without the bias, and the bias by itself."""
    weight, bias = folded(convolution, norm)
    kernel, stride = convolution.kernel_size[0], convolution.stride[0]
    if kernel == stride == 1:  # a matrix product, whose gradients are faster than torch's of a convolution
        return F.linear(x.permute(0, 2, 3, 1), weight[:, :, 0, 0]).permute(0, 3, 1, 2), bias
    return F.conv2d(padded_same(x, kernel, stride), weight, None, stride), bias


def clamp_convolve_clamp(
    x: Tensor, shift: Tensor | None, convolution: nn.Conv2d, norm: nn.BatchNorm2d
) -> Tensor:
    """A shift of every channel, a clamp to [0, 6], a depthwise convolution, its batch norm, and a clamp."""
    weight, bias = folded(convolution, norm)
    shift = torch.zeros_like(bias) if shift is None else shift
    stride = convolution.stride[0]
    if weight.shape[-1] > LARGEST_KERNEL or x.shape[1] % _LANES:
        return plain_middle(x, shift, weight, bias, stride)
    return _Middle.apply(channels_last(x), shift, weight, bias, stride)  # type: ignore[no-any-return]


def channels_last(x: Tensor) -> Tensor:
    """The same numbers in that layout."""
    return x.contiguous(memory_format=torch.channels_last)


def plain_middle(x: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """The middle of a block as torch computes it."""
    x = padded_same(F.relu6(x + shift[:, None, None]), weight.shape[-1], stride)
    return F.relu6(F.conv2d(x, weight, bias, stride, groups=len(weight)))


class _Middle(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, shift: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
        n, channels, height, width = x.shape
        kernel = weight.shape[-1]
        (rows, top, _), (columns, left, _) = (_same(size, kernel, stride) for size in (height, width))
        first, end = _reach(height, rows, top, kernel, stride)
        if (first, end) != _reach(width, columns, left, kernel, stride):
            first, end = 0, kernel
        ctx.shape = _Shape(
            n, height, width, channels, rows, columns, end - first, stride, top - first, left - first
        )
        ctx.stride, ctx.reach = stride, (first, end)
        y = torch.empty((n, channels, rows, columns), memory_format=torch.channels_last)
        called = layer_library()
        assert called is not None
        taps = _by_tap(weight, first, end)
        addresses = (t.data_ptr() for t in (x, shift, taps, bias, y))
        called.depthwise(ctypes.byref(ctx.shape), *addresses, torch.get_num_threads())
        ctx.save_for_backward(x, shift, weight, bias, y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, y = ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient that is differentiated itself
            return (*_with_a_graph(plain_middle, inputs, ctx.stride, g, ctx.needs_input_grad), None)
        x, shift, weight, _ = inputs
        g = channels_last(g)
        taps = _by_tap(weight, *ctx.reach)
        called, shape = layer_library(), ctypes.byref(ctx.shape)
        assert called is not None
        groups, channels = -(-len(x) // called.group(shape)), len(weight)
        gx, gw = torch.empty_like(x), torch.empty(groups, *taps.shape)
        gshift, gb = torch.empty(groups, channels), torch.empty(groups, channels)
        addresses = (t.data_ptr() for t in (x, shift, taps, y, g, gx, gshift, gw, gb))
        called.depthwise_backward(shape, *addresses, torch.get_num_threads())
        first, end = ctx.reach
        whole = torch.zeros_like(weight)
        whole[..., first:end, first:end] = gw.sum(0).t().reshape(channels, 1, end - first, end - first)
        return gx, gshift.sum(0), whole, gb.sum(0), None


def _reach(size: int, out: int, before: int, kernel: int, stride: int) -> tuple[int, int]:
    """The taps of a kernel that see more than padding: first and one past the last."""
    return max(0, before - (out - 1) * stride), min(kernel, size + before)


def _by_tap(weight: Tensor, first: int, end: int) -> Tensor:
    """``[channels, 1, k, k]`` as ``[taps, channels]``, without the taps that see nothing but padding."""
    used = weight.detach()[..., first:end, first:end]
    return used.reshape(len(weight), -1).t().contiguous()


def _with_a_graph(
    function: Callable[..., Tensor], tensors: Sequence[Tensor], stride: int, g: Tensor, needed: tuple[bool, ...]
) -> list[Tensor | None]:
    """The gradients of torch's way, which can be differentiated again."""
    asked = [t for t, need in zip(tensors, needed, strict=False) if need]
    gradients = iter(torch.autograd.grad(function(*tensors, stride), asked, g, create_graph=True))
    return [next(gradients) if need else None for need in needed[: len(tensors)]]
