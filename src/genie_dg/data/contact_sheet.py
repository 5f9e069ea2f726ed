"""One picture to look at before training: classes as rows, domains as columns, a few samples in each cell.

What is wrong with a set is often visible at once: a class that one domain lacks, labels that are shifted, files
that cannot be decoded. An empty cell says so, and a file that cannot be read becomes a crossed cell and a
sentence in the list of problems; the sheet is drawn all the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from genie_dg.check import whole_number

from .domains import DataError, Domain, DomainSet

Box: TypeAlias = tuple[int, int, int, int]
Point: TypeAlias = tuple[float, float]
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
    if len(pixels) == 1:
        pixels = pixels.expand(3, -1, -1)
    elif len(pixels) == 2:
        pixels = torch.cat([pixels, torch.zeros_like(pixels[:1])])
    return Image.fromarray(pixels[:3].permute(1, 2, 0).contiguous().numpy())


@cache
def _font(size: int) -> Font:
    return ImageFont.load_default(size)


def _fitted(picture: Image.Image, side: int) -> Image.Image:
    """The whole picture in a square of ``side``; images that are enlarged much keep their hard pixels."""
    scale = side / max(picture.size)
    width, height = (max(1, round(length * scale)) for length in picture.size)
    method = Image.Resampling.NEAREST if scale >= 4 else Image.Resampling.LANCZOS
    square = Image.new("RGB", (side, side), GROUND)
    square.paste(picture.resize((width, height), method), ((side - width) // 2, (side - height) // 2))
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


def _counted(number: int, noun: str) -> str:
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


def _chosen(domain: Domain, label: int, count: int, generator: np.random.Generator) -> list[int]:
    """Up to ``count`` different samples of a class, in the order of the domain."""
    rows = np.flatnonzero(np.asarray(domain.labels) == label)
    if len(rows) > count:
        rows = np.sort(generator.choice(rows, count, replace=False))
    return [int(index) for index in rows]


class _Sheet:
    """The picture while it is drawn: a heading, names above and on the left, and a grid of cells."""

    def __init__(self, heading: str, names: Sequence[str], domains: Sequence[Domain], each: int, cell: int):
        widest = max((math.ceil(_font(14).getlength(name)) for name in names), default=0)
        self.each, self.cell, self.names = each, cell, min(WIDEST_NAME, widest)
        self.cell_width = each * (cell + BETWEEN) - BETWEEN
        width = max(NARROWEST, 2 * MARGIN + self.names + len(domains) * (GAP + self.cell_width))
        lines = _wrapped(heading, _font(20), width - 2 * MARGIN)
        self.top = MARGIN + PITCH[20] * len(lines) + HEAD  # where the first row begins
        self.image = Image.new("RGB", (width, self.top + len(names) * (cell + GAP)), PAPER)
        self.draw = ImageDraw.Draw(self.image)
        self._write(lines, MARGIN, 20, INK)
        for row, name in enumerate(names):
            left, top, _, bottom = self.boxes(0, row)[0]
            self._text((left - GAP, (top + bottom) / 2), name, self.names, 14, INK, "rm")
        for column, domain in enumerate(domains):
            left, top, _, _ = self.boxes(column, 0)[0]
            self._text((left, top - 24), domain.name, self.cell_width, 14, INK, "ls")
            self._text((left, top - 8), _counted(len(domain), "sample"), self.cell_width, 12, FAINT, "ls")

    def _text(self, at: Point, text: str, width: float, size: int, colour: str, anchor: str) -> None:
        font = _font(size)
        self.draw.text(at, _shortened(text, font, width), fill=colour, font=font, anchor=anchor)

    def _write(self, lines: list[str], top: int, size: int, colour: str) -> None:
        for number, line in enumerate(lines):
            self.draw.text((MARGIN, top + number * PITCH[size]), line, fill=colour, font=_font(size))

    def boxes(self, column: int, row: int) -> list[Box]:
        """The squares of one cell, from left to right."""
        left = MARGIN + self.names + GAP + column * (self.cell_width + GAP)
        top, side = self.top + row * (self.cell + GAP), self.cell
        starts = [left + k * (side + BETWEEN) for k in range(self.each)]
        return [(x, top, x + side, top + side) for x in starts]

    def fill(self, domain: Domain, chosen: list[int], boxes: list[Box]) -> list[str]:
        """Draw one cell; return what could not be read."""
        draw, problems = self.draw, []
        if not chosen:
            (left, top, _, bottom), right = boxes[0], boxes[-1][2]
            draw.rectangle((left, top, right - 1, bottom - 1), fill=GROUND)
            self._text(((left + right) / 2, (top + bottom) / 2), "none", math.inf, 12, ALARM, "mm")
        for index, (left, top, right, bottom) in zip(chosen, boxes, strict=False):
            try:
                self.image.paste(_fitted(as_rgb(domain.read(index)), right - left), (left, top))
            except (DataError, OSError) as error:
                place = domain.where(index)
                problems.append(str(error) if place in str(error) else f"{place} cannot be shown ({error}).")
                draw.rectangle((left, top, right - 1, bottom - 1), fill=GROUND, outline=ALARM)
                draw.line((left, top, right - 1, bottom - 1), fill=ALARM, width=2)
                draw.line((left, bottom - 1, right - 1, top), fill=ALARM, width=2)
        return problems

    def finish(self, note: str, colour: str) -> Image.Image:
        """Add a margin below, with a note in it, and return the picture."""
        image = self.image
        lines = _wrapped(note, _font(14), image.width - 2 * MARGIN) if note else []
        self.image = Image.new("RGB", (image.width, image.height + MARGIN + PITCH[14] * len(lines)), PAPER)
        self.image.paste(image)
        self.draw = ImageDraw.Draw(self.image)
        self._write(lines, image.height, 14, colour)
        return self.image


def contact_sheet(
    domain_set: DomainSet,
    per_cell: int = 3,
    cell: int = 64,
    seed: int = 0,
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
        max_classes: further classes are left out, and a note says so.
        max_domains: further domains are left out, and a note says so.

    Example:
        >>> from genie_dg.data.styleshapes import styleshapes
        >>> sheet = contact_sheet(styleshapes(size=16, per_class=1, classes=2), per_cell=1)
        >>> len(sheet.cells), sheet.problems
        (8, [])
    """
    numbers = {"per_cell": per_cell, "cell": cell, "seed": seed, "max_classes": max_classes}
    for key, value in {**numbers, "max_domains": max_domains}.items():
        whole_number(key, value, {"cell": 16, "seed": 0}.get(key, 1), error=DataError)
    names, domains = domain_set.classes[:max_classes], domain_set.domains[:max_domains]
    sizes = {"domain": len(domain_set.domains), "class": len(domain_set.classes), "sample": len(domain_set)}
    heading = f"{domain_set.name}: " + ", ".join(_counted(number, noun) for noun, number in sizes.items())
    sheet = _Sheet(heading, names, domains, per_cell, cell)
    problems: list[str] = []
    cells: dict[tuple[str, str], list[Box]] = {}
    for column, domain in enumerate(domains):
        for row, name in enumerate(names):
            chosen = _chosen(domain, row, per_cell, np.random.default_rng([seed, column, row]))
            boxes = sheet.boxes(column, row)
            cells[domain.name, name] = boxes[: len(chosen)]
            problems += sheet.fill(domain, chosen, boxes)
    notes = [f"{_counted(len(problems), 'sample')} could not be read (crossed)"] if problems else []
    shown = (len(names), sizes["class"], "classes"), (len(domains), sizes["domain"], "domains")
    notes += [f"first {some} of {number} {noun}" for some, number, noun in shown if some < number]
    return ContactSheet(sheet.finish("; ".join(notes), ALARM if problems else FAINT), problems, cells)
