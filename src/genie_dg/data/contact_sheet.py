"""One picture to look at before training: classes as rows, domains as columns, a few samples in each cell.

What is wrong with a set is often visible at once: a class that one domain lacks, labels that are shifted, files
that cannot be decoded. An empty cell says so, and a file that cannot be read becomes a crossed cell and a
sentence in the list of problems; the sheet is drawn all the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from genie_dg.check import whole_number

from .domains import DataError, Domain, DomainSet

Box: TypeAlias = tuple[int, int, int, int]
Font: TypeAlias = ImageFont.FreeTypeFont | ImageFont.ImageFont

PAPER, GROUND, INK, FAINT, ALARM = "#ffffff", "#eef0f3", "#1b1f24", "#5b6570", "#c0261b"
MARGIN, GAP, BETWEEN = 16, 10, 2
HEAD, NARROWEST, WIDEST_NAME = 52, 420, 180
PITCH = {14: 20, 20: 28}  # from line to line, by the size of the font


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
    channels = [pixels[i] for i in range(min(3, len(pixels)))]
    if len(channels) == 1:
        channels *= 3
    if len(channels) == 2:
        channels.append(torch.zeros_like(channels[0]))
    return Image.fromarray(torch.stack(channels, dim=-1).contiguous().numpy())


@cache
def _font(size: int) -> Font:
    return ImageFont.load_default(size)


def _fitted(picture: Image.Image, side: int) -> Image.Image:
    """The whole picture in a square of ``side``; images that are enlarged much keep their hard pixels."""
    scale = side / max(picture.size)
    size = tuple(max(1, round(length * scale)) for length in picture.size)
    method = Image.Resampling.NEAREST if scale >= 4 else Image.Resampling.LANCZOS
    square = Image.new("RGB", (side, side), GROUND)
    square.paste(picture.resize((size[0], size[1]), method), ((side - size[0]) // 2, (side - size[1]) // 2))
    return square


def _shortened(text: str, font: Font, width: float) -> str:
    """The text, or its two ends around an ellipsis when it is wider than ``width``."""
    if font.getlength(text) <= width:
        return text
    for kept in range(len(text) - 1, 1, -1):
        shorter = text[: (kept + 1) // 2].rstrip() + "…" + text[len(text) - kept // 2 :].lstrip()
        if font.getlength(shorter) <= width:
            return shorter
    return "…"


def _wrapped(text: str, font: Font, width: float) -> list[str]:
    """Words filled into lines of ``width``."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and font.getlength(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return [_shortened(line, font, width) for line in lines]


def _chosen(domain: Domain, label: int, count: int, generator: np.random.Generator) -> list[int]:
    """Up to ``count`` different samples of a class, in the order of the domain."""
    rows = np.flatnonzero(np.asarray(domain.labels) == label)
    if len(rows) > count:
        rows = np.sort(generator.choice(rows, count, replace=False))
    return [int(index) for index in rows]


def _heading(domain_set: DomainSet) -> str:
    sizes = {"domain": len(domain_set.domains), "class": len(domain_set.classes), "sample": len(domain_set)}
    return f"{domain_set.name}: " + ", ".join(_counted(number, noun) for noun, number in sizes.items())


def _counted(number: int, noun: str) -> str:
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


@dataclass(frozen=True)
class _Layout:
    """Where everything goes, in pixels."""

    columns: int
    rows: int
    per_cell: int
    cell: int
    names: int  # the width of the column of class names
    top: int  # where the first row begins

    @property
    def cell_width(self) -> int:
        return self.per_cell * (self.cell + BETWEEN) - BETWEEN

    @property
    def size(self) -> tuple[int, int]:
        width = 2 * MARGIN + self.names + self.columns * (GAP + self.cell_width)
        return max(NARROWEST, width), self.top + self.rows * (self.cell + GAP)

    def boxes(self, column: int, row: int) -> list[Box]:
        """The squares of one cell, from left to right."""
        left = MARGIN + self.names + GAP + column * (self.cell_width + GAP)
        top, side = self.top + row * (self.cell + GAP), self.cell
        starts = [left + k * (side + BETWEEN) for k in range(self.per_cell)]
        return [(x, top, x + side, top + side) for x in starts]


def _fill(image: Image.Image, domain: Domain, chosen: list[int], boxes: list[Box]) -> list[str]:
    """Draw one cell; return what could not be read."""
    draw, problems = ImageDraw.Draw(image), []
    if not chosen:
        (left, top, _, bottom), right = boxes[0], boxes[-1][2]
        draw.rectangle((left, top, right - 1, bottom - 1), fill=GROUND)
        draw.text(((left + right) / 2, (top + bottom) / 2), "none", fill=ALARM, font=_font(12), anchor="mm")
    for index, (left, top, right, bottom) in zip(chosen, boxes, strict=False):
        try:
            image.paste(_fitted(as_rgb(domain.read(index)), right - left), (left, top))
        except (DataError, OSError) as error:
            place = domain.where(index)
            problems.append(str(error) if place in str(error) else f"{place} cannot be shown ({error}).")
            draw.rectangle((left, top, right - 1, bottom - 1), fill=GROUND, outline=ALARM)
            draw.line((left, top, right - 1, bottom - 1), fill=ALARM, width=2)
            draw.line((left, bottom - 1, right - 1, top), fill=ALARM, width=2)
    return problems


