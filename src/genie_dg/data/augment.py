r"""DomainBed's training augmentation on tensors: crop, flip, colour jitter, grayscale, for a batch at a time.

The parameters are drawn as torchvision draws them (same distributions, from a stream of our own), and applied
in torchvision's order: crop and resize, flip, the four colour changes in random order, grayscale,
normalisation.
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
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .domains import DataError

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

GROUP = 8
"""Pictures that are worked on together, and whose colour changes come in the same order."""


@dataclass(frozen=True)
class Recipe:
    """How much is changed; the defaults are DomainBed's."""

    size: int = 224
    scale: tuple[float, float] = (0.7, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    brightness: float = 0.3
    contrast: float = 0.3
    saturation: float = 0.3
    hue: float = 0.3
    gray: float = 0.1

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 < self.scale[0] <= self.scale[1] or not 0 <= self.hue <= 0.5:
            raise DataError(f"{self} is no augmentation; size must be 1 or more, scale above 0, hue 0 to 0.5.")


@dataclass(frozen=True)
class Draws:
    """What happens to each picture of a batch."""

    boxes: np.ndarray  # [n, 4]: top, left, height, width, in the pixels of the original
    flips: np.ndarray  # [n] bool
    factors: np.ndarray  # [n, 4]: brightness, contrast, saturation, hue
    orders: np.ndarray  # [n, 4]: the order of these four
    grays: np.ndarray  # [n] bool

    def order_of(self, index: int) -> list[int]:
        order: list[int] = self.orders[index].tolist()
        return order


def draw(recipe: Recipe, heights: np.ndarray, widths: np.ndarray, random: np.random.Generator) -> Draws:
    """The parameters of a batch of pictures of the given sizes."""
    n = len(heights)
    factors = np.stack(
        [
            random.uniform(max(0.0, 1 - recipe.brightness), 1 + recipe.brightness, n),
            random.uniform(max(0.0, 1 - recipe.contrast), 1 + recipe.contrast, n),
            random.uniform(max(0.0, 1 - recipe.saturation), 1 + recipe.saturation, n),
            random.uniform(-recipe.hue, recipe.hue, n),
        ],
        axis=1,
    )
    return Draws(
        boxes=crop_boxes(recipe, heights, widths, random),
        flips=random.random(n) < recipe.flip,
        factors=factors,
        orders=np.repeat(random.permuted(np.tile(np.arange(4), (-(-n // GROUP), 1)), axis=1), GROUP, axis=0)[
            :n
        ],
        grays=random.random(n) < recipe.gray,
    )


def crop_boxes(
    recipe: Recipe, heights: np.ndarray, widths: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """RandomResizedCrop's boxes: of ten tries the first that fits, otherwise the centre."""
    n, tries = len(heights), 10
    area = (heights * widths)[:, None] * random.uniform(*recipe.scale, (n, tries))
    ratio = np.exp(random.uniform(math.log(recipe.ratio[0]), math.log(recipe.ratio[1]), (n, tries)))
    w, h = np.rint(np.sqrt(area * ratio)).astype(int), np.rint(np.sqrt(area / ratio)).astype(int)
    fits = (w > 0) & (w <= widths[:, None]) & (h > 0) & (h <= heights[:, None])
    first, rows = fits.argmax(1), np.arange(n)
    w, h = w[rows, first], h[rows, first]
    lost = ~fits.any(1)
    if lost.any():
        shape = widths / heights
        low, high = recipe.ratio
        w = np.where(lost, np.where(shape > high, np.rint(heights * high), widths), w).astype(int)
        h = np.where(lost, np.where(shape < low, np.rint(widths / low), heights), h).astype(int)
    top = np.floor(random.random(n) * (heights - h + 1)).astype(int)
    left = np.floor(random.random(n) * (widths - w + 1)).astype(int)
    top, left = np.where(lost, (heights - h) // 2, top), np.where(lost, (widths - w) // 2, left)
    return np.stack([top, left, h, w], axis=1)


def slope_and_shift(normalise: bool) -> tuple[Tensor, Tensor]:
    """What takes values from 0 to 255 to what a network sees, in one multiplication and one addition."""
    mean = torch.tensor(IMAGENET_MEAN if normalise else (0.0,) * 3).view(3, 1, 1)
    std = torch.tensor(IMAGENET_STD if normalise else (1.0,) * 3).view(3, 1, 1)
    return 1 / (255 * std), -mean / std


def stored_box(shape: Sequence[int], box: np.ndarray, scale: np.ndarray) -> tuple[slice, slice]:
    """The rows and columns of a stored picture that show a box of the original."""
    top, left = (round(float(b) * float(s)) for b, s in zip(box[:2], scale, strict=True))
    h = max(1, min(round(float(box[2] * scale[0])), shape[0] - top))
    w = max(1, min(round(float(box[3] * scale[1])), shape[1] - left))
    return slice(top, top + h), slice(left, left + w)


def hue_offsets(turn: Tensor) -> Tensor:
    """How far each channel is moved along the hue circle, from -3 to 3; a turn goes in Pillow's 255 steps."""
    start = torch.tensor((0.0, -2.0, 2.0)).view(3, 1, 1)
    return (start + 6 / 255 * (255 * turn).trunc() + 3).remainder(6) - 3


class Painter:
    """Applies `Draws` to a few pictures at a time, in memory that is used again and again."""

    def __init__(self, recipe: Recipe, normalise: bool = True) -> None:
        self.recipe = recipe
        shape = (GROUP, 3, recipe.size, recipe.size)
        self._wide = torch.empty(shape)
        self._planes = [torch.empty(GROUP, 1, *shape[2:]) for _ in range(4)]
        self._slope, self._shift = slope_and_shift(normalise)

    @torch.no_grad()
    def paint(
        self, pictures: Sequence[Tensor], draws: Draws, first: int, out: Tensor, scales: np.ndarray
    ) -> None:
        """Write a group of augmented pictures.

        Args:
            pictures: at most `GROUP` of uint8 ``[height, width, 3]``.
            draws: of the batch.
            first: which picture of the batch the first one is, a multiple of `GROUP`.
            out: float32 ``[pictures, 3, size, size]``.
            scales: ``[pictures, 2]``, stored height and width over the original's, 1 where nothing was shrunk.
        """
        for k, picture in enumerate(pictures):
            flip = bool(draws.flips[first + k])
            out[k].copy_(self._cropped(picture, draws.boxes[first + k], scales[k], flip))
        factors = torch.from_numpy(draws.factors[first : first + len(pictures)]).float().view(-1, 4, 1, 1, 1)
        for change in draws.order_of(first):
            (self._brightness, self._contrast, self._saturation, self._hue)[change](out, factors[:, change])
        for k in np.flatnonzero(draws.grays[first : first + len(pictures)]).tolist():
            out[k : k + 1].copy_(self._gray(out[k : k + 1]).round_())
        out.mul_(self._slope).add_(self._shift)

    def _cropped(self, picture: Tensor, box: np.ndarray, scale: np.ndarray, flip: bool) -> Tensor:
        part = picture[stored_box(picture.shape, box, scale)]
        part = (part.flip(1) if flip else part).permute(2, 0, 1)[None]
        size = (self.recipe.size, self.recipe.size)
        return F.interpolate(part, size=size, mode="bilinear", antialias=True)[0]

    def _plane(self, index: int, x: Tensor) -> Tensor:
        return self._planes[index][: len(x)]

    def _gray(self, x: Tensor) -> Tensor:
        gray = torch.mul(x[:, 0:1], 0.299, out=self._plane(0, x))
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
        top, low, place, side = (self._plane(k, x) for k in range(4))
        torch.maximum(r, g, out=top)
        torch.maximum(top, b, out=top)
        torch.minimum(r, g, out=low)
        torch.minimum(low, b, out=low)
        chroma = torch.sub(top, low, out=low)
        torch.add(top, r, out=place).sub_(g).sub_(b)
        torch.add(chroma, 1e-12, out=side)  # of a gray, chroma and place are both 0
        place.div_(side).add_(1)
        torch.copysign(place, torch.sub(b, g, out=side), out=place)
        weight = torch.add(place, hue_offsets(turn), out=self._wide[: len(x)])
        weight.abs_().sub_(3).abs_().clamp_(
            1, 2
        )  # one more than in the formula, which the next line takes back
        torch.sub(top.add_(chroma), weight.mul_(chroma), out=x)
        x.round_()
