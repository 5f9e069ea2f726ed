"""StyleShapes: a procedural miniature of PACS. Seven shapes, each drawn as art, cartoon, photo and sketch.

A seed decides every pixel. A shape is a signed distance (negative inside, in fractions of the picture's width),
and a style turns that distance and a hue into colours; the distance also says how much of a pixel is covered.

An object's hue can be tied to its class, by another table in every domain: a network that takes the hue for
the class does well where it was trained and fails on the domain that was held out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from genie_dg.check import number, whole_number

from .domains import DataError, DomainSet, TensorDomain

HUES = 7
"""The colour wheel is cut into this many hues, and a picture's hue lies within 30 % of a step around one."""

_Points: TypeAlias = tuple[tuple[float, float], ...]
_Distance: TypeAlias = Callable[[Tensor], Tensor]
_Style: TypeAlias = Callable[[_Distance, Tensor, Tensor, torch.Generator], Tensor]


_TURNS = [((0.95, 0.4)[k % 2], math.pi * k / 5) for k in range(10)]

POLYGONS: dict[str, _Points] = {
    "arrow": (
        *((0.0, -0.95), (0.75, -0.1), (0.28, -0.1), (0.28, 0.9)),
        *((-0.28, 0.9), (-0.28, -0.1), (-0.75, -0.1)),
    ),
    "cross": (
        *((-0.27, -0.85), (0.27, -0.85), (0.27, -0.27), (0.85, -0.27), (0.85, 0.27), (0.27, 0.27)),
        *((0.27, 0.85), (-0.27, 0.85), (-0.27, 0.27), (-0.85, 0.27), (-0.85, -0.27), (-0.27, -0.27)),
    ),
    "house": (
        *((0.0, -0.95), (0.85, -0.2), (0.62, -0.2), (0.62, 0.8)),
        *((-0.62, 0.8), (-0.62, -0.2), (-0.85, -0.2)),
    ),
    "square": ((-0.72, -0.72), (0.72, -0.72), (0.72, 0.72), (-0.72, 0.72)),
    "star": tuple((radius * math.sin(turn), -radius * math.cos(turn)) for radius, turn in _TURNS),
}
"""Corners with y pointing down, in a frame from -1 to 1. The disc and the ring have no corners."""

SHAPES: tuple[str, ...] = ("arrow", "cross", "disc", "house", "ring", "square", "star")


def _polygon(at: Tensor, corners: _Points) -> Tensor:
    """Signed distance to a polygon: the nearest edge, with the sign of the even-odd rule."""
    x, y = at[..., 0], at[..., 1]
    nearest = torch.full_like(x, math.inf)
    inside = torch.zeros_like(x, dtype=torch.bool)
    for (ax, ay), (bx, by) in zip(corners, corners[-1:] + corners[:-1], strict=True):
        ex, ey = bx - ax, by - ay
        along = (((x - ax) * ex + (y - ay) * ey) / (ex * ex + ey * ey)).clamp(0, 1)
        nearest = torch.minimum(nearest, (x - ax - along * ex).square() + (y - ay - along * ey).square())
        if ey != 0:
            crossed = x - ax < (y - ay) * (ex / ey)
            inside ^= ((y < ay) != (y < by)) & crossed
    return torch.where(inside, -1.0, 1.0) * nearest.sqrt()


def signed_distance(shape: str, at: Tensor) -> Tensor:
    """How far each point of ``at`` ``[..., 2]`` lies outside a shape, negative inside, in its frame of -1 to 1.

    Example:
        >>> signed_distance("disc", torch.tensor([[0.0, 0.0], [0.0, 1.85]]))
        tensor([-0.8500,  1.0000])
    """
    if shape == "disc":
        return torch.hypot(at[..., 0], at[..., 1]) - 0.85
    if shape == "ring":
        return (torch.hypot(at[..., 0], at[..., 1]) - 0.66).abs() - 0.22
    return _polygon(at, POLYGONS[shape])


def _uniform(generator: torch.Generator, count: int, low: float, high: float) -> Tensor:
    """One number for each picture, shaped to be spread over its pixels."""
    return low + (high - low) * torch.rand(count, 1, 1, generator=generator)


def _rgb(hue: Tensor, saturation: float, value: Tensor | float) -> Tensor:
    """Hue (as a turn), saturation and value to ``[n, 3, h, w]``; tensors are ``[n, h, w]`` or ``[n, 1, 1]``."""
    sector = torch.stack([(hue * 6 + offset) % 6 for offset in (5, 3, 1)], dim=1)
    ramp = torch.minimum(sector, 4 - sector).clamp(0, 1)
    level = value.unsqueeze(1) if isinstance(value, Tensor) else value
    return level - level * saturation * ramp


