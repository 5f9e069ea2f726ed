"""From a picture in any form to what the network saw in training: one rule, the training side's own code.

Files are decoded by `genie_dg.data.domains.decode` (RGB, no EXIF rotation) and resized by `EvalSpec`, and
`Model.normalised` scales them, so the numbers are those of an evaluation during training, to the bit.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from genie_dg.check import short
from genie_dg.data.cache import EvalSpec
from genie_dg.data.domains import DataError, decode
from genie_dg.data.encoding import Encoding
from genie_dg.data.image_folders import is_picture, is_skipped
from genie_dg.data.place import as_rgb
from genie_dg.data.tables import read_rows

Picture: TypeAlias = "str | Path | Image.Image | np.ndarray[Any, Any] | Tensor"
"""A path; a Pillow image; an array [height, width] or [height, width, channels]; a tensor [channels, height,
width]."""


def sample_of(picture: Picture, channels: int, size: int, pictures: bool) -> Tensor:
    """What the data set of the run would hold: ``[channels, size, size]``, uint8 unless floats were given.

    Args:
        picture: in any form.
        channels: of the images that the network sees.
        size: their height and width.
        pictures: the run's samples were pictures; otherwise they were tensors, and a tensor of the right shape
            is taken as it is.
    """
    if isinstance(picture, Tensor) and not pictures and tuple(picture.shape) == (channels, size, size):
        return picture
    image = image_of(picture)
    if channels == 3:
        return torch.from_numpy(EvalSpec(size).pixels(image.convert("RGB")))
    if channels == 1:
        grey = image.convert("L").resize((size, size), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.array(grey)[None])
    raise DataError(
        f"The model sees {channels} channels, which no picture has; give [{channels}, {size}, {size}]."
    )


def image_of(picture: Picture) -> Image.Image:
    """A picture in any form as a Pillow image; a file is decoded to RGB as in training."""
    if isinstance(picture, (str, Path)):
        return decode(Path(picture))
    if isinstance(picture, Image.Image):
        return picture
    given = picture
    if isinstance(picture, Tensor):
        if picture.dim() == 3 and len(picture) == 1:
            picture = picture[0]
        picture = picture.permute(1, 2, 0) if picture.dim() == 3 else picture
        picture = picture.detach().cpu().numpy()
    if isinstance(picture, np.ndarray) and picture.dtype == np.uint8 and picture.size:
        if picture.ndim == 2 or (picture.ndim == 3 and picture.shape[2] in (3, 4)):
            return Image.fromarray(np.ascontiguousarray(picture))
        if picture.ndim == 3 and picture.shape[2] == 1:
            return Image.fromarray(np.ascontiguousarray(picture[:, :, 0]))
    kind = f"{given.dtype} {list(given.shape)}" if isinstance(given, np.ndarray | Tensor) else short(given)
    raise DataError(
        f"Got {kind} as a picture; expected a path, a Pillow image, a uint8 array [height, width] or [height, "
        "width, 3 or 4], or a uint8 tensor [1 or 3, height, width]."
    )


def thumbnail(picture: Picture, side: int) -> Image.Image:
    """A small RGB copy to look at, at most ``side`` pixels wide and high; tiny images are enlarged."""
    image = as_rgb(picture) if isinstance(picture, Tensor) else image_of(picture).convert("RGB")
    scale = side / max(image.size)
    method = Image.Resampling.NEAREST if scale >= 4 else Image.Resampling.BICUBIC
    if scale >= 4 or scale < 1:
        image = image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))), method)
    return image


def picture_files(words: Iterable[str]) -> list[Path]:
    """The pictures that a person names: files, folders with all pictures below them, patterns as ``*.png``.

    A name that is nothing of these stays in the list, and reading it says so. A picture named twice counts
    once.
    """
    paths: dict[Path, None] = {}
    for word in words:
        path = Path(word)
        if path.is_dir():
            paths |= dict.fromkeys(_below(path))
        elif path.exists() or not glob.has_magic(word):
            paths[path] = None
        else:
            for match in sorted(map(Path, glob.glob(word, recursive=True))):
                paths |= dict.fromkeys(_below(match) if match.is_dir() else [match])
    return list(paths)


def _below(folder: Path) -> list[Path]:
    """Pictures below a folder, without hidden folders, sorted."""
    paths: list[Path] = []
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not is_skipped(name))
        paths += [Path(where, name) for name in sorted(names) if is_picture(name)]
    return paths


def inputs_of_rows(files: Sequence[str | Path], encoding: Encoding) -> dict[str, Tensor]:
    """What a model of a table sees of each row of some tables, by ``file:row``; rows count from 1, without the
    header.
    """
    inputs = {}
    for file in files:
        table = read_rows(file, encoding.columns)
        rows = zip(table.rows, encoding.inputs(table), strict=True)
        inputs.update({f"{file}:{row}": seen for row, seen in rows})
    return inputs
