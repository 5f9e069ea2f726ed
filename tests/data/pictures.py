"""Real picture files for the tests: every colour mode that data sets contain, and folders of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def pixels(seed: int, height: int = 40, width: int = 52) -> np.ndarray:
    """A smooth random picture, so that JPEG keeps most of it."""
    small = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def write(path: Path, seed: int, mode: str = "RGB", height: int = 40, width: int = 52) -> Path:
    """One file; ``mode`` is a Pillow mode or "EXIF" (a JPEG that says it is rotated)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    picture = Image.fromarray(pixels(seed, height, width))
    if mode == "EXIF":
        exif = Image.Exif()
        exif[0x0112] = 6
        picture.save(path, exif=exif)
    elif mode == "RGBA":
        picture.putalpha(Image.fromarray(pixels(seed + 1, height, width)[..., 0]))
        picture.save(path)
    else:
        picture.convert(mode).save(path)
    return path


_NAMES = ["a.jpg", "b.png", "c.jpg", "d.png", "e.jpg", "f.jpg", "g.png", "h.png", "i.bmp", "j.webp", "k.png"]
_NAMES.append("ü ñ.jpg")
_MODES = ["RGB", "RGB", "L", "P", "CMYK", "EXIF", "RGBA", "LA", "RGB", "RGB", "1", "RGB"]
KINDS = list(zip(_NAMES, _MODES, strict=True))
"""Name and mode of one file of each kind; the last has a space and letters outside ASCII."""


def folder(
    root: Path,
    domains: tuple[str, ...] = ("ink", "oil"),
    classes: tuple[str, ...] = ("cat", "dog"),
    each: int = 4,
) -> Path:
    """``root/<domain>/<class>/<number>.png``."""
    for d, domain in enumerate(domains):
        for c, name in enumerate(classes):
            for i in range(each):
                write(root / domain / name / f"{i:03d}.png", 100 * d + 10 * c + i, height=30 + i, width=36)
    return root
