"""One picture to look at before training: classes as rows, domains as columns, a few samples in each cell.

What is wrong with a set is often visible at once: a class that one domain lacks, labels that are shifted, files
that cannot be decoded. An empty cell says so, and a file that cannot be read becomes a crossed cell and a
sentence in the list of problems; the sheet is drawn all the same.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from genie_dg.check import whole_number

from .domains import DataError, Domain, DomainSet

Box: TypeAlias = tuple[int, int, int, int]

_PAPER, _GROUND, _INK, _ALARM = "#ffffff", "#eef0f3", "#1b1f24", "#c0261b"
_MARGIN, _GAP, _LINE, _NAMES = 16, 10, 20, 140
"""Pixels: around the sheet, between cells, the height of a line, the width of the names of classes."""
_NARROWEST, _CELL = 420, 64


class ContactSheet(NamedTuple):
    """A drawn sheet, and what could not be drawn."""

    image: Image.Image
    problems: list[str]  # one sentence for each sample that could not be read, with the name of its file
    cells: dict[tuple[str, str], list[Box]]  # by domain and class: left, top, right and bottom of each sample


def as_rgb(sample: Image.Image | Tensor) -> Image.Image:
    """A sample as an RGB picture, whatever it is.

    A tensor of one channel is grey, of two red and green, of more the first three. Floating point is taken as
    0 to 1; where it goes beyond, as normalised images do, it is stretched from its lowest to its highest value.

    Example:
        >>> as_rgb(torch.tensor([[[255]], [[0]]], dtype=torch.uint8)).getpixel((0, 0))
        (255, 0, 0)
    """
    if isinstance(sample, Image.Image):
        return sample.convert("RGB")
    if sample.dim() != 3 or sample.numel() == 0:
        raise DataError(
            f"A sample has the shape {tuple(sample.shape)}; "
            "a picture needs [channels, height, width], none of them 0."
        )
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


def _square(picture: Image.Image) -> Image.Image:
    """The whole picture in a square; images that are enlarged much keep their hard pixels."""
    scale = _CELL / max(picture.size)
    width, height = (max(1, round(length * scale)) for length in picture.size)
    method = Image.Resampling.NEAREST if scale >= 4 else Image.Resampling.LANCZOS
    square = Image.new("RGB", (_CELL, _CELL), _GROUND)
    square.paste(picture.resize((width, height), method), ((_CELL - width) // 2, (_CELL - height) // 2))
    return square


def _write(draw: ImageDraw.ImageDraw, at: tuple[int, int], text: str, width: int, colour: str = _INK) -> None:
    """Write a line, cut to a width."""
    font, end = ImageFont.load_default(14), len(text)
    shown = text
    while font.getlength(shown) > width and end > 0:
        end -= 1
        shown = f"{text[:end].rstrip()}…"
    draw.text(at, shown, fill=colour, font=font)


def _sample(domain: Domain, index: int, problems: list[str]) -> Image.Image:
    """One sample as a square; a crossed one where it cannot be read, with a sentence in ``problems``."""
    try:
        return _square(as_rgb(domain.read(index)))
    except (DataError, OSError) as error:
        place = domain.where(index)
        problems.append(str(error) if place in str(error) else f"{place} cannot be shown ({error}).")
    crossed = Image.new("RGB", (_CELL, _CELL), _GROUND)
    end, draw = _CELL - 1, ImageDraw.Draw(crossed)
    draw.line((0, 0, end, end), fill=_ALARM, width=2)
    draw.line((0, end, end, 0), fill=_ALARM, width=2)
    return crossed


def contact_sheet(
    data: DomainSet, per_cell: int = 3, seed: int = 0, *, max_classes: int = 20, max_domains: int = 12
) -> ContactSheet:
    """Draw classes (rows) by domains (columns), with a few samples of each.

    Args:
        data: what to look at.
        per_cell: how many samples of a class in a domain.
        seed: which samples are chosen. Global random streams are neither read nor moved.
        max_classes: further classes are left out, and a note says so.
        max_domains: further domains are left out, and a note says so.

    Example:
        >>> from genie_dg.data.styleshapes import styleshapes
        >>> sheet = contact_sheet(styleshapes(size=16, per_class=1, classes=2), per_cell=1)
        >>> len(sheet.cells), sheet.problems
        (8, [])
    """
    for key, value in {"per_cell": per_cell, "max_classes": max_classes, "max_domains": max_domains}.items():
        whole_number(key, value, error=DataError)
    names, domains = data.classes[:max_classes], data.domains[:max_domains]
    pitch, top = per_cell * _CELL + _GAP, _MARGIN + 3 * _LINE
    width = max(_NARROWEST, _NAMES + len(domains) * pitch + 2 * _MARGIN)
    image = Image.new("RGB", (width, top + len(names) * (_CELL + _GAP) + _LINE + _MARGIN), _PAPER)
    draw = ImageDraw.Draw(image)
    about = f"{data.name}: {len(data.domains)} domains, {len(data.classes)} classes, {len(data):,} samples"
    _write(draw, (_MARGIN, _MARGIN), about, width - 2 * _MARGIN)
    problems: list[str] = []
    cells: dict[tuple[str, str], list[Box]] = {}
    for row, name in enumerate(names):
        _write(draw, (_MARGIN, top + row * (_CELL + _GAP) + _CELL // 3), name, _NAMES - _GAP)
    for column, domain in enumerate(domains):
        left = _MARGIN + _NAMES + column * pitch
        _write(draw, (left, _MARGIN + _LINE), domain.name, pitch - _GAP)
        _write(draw, (left, _MARGIN + 2 * _LINE), f"{len(domain):,} samples", pitch - _GAP)
        for row, name in enumerate(names):
            y, members = top + row * (_CELL + _GAP), np.flatnonzero(domain.labels == row)
            if len(members) > per_cell:
                stream = np.random.default_rng([seed, column, row])
                members = np.sort(stream.choice(members, per_cell, replace=False))
            if not len(members):
                _write(draw, (left, y + _CELL // 3), "none", pitch - _GAP, _ALARM)
            starts = [left + k * _CELL for k in range(len(members))]
            cells[domain.name, name] = [(x, y, x + _CELL, y + _CELL) for x in starts]
            for x, index in zip(starts, members.tolist(), strict=True):
                image.paste(_sample(domain, index, problems), (x, y))
    notes = [f"{len(problems)} samples could not be read (crossed)"] if problems else []
    shown = (len(names), len(data.classes), "classes"), (len(domains), len(data.domains), "domains")
    notes += [f"first {some} of {number} {noun}" for some, number, noun in shown if some < number]
    bottom = image.height - _LINE - _MARGIN
    _write(draw, (_MARGIN, bottom), "; ".join(notes), width - 2 * _MARGIN, _ALARM if problems else _INK)
    return ContactSheet(image, problems, cells)
