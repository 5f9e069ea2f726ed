"""Tensors, numbers and text in torch's format, with a digest of the whole file inside it.

``torch.save`` writes a zip archive, and a zip archive ends in a comment, which is where the SHA-256 digest of
all bytes but the comment stands: file and digest are renamed into place together, and ``torch.load`` and other
readers of archives see no difference. Without it a bit that flips in a file of weights gives other weights.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from genie_dg.files import FileError, read_stream, write_whole

if TYPE_CHECKING:
    import torch

FORMAT = 1
"""What every file says that has a digest: one that says so and has none was damaged."""
MOST = 2**36
"""Bytes of one file of tensors."""
MARK = b"sha256:"
END = len(MARK) + 64
"""Bytes of the comment: the mark, then the digest as hexadecimal digits."""


class DamagedFile(FileError):
    """A file does not hold what was written into it; the message says which and why."""


def save_tensors(path: Path, state: Mapping[str, Any], before: Path | None = None) -> None:
    """Write a file whole, with its digest; ``before`` keeps the one that it replaces."""
    import io

    import torch

    buffer = io.BytesIO()
    torch.save({"format": FORMAT, **state}, buffer)
    data = buffer.getbuffer()
    if bytes(data[-22:-18]) != b"PK\x05\x06" or bytes(data[-2:]) != b"\0\0":
        raise FileError(
            f"{path} was not written, because this version of torch writes archives that end in another way; "
            "install a version that this package was tested with."
        )
    digest = MARK + hashlib.sha256(data).hexdigest().encode("ascii")
    write_whole(path, [data[:-2], END.to_bytes(2, "little"), digest], before)


def load_tensors(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What `save_tensors` wrote; code in the file is never run, and one that was changed is refused.

    A file from before there were digests is read as it is.
    """
    import torch

    try:
        with read_stream(path, MOST) as file:
            checked = _checked(file)
            state: dict[str, Any] = torch.load(file, map_location=device, weights_only=True)
            if not isinstance(state, dict):
                raise ValueError("it holds no names")
            if state.get("format") is not None and not checked:
                raise ValueError("its digest is gone")
    except OSError as error:
        raise DamagedFile(f"{path} cannot be read ({error.strerror or type(error).__name__})") from error
    except ValueError as error:
        raise DamagedFile(f"{path} cannot be read ({str(error).splitlines()[0][:120]})") from error
    except Exception as error:  # torch raises what it likes for a file that is torn
        raise DamagedFile(f"{path} cannot be read ({type(error).__name__})") from error
    return state


def intact(path: Path) -> bool:
    """Whether a file is there with a digest that fits."""
    try:
        with read_stream(path, MOST) as file:
            return _checked(file)
    except (OSError, ValueError):
        return False


def _checked(file: BinaryIO) -> bool:
    """Whether the file has a digest; one that does not fit is refused, and so is what is no archive."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - END - 2))
    end = file.read()
    if end[2 : 2 + len(MARK)] != MARK:
        file.seek(max(0, size - 22))
        if size >= 2**20 and file.read(4) != b"PK\x05\x06":  # torch would look through all of it
            raise ValueError("it does not end as an archive")
        file.seek(0)
        return False
    digest, left = hashlib.sha256(), size - END - 2
    file.seek(0)
    while left:
        block = file.read(min(left, 2**20))
        digest.update(block)
        left -= len(block)
    digest.update(b"\0\0")
    if end[:2] != END.to_bytes(2, "little") or digest.hexdigest().encode("ascii") != end[2 + len(MARK) :]:
        raise ValueError("its digest does not fit: it was changed after it was written")
    file.seek(0)
    return True
