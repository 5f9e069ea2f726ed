"""How bytes become what a network sees, where batches go, and the threads that work on pictures.

Two rules take whole numbers from 0 to 255 to what a network sees. Evaluation divides by 255, subtracts the mean
and divides by the deviation, with torchvision's roundings; for augmented pictures one multiplication and one
addition do. Both are operations on any device.

For a graphics card, pictures travel as bytes, a quarter of the size, through memory that the card reads while
the network works. They are scaled there, by operations that IEEE 754 rounds, so the bits are those of the CPU.

Torch splits every operation over all cores by default. For pictures that is the wrong grain: an operation takes
microseconds, and when another process holds one of the cores each of them waits for it, milliseconds at times.
Here each thread does whole pictures by itself; decoding, resizing and arithmetic release Python's lock.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier, local
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from genie_dg.facts import IMAGENET_MEAN, IMAGENET_STD
from genie_dg.runtime import cores, keep_memory

from .domains import Domain, TensorDomain

Array: TypeAlias = "np.ndarray[Any, Any]"
LabelledBatch: TypeAlias = tuple[Tensor, Tensor]
_ItemT = TypeVar("_ItemT")
_ResultT = TypeVar("_ResultT")


def is_normalised(domain: Domain, channels: int) -> bool:
    """Whether samples are normalised with ImageNet's mean and deviation before a network sees them.

    Pictures of three channels are; other numbers of channels, and samples that are not pictures, are not.
    """
    return channels == len(IMAGENET_MEAN) and not (isinstance(domain, TensorDomain) and domain.as_is)


def as_rgb(sample: Tensor) -> Image.Image:
    """A tensor ``[channels, height, width]`` as an RGB picture to look at.

    One channel is grey, two are red and green, of more the first three count. Floating point is taken as 0 to
    1; where it goes beyond, as normalised images do, it is stretched from its lowest to its highest value.

    Example:
        >>> as_rgb(torch.tensor([[[255]], [[0]]], dtype=torch.uint8)).getpixel((0, 0))
        (255, 0, 0)
    """
    pixels = sample.detach().cpu()
    if pixels.dtype != torch.uint8:
        pixels = pixels.to(torch.float64)
        low, high = pixels.min(), pixels.max()
        if low < 0 or high > 1:
            pixels = (pixels - low) / (high - low).clamp(min=1e-12)
        pixels = (pixels * 255).round().to(torch.uint8)
    if len(pixels) == 1:
        pixels = pixels.expand(3, -1, -1)
    elif len(pixels) == 2:
        pixels = torch.cat([pixels, torch.zeros_like(pixels[:1])])
    return Image.fromarray(pixels[:3].permute(1, 2, 0).contiguous().numpy())


@dataclass(frozen=True)
class Scale:
    """From samples to what a network sees.

    Args:
        normalise: with ImageNet's mean and deviation (three channels only).
        folded: one multiplication and one addition in place of torchvision's division, subtraction, division.
    """

    normalise: bool = True
    folded: bool = False

    @classmethod
    def of(cls, domain: Domain) -> Scale:
        """What the samples of a domain need."""
        return cls(is_normalised(domain, len(IMAGENET_MEAN)))

    def __call__(self, samples: Tensor) -> Tensor:
        """Samples ``[n, channels, height, width]`` as float32, bytes from 0 to 1; normalised if they shall be.

        May write into samples that are float32.
        """
        return self.apply_(samples.float(), samples.dtype == torch.uint8)

    def apply_(self, x: Tensor, bytes_: bool = True) -> Tensor:
        """Scale in place; ``bytes_``: the values go from 0 to 255."""
        last = x.dim() == 4 and x.shape[1] == 3 and x.permute(0, 2, 3, 1).is_contiguous()
        # Rows of whole pixels: an inner loop over three channels would take many times as long.
        values = x.permute(0, 2, 3, 1).flatten(2) if last else x
        channels = x.shape[-3] if x.dim() > 2 else 0
        for name, constant in _operations(self, bytes_, channels, x.shape[-1] if last else 0, x.device):
            getattr(values, name)(constant)
        return x


@functools.lru_cache(maxsize=64)
def _operations(
    scale: Scale, bytes_: bool, channels: int, width: int, device: torch.device
) -> list[tuple[str, Tensor]]:
    """Operations in place and their constants, for planes or for rows of ``width`` pixels.

    Constants are tensors of the device: by a number, CUDA would multiply with the inverse instead of dividing.
    """
    full = torch.full((3 if channels == 3 else 1,), 255.0)
    mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
    normalise = scale.normalise and channels == 3
    if scale.folded:
        operations = [("mul_", 1 / (full * std if normalise else full))]
        operations += [("add_", -mean / std)] if normalise else []
    else:
        operations = [("div_", full)] if bytes_ else []
        operations += [("sub_", mean), ("div_", std)] if normalise else []
    return [(name, (c.repeat(width) if width else c.view(-1, 1, 1)).to(device)) for name, c in operations]


@dataclass(frozen=True)
class Destination:
    """Where the network gets its batches.

    Args:
        device: where it is.
        layout: of images in memory.
        as_bytes: pictures travel as bytes and are scaled on the device.
    """

    device: torch.device = torch.device("cpu")  # noqa: RUF009  # immutable
    layout: torch.memory_format = torch.contiguous_format
    as_bytes: bool = False

    @classmethod
    def of(cls, device: torch.device, layout: torch.memory_format = torch.contiguous_format) -> Destination:
        """Bytes travel wherever there is a way to go."""
        return cls(device, layout, device.type != "cpu")

    def empty(self, *shape: int) -> Tensor:
        """Memory for a batch of pictures before it travels."""
        kind = torch.uint8 if self.as_bytes else torch.float32
        pinned = self.device.type == "cuda"
        return torch.empty(shape, dtype=kind, pin_memory=pinned, memory_format=self.layout)

    def brought(self, samples: Tensor, labels: Tensor, scale: Scale | None = None) -> LabelledBatch:
        """A batch on the device and in the layout.

        Args:
            samples: of any kind; other samples than images have no layout.
            labels: of the samples.
            scale: for samples that are not yet scaled.
        """
        quick = samples.is_pinned()
        images = (samples if samples.dtype == torch.uint8 else samples.float()).to(
            self.device, non_blocking=quick
        )
        images = images if scale is None else scale(images)
        images = images.contiguous(memory_format=self.layout) if images.dim() == 4 else images
        return images, labels.to(self.device)


@functools.cache
def opencv() -> Any:
    """OpenCV where it is installed, told to leave threads to us: each of ours does whole pictures."""
    try:
        import cv2
    except ModuleNotFoundError:
        return None
    cv2.setNumThreads(0)
    return cv2


class Workers:
    """A pool of threads; ``mine(owner, make)`` gives each thread an object of its own for each owner."""

    def __init__(self, count: int | None = None) -> None:
        self.count = cores() if count is None else count
        self._own = local()
        self._pool = ThreadPoolExecutor(self.count)
        usual = torch.get_num_threads()
        barrier = Barrier(self.count)

        def use_one_thread(_: int) -> None:
            barrier.wait()  # every thread takes part once
            torch.get_num_threads()  # a thread's first look sets the usual number; after it ours stays
            torch.set_num_threads(1)

        list(self._pool.map(use_one_thread, range(self.count)))
        # The number belongs to the calling thread, but new threads (autograd's too) start with the last one.
        torch.set_num_threads(usual)

    def map(self, work: Callable[[_ItemT], _ResultT], items: Iterable[_ItemT]) -> list[_ResultT]:
        """The results in order; the first error is raised."""
        return list(self._pool.map(work, items))

    def mine(self, owner: object, make: Callable[[], Any]) -> Any:
        """This thread's own object for an owner, made at its first call and dropped with the owner."""
        if not hasattr(self._own, "objects"):
            self._own.objects = WeakKeyDictionary()
        if owner not in self._own.objects:
            self._own.objects[owner] = make()
        return self._own.objects[owner]


@functools.cache
def shared_workers() -> Workers:
    """The pool that all loaders use: a small number of threads, whose memory stays warm."""
    keep_memory()
    return Workers()
