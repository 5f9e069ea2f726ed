"""The same augmentation through OpenCV: the fastest on CPU, and an option because its roundings are its own.

Every operation works on bytes and lets go of Python's lock, so threads scale. Parameters, order and formulas
are those of `augment`. Differs from it in: hue is rounded to 256 steps, as by Pillow; enlarging uses OpenCV's
bilinear filter; a crop that must shrink goes through torch's antialiased one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from .augment import Draws, Recipe, slope_and_shift, stored_box
from .domains import DataError


class OpenCVPainter:
    """Applies `Draws` to pictures, one at a time; the methods are those of `augment.Painter`."""

    def __init__(self, recipe: Recipe, normalise: bool = True) -> None:
        try:
            import cv2
        except ModuleNotFoundError as error:
            raise DataError(
                "engine='opencv' needs opencv-python-headless, not installed here; "
                'run pip install "genie-dg[bench]" or take engine="torch".'
            ) from error
        cv2.setNumThreads(0)  # each of our threads does whole pictures
        self.cv2, self.recipe = cv2, recipe
        self._slope, self._shift = slope_and_shift(normalise)
        size = recipe.size
        # Written again and again: memory of every result would otherwise be asked for anew.
        self._here, self._there, self._gray3 = (np.empty((size, size, 3), np.uint8) for _ in range(3))
        self._gray1 = np.empty((size, size), np.uint8)
        self._planes = torch.empty(3, size, size, dtype=torch.uint8)

    @torch.no_grad()
    def paint(
        self, pictures: Sequence[Tensor], draws: Draws, first: int, out: Tensor, scales: np.ndarray
    ) -> None:
        """See `augment.Painter.paint`."""
        for k, picture in enumerate(pictures):
            pixels = self._painted(picture.numpy(), draws, first + k, scales[k])
            self.cv2.split(pixels, list(self._planes.numpy()))
            out[k].copy_(self._planes)
        out.mul_(self._slope).add_(self._shift)

    def _painted(self, picture: np.ndarray, draws: Draws, index: int, scale: np.ndarray) -> Any:
        part = picture[stored_box(picture.shape, draws.boxes[index], scale)]
        x = self._resized(self.cv2.flip(part, 1) if draws.flips[index] else part)
        changes = (self._brightness, self._contrast, self._saturation, self._hue)
        for change in draws.order_of(index):
            x = changes[change](x, float(draws.factors[index, change]))
        return self._gray(x) if draws.grays[index] else x

    def _resized(self, part: np.ndarray) -> Any:
        size = self.recipe.size
        if max(part.shape[:2]) <= size:
            return self.cv2.resize(part, (size, size), dst=self._here, interpolation=self.cv2.INTER_LINEAR)
        planes = torch.from_numpy(part).permute(2, 0, 1)[None]
        small = F.interpolate(planes, size=(size, size), mode="bilinear", antialias=True)[0]
        np.copyto(self._here, small.permute(1, 2, 0).numpy())
        return self._here

    def _gray(self, x: Any) -> Any:
        gray = self.cv2.cvtColor(x, self.cv2.COLOR_RGB2GRAY, dst=self._gray1)
        return self.cv2.cvtColor(gray, self.cv2.COLOR_GRAY2RGB, dst=self._gray3)

    def _blended(self, x: Any, factor: float, plus: float) -> Any:
        """Give factor x + plus, cut down to whole numbers from 0 to 255; OpenCV rounds: half a level goes."""
        return self.cv2.addWeighted(x, factor, x, 0.0, plus - 0.4999, dst=x)

    def _brightness(self, x: Any, factor: float) -> Any:
        return self._blended(x, factor, 0.0)

    def _contrast(self, x: Any, factor: float) -> Any:
        gray = self.cv2.cvtColor(x, self.cv2.COLOR_RGB2GRAY, dst=self._gray1)
        middle = np.floor(self.cv2.mean(gray)[0] + 0.5)
        return self._blended(x, factor, (1 - factor) * middle)

    def _saturation(self, x: Any, factor: float) -> Any:
        return self.cv2.addWeighted(x, factor, self._gray(x), 1 - factor, -0.4999, dst=x)

    def _hue(self, x: Any, turn: float) -> Any:
        circle = self.cv2.cvtColor(x, self.cv2.COLOR_RGB2HSV_FULL, dst=self._there)
        circle[..., 0] += np.uint8(int(turn * 255) % 256)  # bytes wrap around, as hue does
        return self.cv2.cvtColor(circle, self.cv2.COLOR_HSV2RGB_FULL, dst=x)