def _noise(at: Tensor, generator: torch.Generator, across: int, down: int) -> Tensor:
    """Smooth noise in [-1, 1]: ``across`` by ``down`` random numbers over the picture, bilinear in between."""
    grid = torch.rand(len(at), 1, down, across, generator=generator) * 2 - 1
    return F.grid_sample(grid, at, padding_mode="reflection", align_corners=False)[:, 0]


def _turned(at: Tensor, angle: Tensor) -> Tensor:
    x, y = at[..., 0], at[..., 1]
    return torch.stack([x * angle.cos() - y * angle.sin(), x * angle.sin() + y * angle.cos()], dim=-1)


def _wobbled(at: Tensor, generator: torch.Generator, cells: int, amount: float) -> Tensor:
    """Coordinates pushed about smoothly: the lines of an unsteady hand."""
    return at + amount * torch.stack([_noise(at, generator, cells, cells) for _ in range(2)], dim=-1)


def _cover(distance: Tensor) -> Tensor:
    """How much of each pixel lies inside, from 0 to 1."""
    return (0.5 - distance * distance.shape[-1]).clamp(0, 1)


def _mix(front: Tensor, back: Tensor, cover: Tensor) -> Tensor:
    return back + (front - back) * cover.unsqueeze(1)


def _art(distance: _Distance, at: Tensor, hue: Tensor, generator: torch.Generator) -> Tensor:
    """Strokes in one direction, blotches from a palette of a few tones, edges that the brush frayed."""
    n = len(at)
    strokes = _noise(_turned(at, _uniform(generator, n, 0, math.pi)), generator, 5, 28)
    blotches = _noise(at, generator, 6, 6)
    tones = ((blotches * 0.6 + strokes * 0.6) * 2.5).round() / 2.5
    front = _rgb(hue + 0.03 * tones, 0.8, (0.68 + 0.2 * tones).clamp(0, 1))
    ground = _uniform(generator, n, 0, 1) + 0.06 * blotches
    back = _rgb(ground, 0.28, (_uniform(generator, n, 0.4, 0.75) + 0.16 * tones).clamp(0, 1))
    edge = distance(_wobbled(at, generator, 7, 0.05)) + 0.012 * strokes
    return _mix(front, back, _cover(edge))


def _cartoon(distance: _Distance, at: Tensor, hue: Tensor, generator: torch.Generator) -> Tensor:
    """A flat saturated fill and a thick dark outline on a plain pastel."""
    n = len(at)
    edge = distance(at)
    back = _rgb(_uniform(generator, n, 0, 1), 0.18, 0.97).expand(-1, -1, *edge.shape[1:])
    filled = _mix(_rgb(hue, 0.95, 0.95), back, _cover(edge))
    return filled * (1 - 0.92 * _cover(edge.abs() - _uniform(generator, n, 0.018, 0.03))).unsqueeze(1)


def _photo(distance: _Distance, at: Tensor, hue: Tensor, generator: torch.Generator) -> Tensor:
    """A rounded object under a light from one side, before a rough ground, seen by a noisy sensor."""
    n = len(at)
    edge = distance(at)
    light = _turned(at, _uniform(generator, n, 0, 2 * math.pi))[..., 0]
    rounded = (-edge / 0.07).clamp(0, 1)
    front = _rgb(hue, 0.72, (0.42 + 0.25 * rounded + 0.3 * light).clamp(0.08, 1))
    rough = sum(share * _noise(at, generator, k, k) for share, k in ((0.5, 5), (0.35, 13), (0.3, 29)))
    shadow = 1 - 0.55 * (-edge.clamp(min=0) / 0.05).exp()
    ground = (_uniform(generator, n, 0.35, 0.75) + 0.25 * rough + 0.15 * light) * shadow
    picture = _mix(front, _rgb(_uniform(generator, n, 0, 1), 0.25, ground.clamp(0, 1)), _cover(edge))
    return picture + 0.035 * torch.randn(picture.shape, generator=generator)


