"""One file to one RGB picture, with the pixels that torchvision's ``ImageFolder`` would give.

``PIL.Image.open(file).convert("RGB")`` and nothing else: no EXIF rotation, no colour management, palette and
CMYK
as Pillow converts them. Pixels then agree with every harness that uses torchvision's default loader.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from .domains import DataError

if TYPE_CHECKING:
    from PIL import Image


def decode(path: Path) -> Image.Image:
    """Read a picture; what cannot be read raises `DataError` with the name of the file."""
    from PIL import Image

    try:
        with path.open("rb") as file, warnings.catch_warnings():
            # A palette with transparency is converted all the same, and a truncated EXIF block is not used.
            warnings.simplefilter("ignore", UserWarning)
            return Image.open(file).convert("RGB")
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing; put it back or list the folder again.") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        size = path.stat().st_size if path.is_file() else 0
        what = "is empty (0 bytes)" if size == 0 else f"cannot be decoded as a picture ({error})"
        raise DataError(f"{path} {what}; replace or remove it, then list the folder again.") from error
