"""The native path: one call of a small C library (`_native.c`) steps all float32 tensors of a group on CPU.

The library is built at the first step, in about a second (`genie_dg._c_library`). It knows nothing of torch:
it gets addresses. Without a C compiler, or with the environment variable ``GENIE_DG_NATIVE=0``, the device
path serves in its place.
"""

from __future__ import annotations

import ctypes
import functools
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from genie_dg import _c_library, _random
from genie_dg._moments import doubled
from genie_dg._options import UpdateRule

from ._local import LocalParameter
from ._update import Randomness, Scalars

_SOURCE = Path(__file__).with_name("_native.c")
CHUNK_SIZE = 65_536
"""Elements that one thread takes at a time, as in the C file."""

_DIMENSIONS = 8
"""Of the layout of a tensor that is not contiguous, as in the C file."""

_SERIAL = 1 << 15
"""Fewer elements than this are not worth a second thread."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("address", ctypes.c_void_p * 3),
        ("layout", ctypes.c_void_p),
        ("size", ctypes.c_int64),
        ("first_chunk", ctypes.c_int64),
        ("base", ctypes.c_uint32 * 2),
        ("scalars", ctypes.c_int32),
        ("grad_like_p", ctypes.c_int32),
        ("kappa", ctypes.c_float),
    )


class _Chunk(ctypes.Structure):
    _fields_ = (
        ("tensor", ctypes.c_int64),
        ("start", ctypes.c_int64),
        ("sums", ctypes.c_double * 2),
        ("live", ctypes.c_uint64 * 16),
        ("any_live", ctypes.c_int64),
    )


class _Scalars(ctypes.Structure):
    _fields_ = (("numbers", ctypes.c_float * 11), ("step", ctypes.c_uint32))


def can_serve(parameter: LocalParameter) -> bool:
    """True for dense float32 on CPU that is whole here and has one random stream."""
    p, m, v = parameter[:3]
    plain = p.device.type == "cpu" and p.layout == torch.strided and parameter.reduce is None
    floats = p.dtype == m.dtype == v.dtype == torch.float32
    return plain and floats


def can_serve_in_place(parameter: LocalParameter) -> bool:
    """True if the moments are contiguous, and the parameter is or has strides that the library can follow."""
    p, m, v = parameter[:3]
    return m.is_contiguous() and v.is_contiguous() and (p.is_contiguous() or bool(strided_layout(p)))


def strided_layout(p: Tensor) -> list[int]:
    """Number of dimensions, sizes and strides, with as few dimensions as possible.

    Empty if they are too many or if two elements may share their memory.
    """
    sizes: list[int] = []
    strides: list[int] = []
    for size, stride in zip(p.shape, p.stride(), strict=True):
        if size == 1:
            continue
        if sizes and strides[-1] == stride * size:
            sizes[-1], strides[-1] = sizes[-1] * size, stride
        else:
            sizes.append(size)
            strides.append(stride)
    by_stride = sorted(zip(strides, sizes, strict=True))
    reach = 0
    for stride, size in by_stride:
        if stride <= reach:
            return []
        reach += stride * (size - 1)
    return [len(sizes), *sizes, *strides] if len(sizes) <= _DIMENSIONS else []


class NativePlan:
    """The native path for parameters that `can_serve_in_place`.

    Args:
        ages: their step counts, relative to any one.
    """

    def __init__(
        self, rule: UpdateRule, parameters: list[LocalParameter], ages: list[int], randomness: Randomness
    ) -> None:
        function = library()
        assert function is not None
        self._step, self._threshold, self._flags = function.step, randomness.threshold, _flags(rule)
        self._sizes = [parameter.p.numel() for parameter in parameters]
        self._written = [parameter.p for parameter in parameters]
        self._layouts = {
            i: array("q", strided_layout(p)) for i, p in enumerate(self._written) if not p.is_contiguous()
        }
        self._owners = list({age: i for i, age in reversed(list(enumerate(ages)))}.values())
        places = {ages[owner]: place for place, owner in enumerate(self._owners)}
        numbers = torch.tensor([parameter.number for parameter in parameters])
        bases = _random.stream_base(randomness.seed, numbers, torch.zeros_like(numbers))
        starts = [range(0, size, CHUNK_SIZE) for size in self._sizes]
        self._chunks = (_Chunk * sum(map(len, starts)))()
        self._tensors = (_Tensor * len(parameters))()
        chunk = 0
        for i, (parameter, base) in enumerate(zip(parameters, bases.t().tolist(), strict=True)):
            tensor = self._tensors[i]
            tensor.address[:] = [t.data_ptr() for t in parameter[:3]]
            tensor.size, tensor.first_chunk, tensor.scalars = self._sizes[i], chunk, places[ages[i]]
            tensor.base[:] = base
            if i in self._layouts:
                tensor.layout = self._layouts[i].buffer_info()[0]
            for start in starts[i]:
                self._chunks[chunk].tensor, self._chunks[chunk].start = i, start
                chunk += 1
        self._scalars = (_Scalars * len(self._owners))()

    def run(self, grads: list[Tensor], scalars: list[Scalars], steps: list[int | Tensor]) -> None:
        """One step."""
        if not all(g.is_contiguous() and g.dtype == torch.float32 and not g.is_neg() for g in grads):
            grads = [g.to(torch.float32).resolve_neg() for g in grads]
            for i in self._layouts:
                self._tensors[i].grad_like_p = grads[i].stride() == self._written[i].stride()
            grads = [g if self._tensors[i].grad_like_p else g.contiguous() for i, g in enumerate(grads)]
        else:
            for i in self._layouts:
                self._tensors[i].grad_like_p = False
        for place, owner in zip(self._scalars, self._owners, strict=True):
            average = scalars[owner].average
            place.numbers[:] = [*scalars[owner].flat(), doubled(average, torch.float32)]
            place.step = int(steps[owner])
        threads = torch.get_num_threads() if sum(self._sizes) > _SERIAL else 1
        addresses = array("Q", [g.data_ptr() for g in grads])
        tables = (self._tensors, len(self._tensors), self._chunks, len(self._chunks))
        pointer = addresses.buffer_info()[0]
        self._step(*tables, pointer, self._scalars, self._flags, self._threshold, threads)
        for p in self._written:  # for autograd, which cannot see what was written
            torch.autograd.graph.increment_version(p)


def _flags(rule: UpdateRule) -> int:
    """The switches as the C file numbers them."""
    printed = rule.formulation == "algorithm1"
    switches = (rule.mask, rule.precondition, rule.noise, printed, rule.l2, rule.maximize, rule.shrink)
    return sum(1 << i for i, on in enumerate(switches) if on)


class Library(NamedTuple):
    """The functions of the C file."""

    step: Callable[..., None]
    to_one_size: Callable[..., float]
    sum_of_sizes: Callable[..., float]


def flat_alike(*tensors: Tensor) -> bool:
    """Whether tensors are float32 on the CPU and lie in memory in one dense order."""
    first = tensors[0]
    dense = first.is_contiguous() or (
        first.dim() == 4 and first.is_contiguous(memory_format=torch.channels_last)
    )
    return dense and all(
        x.dtype == torch.float32 and x.device.type == "cpu" and not x.is_neg() and x.stride() == first.stride()
        for x in tensors
    )


@functools.cache
def library() -> Library | None:
    """The library, built if need be; None where it cannot be had."""
    return _c_library.load_library(_SOURCE, _bind)


def _bind(loaded: ctypes.CDLL) -> Library:
    step, scale, sizes = loaded.genie_step, loaded.genie_to_one_size, loaded.genie_sum_of_sizes
    address, whole, short, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_float
    step.argtypes = [address, whole, address, whole, address, address, short, short, short]
    step.restype = None
    scale.argtypes = [whole, *[address] * 6, real, real, real, short]
    sizes.argtypes = [whole, address]
    scale.restype = sizes.restype = ctypes.c_double
    return Library(step, scale, sizes)
