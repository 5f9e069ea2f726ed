"""One file to one RGB picture, with the pixels that torchvision's ``ImageFolder`` would give.

``PIL.Image.open(file).convert("RGB")`` and nothing else: no EXIF rotation, no colour management, palette and
CMYK as Pillow converts them. Pixels then agree with every harness that uses torchvision's default loader.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .domains import DataError

if TYPE_CHECKING:
    from PIL import Image


def unreadable(error: BaseException) -> bool:
    """Whether an error says that a file is not a picture; Pillow raises all of these."""
    from PIL import Image

    return isinstance(error, (OSError, ValueError, SyntaxError, Image.DecompressionBombError))


def problem_with(path: Path, error: BaseException) -> DataError:
    """The sentence for a file that cannot be read as a picture."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path} is missing; put it back or list the folder again.")
    empty = path.is_file() and path.stat().st_size == 0
    what = "is empty (0 bytes)" if empty else f"cannot be decoded as a picture ({error})"
    return DataError(f"{path} {what}; replace or remove it, then list the folder again.")


def decode(path: Path) -> Image.Image:
    """Read a picture; what cannot be read raises `DataError` with the name of the file."""
    from PIL import Image

    try:
        with path.open("rb") as file:
            return Image.open(file).convert("RGB")
    except Exception as error:
        if not unreadable(error):
            raise
        raise problem_with(path, error) from error