def _sketch(distance: _Distance, at: Tensor, hue: Tensor, generator: torch.Generator) -> Tensor:
    """Two thin strokes of a dark pencil along the outline and faint hatching inside, on white paper."""
    paper = 0.97 + 0.02 * _noise(at, generator, 24, 24)
    ink = torch.zeros_like(paper)
    for strength in (0.95, 0.6):
        edge = distance(_wobbled(at, generator, 5, 0.035))
        pressure = strength * (0.85 + 0.3 * _noise(at, generator, 9, 9))
        ink = torch.maximum(ink, _cover(edge.abs() - 0.009) * pressure)
    hatching = _noise(_turned(at, _uniform(generator, len(at), 0, math.pi)), generator, 3, 40)
    ink = torch.maximum(ink, _cover(edge) * (0.2 + 0.5 * hatching).clamp(0, 0.6))
    return _mix(_rgb(hue, 0.85, 0.42), paper.unsqueeze(1), ink.clamp(0, 1))


STYLES: dict[str, _Style] = {"art": _art, "cartoon": _cartoon, "photo": _photo, "sketch": _sketch}
"""The domains, in order."""


def tied_hue(domain: int, label: int) -> float:
    """The hue, from 0 to 1 around the colour wheel, that the table of a domain ties to a class.

    Example:
        >>> [round(tied_hue(domain, 0) * HUES) for domain in range(4)]  # every domain has another one
        [0, 2, 4, 6]
    """
    return ((label + 2 * domain) % HUES) / HUES


@dataclass(frozen=True)
class _Settings:
    """The arguments of `styleshapes`."""

    size: int
    per_class: int
    seed: int
    spurious: float
    classes: int


def _draw(domain: int, label: int, settings: _Settings) -> Tensor:
    """The pictures of one class in one domain, from a stream of their own."""
    count, classes = settings.per_class, settings.classes
    generator = torch.Generator().manual_seed((settings.seed * len(STYLES) + domain) * HUES + label)
    tied = torch.rand(count, generator=generator) < settings.spurious
    other = torch.randint(classes, (count,), generator=generator)
    hue = torch.tensor([tied_hue(domain, k) for k in range(classes)])[torch.where(tied, label, other)]
    hue = hue.view(-1, 1, 1) + _uniform(generator, count, -0.3, 0.3) / HUES
    angle = _uniform(generator, count, -0.5, 0.5)
    radius = _uniform(generator, count, 0.55, 0.85)
    shear = _uniform(generator, count, -0.2, 0.2)
    centre = torch.cat([_uniform(generator, count, -0.15, 0.15) for _ in range(2)], dim=-1).unsqueeze(1)
    steps = (torch.arange(settings.size) + 0.5) * (2 / settings.size) - 1
    at = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), dim=-1).expand(count, -1, -1, -1)

    def distance(points: Tensor) -> Tensor:
        local = _turned(points - centre, angle) / radius.unsqueeze(-1)
        local = torch.stack([local[..., 0] + shear * local[..., 1], local[..., 1]], dim=-1)
        return signed_distance(SHAPES[label], local) * radius / 2

    picture = list(STYLES.values())[domain](distance, at, hue, generator)
    return (picture.clamp(0, 1) * 255).round().to(torch.uint8)


def styleshapes(
    size: int = 64, per_class: int = 60, seed: int = 0, spurious: float = 0.0, classes: int = 7
) -> DomainSet:
    """Draw the set: four domains in which every class has as many pictures.

    Args:
        size: width and height in pixels, at least 16.
        per_class: how many pictures each class has in each domain.
        seed: decides every pixel. Global random streams are neither read nor moved.
        spurious: the probability that an object has the hue that its domain's table ties to its class;
            otherwise it has the hue of any class, drawn evenly.
        classes: how many of the seven classes, in alphabetical order.

    Example:
        >>> small = styleshapes(size=32, per_class=2)
        >>> [domain.name for domain in small.domains], len(small), small.domains[0].read(0).shape
        (['art', 'cartoon', 'photo', 'sketch'], 56, torch.Size([3, 32, 32]))
    """
    whole_number("size", size, 16, error=DataError)
    whole_number("per_class", per_class, error=DataError)
    whole_number("seed", seed, 0, 2**48 - 1, DataError)
    whole_number("classes", classes, 2, len(SHAPES), DataError)
    number("spurious", spurious, 0, 1, error=DataError)
    settings = _Settings(size, per_class, seed, spurious, classes)
    labels = np.repeat(np.arange(classes, dtype=np.int64), per_class)
    domains = []
    for index, name in enumerate(STYLES):
        drawn = [_draw(index, label, settings) for label in range(classes)]
        domains.append(TensorDomain(name, torch.cat(drawn), labels.copy()))
    return DomainSet("StyleShapes", SHAPES[:classes], tuple(domains), variant=f"spurious {spurious:g}")
