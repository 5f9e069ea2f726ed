"""StyleShapes: drawn alike every time, balanced, and with a dial that does what it says."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from torch import Tensor
from torch.nn import functional as F

from genie_dg.data.domains import DataError, DomainSet, TensorDomain
from genie_dg.data.styleshapes import HUES, POLYGONS, SHAPES, signed_distance, styleshapes, tied_hue


def pixels(domain_set: DomainSet, index: int) -> Tensor:
    domain = domain_set.domains[index]
    assert isinstance(domain, TensorDomain)
    return domain.images


def hue_of(images: Tensor) -> Tensor:
    """The hue of each picture's most colourful pixels, as an angle from 0 to 1 around the wheel."""
    rgb = images.double() / 255
    red, green, blue = rgb.unbind(1)
    chroma = rgb.amax(1) - rgb.amin(1)
    angle = torch.atan2(math.sqrt(3) * (green - blue), 2 * red - green - blue)
    weight = torch.where(chroma >= chroma.flatten(1).quantile(0.97, dim=1).view(-1, 1, 1), chroma, 0.0)
    x, y = (weight * angle.cos()).sum((1, 2)), (weight * angle.sin()).sum((1, 2))
    return torch.atan2(y, x) / (2 * math.pi) % 1


def guessed(hue: Tensor, domain: int, classes: int = len(SHAPES)) -> Tensor:
    """The class whose hue in the table of a domain is nearest."""
    table = torch.tensor([tied_hue(domain, label) for label in range(classes)], dtype=torch.float64)
    apart = (hue.unsqueeze(1) - table).abs()
    return torch.minimum(apart, 1 - apart).argmin(1)


def agreement(domain_set: DomainSet, index: int, table: int) -> float:
    labels = torch.from_numpy(domain_set.domains[index].labels)
    hits = guessed(hue_of(pixels(domain_set, index)), table, len(domain_set.classes)) == labels
    return hits.double().mean().item()


@cache
def dialled(spurious: float) -> DomainSet:
    return styleshapes(size=32, per_class=40, spurious=spurious, seed=3)


@pytest.mark.parametrize("index", range(4))
def test_the_dial_ties_the_hue_to_the_class(index: int) -> None:
    """At 0 the hue is right as often as chance, at 1 nearly always, in between in proportion."""
    for dial, expected in ((0.0, 1 / 7), (0.5, 0.5 + 0.5 / 7), (1.0, 1.0)):
        drawn = dialled(dial)
        bound = 4 * math.sqrt(expected * (1 - expected) / 280) + 0.03  # and 3 % for hues that are misread
        assert agreement(drawn, index, index) == pytest.approx(expected, abs=bound)


def test_the_shortcut_of_one_domain_fails_in_every_other() -> None:
    drawn = styleshapes(size=32, per_class=10, spurious=1.0)
    for index in range(4):
        for table in set(range(4)) - {index}:
            assert agreement(drawn, index, table) < 0.05
            assert all(tied_hue(index, label) != tied_hue(table, label) for label in range(HUES))


def test_the_dial_changes_colours_and_nothing_else() -> None:
    """The dark outlines of the cartoons are the same at 0 and at 1, and so are poses and backgrounds."""
    free, tied = (pixels(styleshapes(size=48, per_class=6, spurious=dial), 1) for dial in (0.0, 1.0))
    dark = [images.amax(1) < 30 for images in (free, tied)]
    assert torch.equal(*dark)
    assert dark[0].sum() > 1000
    assert torch.equal(free[..., 0, 0], tied[..., 0, 0])
    assert (free != tied).any(dim=1).flatten(1).any(1).float().mean() > 0.5


@pytest.mark.parametrize("shape", sorted(POLYGONS))
def test_polygons_against_pillow_and_a_slow_distance(shape: str) -> None:
    side = 200
    steps = (torch.arange(side, dtype=torch.float64) + 0.5) * (2 / side) - 1
    at = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), dim=-1)
    distance = signed_distance(shape, at)
    mask = Image.new("1", (side, side))
    corners = [((x + 1) * side / 2 - 0.5, (y + 1) * side / 2 - 0.5) for x, y in POLYGONS[shape]]
    ImageDraw.Draw(mask).polygon(corners, fill=1)
    clear = distance.abs() > 3 / side  # Pillow counts pixels that an edge only touches
    assert clear.float().mean() > 0.9
    inside = torch.from_numpy(np.array(mask))
    assert torch.equal((distance < 0)[clear], inside[clear])
    ends = torch.tensor(POLYGONS[shape], dtype=torch.float64)
    along = torch.linspace(0, 1, 300, dtype=torch.float64).view(-1, 1, 1)
    outline = (ends + (ends.roll(-1, 0) - ends) * along).reshape(-1, 2)
    some = at[::13, ::13].reshape(-1, 2)
    slow = torch.cdist(some, outline).amin(1)
    torch.testing.assert_close(signed_distance(shape, some).abs(), slow, rtol=0, atol=3e-3)


def test_edges_are_anti_aliased_at_every_size() -> None:
    """A cartoon has no noise: drawn four times as large and averaged it is the small one."""
    small = pixels(styleshapes(size=32, per_class=3), 1).double()
    large = pixels(styleshapes(size=128, per_class=3), 1).double()
    apart = (F.avg_pool2d(large, 4) - small).abs()
    assert apart.mean() < 2.5
    assert apart.amax() < 100  # hard edges would be off by a full step somewhere


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 8}, "size=8"),
        ({"classes": 8}, "a whole number from 2 to 7"),
        ({"spurious": 1.5}, "spurious=1.5; expected a number of at least 0 and at most 1"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        styleshapes(**arguments)  # type: ignore[arg-type]
