"""The augmentation against torchvision: the same parameters, the same pixels; the same distributions."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats
from torchvision import transforms as T
from torchvision.transforms import functional as TF

from genie_dg.data.augment import GROUP, PAINTERS, Draws, Recipe, crop_boxes, draw_changes
from genie_dg.data.domains import DataError
from genie_dg.facts import IMAGENET_MEAN, IMAGENET_STD
from tests.data.pictures import pixels

CHANGES = (TF.adjust_brightness, TF.adjust_contrast, TF.adjust_saturation, TF.adjust_hue)


def torchvision_twin(picture: Image.Image, draws: Draws, i: int, size: int) -> torch.Tensor:
    """The same parameters through torchvision's functions on Pillow pictures."""
    top, left, h, w = draws.boxes[i].tolist()
    out = TF.resized_crop(picture, top, left, h, w, [size, size])
    out = TF.hflip(out) if draws.flips[i] else out
    for change in draws.orders[i].tolist():
        out = CHANGES[change](out, float(draws.factors[i, change]))
    out = TF.rgb_to_grayscale(out, 3) if draws.grays[i] else out
    return TF.normalize(TF.to_tensor(out), IMAGENET_MEAN, IMAGENET_STD)


@pytest.mark.parametrize(("height", "width"), [(64, 64), (97, 60), (200, 260)])
@pytest.mark.parametrize("engine", PAINTERS)
def test_the_same_parameters_give_the_same_pixels(height: int, width: int, engine: str) -> None:
    """Stated tolerance for random saturated colours: 1.5 levels of 255 on average, 99 % within eight."""
    recipe, n = Recipe(size=96), 24
    random = np.random.default_rng(height)
    painter, out = PAINTERS[engine](recipe), torch.empty(n, 3, 96, 96)
    draws = draw_changes(recipe, np.full(n, height), np.full(n, width), random)
    images = [pixels(i, height, width) for i in range(n)]
    differences = []
    for first in range(0, n, GROUP):
        group = [torch.from_numpy(image.copy()) for image in images[first : first + GROUP]]
        painter.paint(group, draws, first, out[first : first + GROUP], np.ones((len(group), 2)))
    for i in range(n):
        twin = torchvision_twin(Image.fromarray(images[i]), draws, i, 96)
        levels = (out[i] - twin) * torch.tensor(IMAGENET_STD).view(3, 1, 1) * 255
        differences.append(levels.abs())
        assert float(levels.abs().mean()) < 3.0
        assert abs(float(levels.mean())) < 0.8  # no drift in brightness
    every = torch.stack(differences).flatten()
    assert float(every.mean()) < 1.5
    assert float(every.kthvalue(int(0.99 * len(every))).values) <= 8.0


@pytest.mark.parametrize("change", range(4))
@pytest.mark.parametrize("factor", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("engine", PAINTERS)
def test_each_change_alone(change: int, factor: float, engine: str) -> None:
    """At the ends of its range and in the middle, exact but for rounding; hue is rounded to 1/256 by Pillow."""
    value = 1 + 0.3 * factor if change < 3 else 0.3 * factor
    image = pixels(7, 64, 64)
    recipe = Recipe(size=64, scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0, gray=0.0)
    draws = draw_changes(recipe, np.array([64]), np.array([64]), np.random.default_rng(0))
    factors = np.array([[1.0, 1.0, 1.0, 0.0]])
    factors[0, change] = value
    draws = dataclasses.replace(draws, factors=factors)
    out = torch.empty(1, 3, 64, 64, dtype=torch.uint8)
    PAINTERS[engine](recipe).paint([torch.from_numpy(image.copy())], draws, 0, out, np.ones((1, 2)))
    twin = np.asarray(CHANGES[change](Image.fromarray(image), value)).transpose(2, 0, 1)
    levels = np.abs(out[0].numpy().astype(float) - twin)
    assert levels.max() <= (
        2 if change < 3 and engine == "torch" else 12
    )  # a turn of 0 through OpenCV rounds, too
    assert levels.mean() <= (0.1 if change < 3 and engine == "torch" else 1.5)


@pytest.mark.parametrize(("height", "width"), [(100, 100), (60, 240), (240, 30)])
def test_boxes_are_distributed_as_torchvisions(height: int, width: int) -> None:
    """Kolmogorov-Smirnov against 3000 of torchvision's boxes; long pictures use the fallback."""
    torch.manual_seed(0)
    recipe, n = Recipe(), 3000
    ours = crop_boxes(recipe, np.full(n, height), np.full(n, width), np.random.default_rng(1))
    blank = torch.empty(3, height, width)
    theirs = np.array(
        [T.RandomResizedCrop.get_params(blank, list(recipe.scale), list(recipe.ratio)) for _ in range(n)]
    )
    for k in range(4):
        assert stats.ks_2samp(ours[:, k], theirs[:, k]).pvalue > 1e-3, k
    assert (ours[:, 0] + ours[:, 2] <= height).all()
    assert (ours[:, 1] + ours[:, 3] <= width).all()
    assert (ours >= 0).all()


def test_the_other_parameters_are_uniform() -> None:
    n = 4000
    draws = draw_changes(Recipe(), np.full(n, 64), np.full(n, 64), np.random.default_rng(0))
    for k, (low, width) in enumerate([(0.7, 0.6), (0.7, 0.6), (0.7, 0.6), (-0.3, 0.6)]):
        assert stats.kstest(draws.factors[:, k], "uniform", (low, width)).pvalue > 1e-3
    assert stats.binomtest(int(draws.flips.sum()), n, 0.5).pvalue > 1e-3
    assert stats.binomtest(int(draws.grays.sum()), n, 0.1).pvalue > 1e-3
    orders = draws.orders[::GROUP]  # neighbours share theirs
    assert (draws.orders.reshape(-1, GROUP, 4) == orders[:, None]).all()
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("bad", [{"size": 0}, {"scale": (0, 1)}, {"scale": (1, 0.5)}, {"hue": 0.6}])
def test_bad_recipes(bad: dict[str, object]) -> None:
    with pytest.raises(DataError, match=rf"got {next(iter(bad))}.*; expected"):
        Recipe(**bad)  # type: ignore[arg-type]