def _write(draw: ImageDraw.ImageDraw, layout: _Layout, names: Sequence[str], domains: Sequence[Domain]) -> None:
    """The names of classes on the left; those of domains above, with their numbers of samples."""
    for row, name in enumerate(names):
        left, top, _, bottom = layout.boxes(0, row)[0]
        short = _shortened(name, _font(14), layout.names)
        draw.text((left - GAP, (top + bottom) / 2), short, fill=INK, font=_font(14), anchor="rm")
    for column, domain in enumerate(domains):
        left, top, _, _ = layout.boxes(column, 0)[0]
        name = _shortened(domain.name, _font(14), layout.cell_width)
        count = _shortened(_counted(len(domain), "sample"), _font(12), layout.cell_width)
        draw.text((left, top - 24), name, fill=INK, font=_font(14), anchor="ls")
        draw.text((left, top - 8), count, fill=FAINT, font=_font(12), anchor="ls")


def _note(domain_set: DomainSet, rows: int, columns: int, problems: int) -> str:
    """What the sheet could not read, and what it leaves out."""
    parts = [f"{_counted(problems, 'sample')} could not be read (crossed)"] if problems else []
    shown = (rows, len(domain_set.classes), "classes"), (columns, len(domain_set.domains), "domains")
    parts += [f"first {some} of {number} {noun}" for some, number, noun in shown if some < number]
    return "; ".join(parts)


def _lines(draw: ImageDraw.ImageDraw, lines: list[str], top: int, size: int, colour: str) -> None:
    for number, line in enumerate(lines):
        draw.text((MARGIN, top + number * PITCH[size]), line, fill=colour, font=_font(size))


def _with_foot(image: Image.Image, note: str, colour: str) -> Image.Image:
    """The sheet with a margin below, and the note in it."""
    lines = _wrapped(note, _font(14), image.width - 2 * MARGIN) if note else []
    taller = Image.new("RGB", (image.width, image.height + MARGIN + PITCH[14] * len(lines)), PAPER)
    taller.paste(image, (0, 0))
    _lines(ImageDraw.Draw(taller), lines, image.height, 14, colour)
    return taller


def contact_sheet(
    domain_set: DomainSet,
    per_cell: int = 3,
    cell: int = 64,
    seed: int = 0,
    title: str | None = None,
    *,
    max_classes: int = 20,
    max_domains: int = 12,
) -> ContactSheet:
    """Draw classes (rows) by domains (columns), with a few samples of each.

    Args:
        domain_set: what to look at.
        per_cell: how many samples of a class in a domain.
        cell: the width and height of a sample on the sheet, in pixels.
        seed: which samples are chosen. Global random streams are neither read nor moved.
        title: the heading; by default the name of the set and its sizes.
        max_classes: further classes are left out, and a note says so.
        max_domains: further domains are left out, and a note says so.

    Example:
        >>> from genie_dg.data.styleshapes import styleshapes
        >>> sheet = contact_sheet(styleshapes(size=16, per_class=1, classes=2), per_cell=1)
        >>> len(sheet.cells), sheet.problems
        (8, [])
    """
    whole_number("cell", cell, 16, error=DataError)
    whole_number("seed", seed, 0, error=DataError)
    for key, value in (("per_cell", per_cell), ("max_classes", max_classes), ("max_domains", max_domains)):
        whole_number(key, value, error=DataError)
    names, domains = domain_set.classes[:max_classes], domain_set.domains[:max_domains]
    widest = max((math.ceil(_font(14).getlength(name)) for name in names), default=0)
    layout = _Layout(len(domains), len(names), per_cell, cell, min(WIDEST_NAME, widest), top=0)
    lines = _wrapped(_heading(domain_set) if title is None else title, _font(20), layout.size[0] - 2 * MARGIN)
    layout = replace(layout, top=MARGIN + PITCH[20] * len(lines) + HEAD)
    image = Image.new("RGB", layout.size, PAPER)
    draw = ImageDraw.Draw(image)
    _lines(draw, lines, MARGIN, 20, INK)
    _write(draw, layout, names, domains)
    problems: list[str] = []
    cells: dict[tuple[str, str], list[Box]] = {}
    for column, domain in enumerate(domains):
        for row, name in enumerate(names):
            chosen = _chosen(domain, row, per_cell, np.random.default_rng([seed, column, row]))
            cells[domain.name, name] = layout.boxes(column, row)[: len(chosen)]
            problems += _fill(image, domain, chosen, layout.boxes(column, row))
    note = _note(domain_set, len(names), len(domains), len(problems))
    return ContactSheet(_with_foot(image, note, ALARM if problems else FAINT), problems, cells)
