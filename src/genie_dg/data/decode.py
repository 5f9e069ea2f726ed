"""One file to one RGB picture, with the pixels that torchvision's ``ImageFolder`` would give.

``PIL.Image.open(file).convert("RGB")`` and nothing else: no EXIF rotation, no colour management, palette and
CMYK as Pillow converts them. Pixels then agree with every harness that uses torchvision's default loader.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from PIL import Image

from .domains import DataError

UNREADABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)
"""What Pillow raises for a file that is not a picture."""


def problem_with(path: Path, error: BaseException) -> DataError:
    """The sentence for a file that cannot be read as a picture."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path} is missing; put it back or list the folder again.")
    empty = path.is_file() and path.stat().st_size == 0
    what = "is empty (0 bytes)" if empty else f"cannot be decoded as a picture ({error})"
    return DataError(f"{path} {what}; replace or remove it, then list the folder again.")


def decode(path: Path) -> Image.Image:
    """Read a picture; what cannot be read raises `DataError` with the name of the file."""
    try:
        with path.open("rb") as file:
            return Image.open(file).convert("RGB")
    except UNREADABLE as error:
        raise problem_with(path, error) from error


def decode_bytes(data: bytes, name: str, most_pixels: int) -> Image.Image:
    """The same for the contents of a file that a stranger sent.

    Args:
        data: the contents.
        name: what a message calls them.
        most_pixels: a larger picture is refused before it is decoded.
    """
    try:
        picture = Image.open(BytesIO(data))
        if picture.width * picture.height > most_pixels:
            size = f"{picture.width} x {picture.height} pixels"
            raise DataError(f"{name} has {size}, more than {most_pixels:,}; make it smaller.")
        return picture.convert("RGB")
    except DataError:
        raise
    except UNREADABLE as error:
        what = "is empty (0 bytes)" if not data else f"cannot be decoded as a picture ({type(error).__name__})"
        raise DataError(f"{name} {what}; give a JPEG, PNG or another picture.") from error
