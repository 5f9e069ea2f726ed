r"""DomainBed's training augmentation on tensors: crop, flip, colour jitter, grayscale, for a batch at a time.

The parameters are drawn as torchvision draws them (same distributions, from a stream of our own) and applied in
its order: crop and resize, flip, the four colour changes in random order, grayscale, normalisation.
Values are numbers from 0 to 255, cut down to whole ones after each change, as Pillow's are.

The change of hue needs no comparison. With :math:`M` and :math:`m` the largest and smallest channel and
:math:`c = M - m`, the place of a colour on the hue circle (circumference 6, measured from cyan) is

.. math::
    u = \pm\Bigl(1 + \frac{M + R - G - B}{c}\Bigr), \quad \text{with the sign of } B - G,

and the channel that lies :math:`o` further along the circle becomes
:math:`M - c\,\mathrm{clamp}(||u + o| - 3| - 1, 0, 1)`.

Differs from torchvision on Pillow pictures in: eight neighbours of a batch share the (random) order of their
colour changes, since they are computed together; the hue of a pixel is not rounded to 256 steps; resizing
rounds differently. With the same parameters pixels of PACS differ by 0.2 levels of 255 on average (measured on
100 pictures), and random saturated colours by less than 1.5 (``tests/data/test_augment.py`` holds the bound).

The engine ``"opencv"`` is the fastest on CPU: its operations work on bytes and release Python's lock. Differs
from ``"torch"`` in: hue is rounded to 256 steps, as by Pillow; enlarging uses OpenCV's bilinear filter; a crop
that must shrink goes through torch's antialiased one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from genie_dg.check import MissingPackage, number, one_of, whole_number

from .domains import DataError
from .place import Array, Scale, opencv

GROUP = 8
"""Pictures that are worked on together, and whose colour changes come in the same order."""


@dataclass(frozen=True)
class Recipe:
    """How much is changed, and by which engine; the defaults are DomainBed's."""

    size: int = 224
    scale: tuple[float, float] = (0.7, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    brightness: float = 0.3
    contrast: float = 0.3
    saturation: float = 0.3
    hue: float = 0.3
    gray: float = 0.1
    engine: Literal["torch", "opencv"] = "torch"

    def __post_init__(self) -> None:
        whole_number("size", self.size, error=DataError)
        number("scale[0]", self.scale[0], 0, self.scale[1], excluding=(0,), error=DataError)
        number("hue", self.hue, 0, 0.5, error=DataError)
        one_of("engine", self.engine, PAINTERS, DataError)

    def painter(self) -> Painter | OpenCVPainter:
        """What applies the recipe to pictures, with memory of its own: one for each thread."""
        return PAINTERS[self.engine](self)


@dataclass(frozen=True)
class Draws:
    """What happens to each picture of a batch."""

    boxes: Array  # [n, 4]: top, left, height, width, in the pixels of the original
    flips: Array  # [n] bool
    factors: Array  # [n, 4]: brightness, contrast, saturation, hue
    orders: Array  # [n, 4]: the order of these four
    grays: Array  # [n] bool


def draw_changes(recipe: Recipe, heights: Array, widths: Array, random: np.random.Generator) -> Draws:
    """The parameters of a batch of pictures of the given sizes."""
    n = len(heights)
    spreads = (recipe.brightness, recipe.contrast, recipe.saturation)
    factors = [random.uniform(max(0.0, 1 - spread), 1 + spread, n) for spread in spreads]
    factors.append(random.uniform(-recipe.hue, recipe.hue, n))
    boxes, flips = crop_boxes(recipe, heights, widths, random), random.random(n) < recipe.flip
    orders = random.permuted(np.tile(np.arange(4), (-(-n // GROUP), 1)), axis=1)  # one for each group
    grays = random.random(n) < recipe.gray
    return Draws(boxes, flips, np.stack(factors, axis=1), np.repeat(orders, GROUP, axis=0)[:n], grays)


def crop_boxes(recipe: Recipe, heights: Array, widths: Array, random: np.random.Generator) -> Array:
    """RandomResizedCrop's boxes: of ten tries the first that fits, otherwise the centre."""
    n, tries = len(heights), 10
    area = (heights * widths)[:, None] * random.uniform(*recipe.scale, (n, tries))
    ratio = np.exp(random.uniform(math.log(recipe.ratio[0]), math.log(recipe.ratio[1]), (n, tries)))
    w, h = np.rint(np.sqrt(area * ratio)).astype(int), np.rint(np.sqrt(area / ratio)).astype(int)
    fits = (w > 0) & (w <= widths[:, None]) & (h > 0) & (h <= heights[:, None])
    first, rows = fits.argmax(1), np.arange(n)
    w, h = w[rows, first], h[rows, first]
    lost = ~fits.any(1)
    shape, (low, high) = widths / heights, recipe.ratio
    w = np.where(lost, np.where(shape > high, np.rint(heights * high), widths), w).astype(int)
    h = np.where(lost, np.where(shape < low, np.rint(widths / low), heights), h).astype(int)
    top = np.floor(random.random(n) * (heights - h + 1)).astype(int)
    left = np.floor(random.random(n) * (widths - w + 1)).astype(int)
    top, left = np.where(lost, (heights - h) // 2, top), np.where(lost, (widths - w) // 2, left)
    return np.stack([top, left, h, w], axis=1)


def stored_box(shape: Sequence[int], box: Array, scale: Array) -> tuple[slice, slice]:
    """The rows and columns of a stored picture that show a box of the original."""
    top, left = (round(float(b) * float(s)) for b, s in zip(box[:2], scale, strict=True))
    h = max(1, min(round(float(box[2] * scale[0])), shape[0] - top))
    w = max(1, min(round(float(box[3] * scale[1])), shape[1] - left))
    return slice(top, top + h), slice(left, left + w)


def resized(picture: Tensor, size: int) -> Tensor:
    """A picture ``[height, width, 3]`` as planes ``[3, size, size]``, antialiased where it shrinks."""
    planes = picture.permute(2, 0, 1)[None]
    return F.interpolate(planes, size=(size, size), mode="bilinear", antialias=True)[0]


def hue_offsets(turn: Tensor) -> Tensor:
    """How far each channel is moved along the hue circle, from -3 to 3; a turn goes in Pillow's 255 steps."""
    start = torch.tensor((0.0, -2.0, 2.0)).view(3, 1, 1)
    return (start + 6 / 255 * (255 * turn).trunc() + 3).remainder(6) - 3


class Painter:
    """Applies `Draws` to a few pictures at a time, in memory that is used again and again."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self._wide = torch.empty(GROUP, 3, recipe.size, recipe.size)
        self._planes = [torch.empty(GROUP, 1, recipe.size, recipe.size) for _ in range(4)]
        self._values = torch.empty(GROUP, 3, recipe.size, recipe.size)
        self._scale = Scale(folded=True)

    @torch.no_grad()
    def paint(self, pictures: Sequence[Tensor], draws: Draws, first: int, out: Tensor, scales: Array) -> None:
        """Write a group of augmented pictures.

        Args:
            pictures: at most `GROUP` of uint8 ``[height, width, 3]``.
            draws: of the batch.
            first: which picture of the batch the first one is, a multiple of `GROUP`.
            out: ``[pictures, 3, size, size]``; float32 for what a network sees, uint8 for whole numbers.
            scales: ``[pictures, 2]``, stored height and width over the original's, 1 where nothing was shrunk.
        """
        values = self._values[: len(pictures)]
        for k, picture in enumerate(pictures):
            part = picture[stored_box(picture.shape, draws.boxes[first + k], scales[k])]
            values[k].copy_(resized(part.flip(1) if draws.flips[first + k] else part, self.recipe.size))
        factors = torch.from_numpy(draws.factors[first : first + len(pictures)]).float().view(-1, 4, 1, 1, 1)
        for change in draws.orders[first].tolist():
            (self._brightness, self._contrast, self._saturation, self._hue)[change](values, factors[:, change])
        for k in np.flatnonzero(draws.grays[first : first + len(pictures)]).tolist():
            values[k : k + 1].copy_(self._gray(values[k : k + 1]).round_())
        out.copy_(values if out.dtype == torch.uint8 else self._scale.apply_(values))

    def _gray(self, x: Tensor) -> Tensor:
        gray = torch.mul(x[:, 0:1], 0.299, out=self._planes[0][: len(x)])
        return gray.add_(x[:, 1:2], alpha=0.587).add_(x[:, 2:3], alpha=0.114)

    def _brightness(self, x: Tensor, factor: Tensor) -> None:
        x.mul_(factor).clamp_(0, 255).floor_()

    def _contrast(self, x: Tensor, factor: Tensor) -> None:
        middle = self._gray(x).mean((1, 2, 3), keepdim=True).add_(0.5).floor_()
        x.mul_(factor).add_(middle * (1 - factor)).clamp_(0, 255).floor_()

    def _saturation(self, x: Tensor, factor: Tensor) -> None:
        gray = self._gray(x).round_().mul_(1 - factor)
        x.mul_(factor).add_(gray).clamp_(0, 255).floor_()

    def _hue(self, x: Tensor, turn: Tensor) -> None:
        """See the formula of this module; a turn of 1 goes round the circle once."""
        r, g, b = (x[:, k : k + 1] for k in range(3))
        top, low, place, side = (plane[: len(x)] for plane in self._planes)
        torch.maximum(torch.maximum(r, g, out=top), b, out=top)
        torch.minimum(torch.minimum(r, g, out=low), b, out=low)
        chroma = torch.sub(top, low, out=low)
        torch.add(top, r, out=place).sub_(g).sub_(b)
        torch.add(chroma, 1e-12, out=side)  # of a gray, chroma and place are both 0
        place.div_(side).add_(1)
        torch.copysign(place, torch.sub(b, g, out=side), out=place)
        weight = torch.add(place, hue_offsets(turn), out=self._wide[: len(x)])
        weight.abs_().sub_(3).abs_().clamp_(1, 2)  # one more than in the formula; the next line takes it back
        torch.sub(top.add_(chroma), weight.mul_(chroma), out=x)
        x.round_()


class OpenCVPainter:
    """Applies `Draws` to pictures; the methods are those of `Painter`.

    Pictures of a group lie below one another as one tall picture, so that what is the same for all of them is
    one call: every call gives Python's lock away and has to get it back.
    """

    def __init__(self, recipe: Recipe) -> None:
        if opencv() is None:
            raise MissingPackage(
                "engine='opencv', the usual one, needs opencv-python-headless, which is not installed; run "
                'pip install "genie-dg[bench]", or take engine="torch" (genie-dg train --exact).'
            )
        self.cv2, self.recipe, self._scale = opencv(), recipe, Scale(folded=True)
        size = recipe.size
        # Written again and again: memory of every result would otherwise be asked for anew.
        self._pictures, self._other = (np.empty((GROUP, size, size, 3), np.uint8) for _ in range(2))
        self._grays = np.empty((GROUP, size, size), np.uint8)
        self._turns = np.zeros((GROUP, 1, size, 3), np.uint8)
        self._planes = torch.empty(3, size, size, dtype=torch.uint8)

    @torch.no_grad()
    def paint(self, pictures: Sequence[Tensor], draws: Draws, first: int, out: Tensor, scales: Array) -> None:
        """See `Painter.paint`; channels last is the layout of least work."""
        x, group = self._pictures[: len(pictures)], slice(first, first + len(pictures))
        for k, picture in enumerate(pictures):
            part = picture.numpy()[stored_box(picture.shape, draws.boxes[first + k], scales[k])]
            self._resize(self.cv2.flip(part, 1) if draws.flips[first + k] else part, x[k])
        changes = (self._brightness, self._contrast, self._saturation, self._hue)
        for change in draws.orders[first].tolist():
            changes[change](x, draws.factors[group, change].tolist())
        for k in np.flatnonzero(draws.grays[group]).tolist():
            self._gray(x[k : k + 1], x[k : k + 1])
        self._write(x, out)

    def _write(self, x: Array, out: Tensor) -> None:
        last = out.permute(0, 2, 3, 1)
        if last.is_contiguous():
            last.copy_(torch.from_numpy(x))
        else:
            for picture, planes in zip(x, out, strict=True):
                self.cv2.split(picture, list(self._planes.numpy()))
                planes.copy_(self._planes)
        if out.dtype != torch.uint8:
            self._scale.apply_(out)

    def _resize(self, part: Array, out: Array) -> None:
        size = self.recipe.size
        if max(part.shape[:2]) <= size:
            self.cv2.resize(part, (size, size), dst=out, interpolation=self.cv2.INTER_LINEAR)
        else:
            np.copyto(out, resized(torch.from_numpy(part), size).permute(1, 2, 0).numpy())

    def _convert(self, x: Array, code: int, out: Array) -> Array:
        """Change the colours of a group in one call."""
        self.cv2.cvtColor(tall(x), code, dst=tall(out))
        return out

    def _gray(self, x: Array, out: Array) -> Array:
        gray = self._convert(x, self.cv2.COLOR_RGB2GRAY, self._grays[: len(x)])
        return self._convert(gray, self.cv2.COLOR_GRAY2RGB, out)

    def _brightness(self, x: Array, factors: list[float]) -> None:
        for picture, factor in zip(x, factors, strict=True):
            self._blend(picture, factor, 0.0)

    def _contrast(self, x: Array, factors: list[float]) -> None:
        grays = self._convert(x, self.cv2.COLOR_RGB2GRAY, self._grays[: len(x)])
        for picture, gray, factor in zip(x, grays, factors, strict=True):
            self._blend(picture, factor, (1 - factor) * math.floor(self.cv2.mean(gray)[0] + 0.5))

    def _blend(self, picture: Array, factor: float, plus: float) -> None:
        """Give factor x + plus, cut down to whole numbers from 0 to 255; OpenCV rounds: half a level goes."""
        self.cv2.addWeighted(picture, factor, picture, 0.0, plus - 0.4999, dst=picture)

    def _saturation(self, x: Array, factors: list[float]) -> None:
        grays = self._gray(x, self._other[: len(x)])
        for picture, gray, factor in zip(x, grays, factors, strict=True):
            self.cv2.addWeighted(picture, factor, gray, 1 - factor, -0.4999, dst=picture)

    def _hue(self, x: Array, turns: list[float]) -> None:
        circle = self._convert(x, self.cv2.COLOR_RGB2HSV_FULL, self._other[: len(x)])
        self._turns[: len(x), 0, :, 0] = np.array([[int(turn * 255) % 256] for turn in turns])
        rows = circle.reshape(len(x), self.recipe.size, -1)
        np.add(rows, self._turns[: len(x)].reshape(len(x), 1, -1), out=rows)  # bytes wrap around, as hue does
        self._convert(circle, self.cv2.COLOR_HSV2RGB_FULL, x)


def tall(pictures: Array) -> Array:
    """Pictures as one, below one another."""
    return pictures.reshape(-1, *pictures.shape[2:])


PAINTERS: dict[str, type[Painter] | type[OpenCVPainter]] = {"torch": Painter, "opencv": OpenCVPainter}
"""What augments, by name."""
