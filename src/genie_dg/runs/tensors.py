"""Tensors, numbers and text in torch's format, checked for damage before they are used.

``torch.save`` writes a zip archive, which holds a CRC-32 of each of its members. torch does not look at them
when it loads, so a bit that flips in a file of weights would give other weights; here they are compared first.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from genie_dg.files import FileError, read_stream, write_whole

if TYPE_CHECKING:
    import torch

_MOST_BYTES = 2**36
"""Of one file of tensors."""


class DamagedFile(FileError):
    """A file does not hold what was written into it; the message says which and why."""


def save_tensors(path: Path, state: Mapping[str, Any], before: Path | None = None) -> None:
    """Write a file whole; ``before`` keeps the one that it replaces."""
    import io

    import torch

    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    write_whole(path, [buffer.getbuffer()], before)


def load_tensors(path: Path, device: torch.device | str = "cpu") -> dict[str, Any]:
    """What `save_tensors` wrote; code in the file is never run, and one that was damaged is refused."""
    import torch

    try:
        with read_stream(path, _MOST_BYTES) as file:
            _check_members(file)
            state: dict[str, Any] = torch.load(file, map_location=device, weights_only=True)
            if not isinstance(state, dict):
                raise ValueError("it holds no names")
    except Exception as error:  # torch and zipfile raise what they like for a file that is torn
        known = isinstance(error, (OSError, ValueError, zipfile.BadZipFile)) and str(error)
        why = str(error).splitlines()[0][:120] if known else type(error).__name__
        raise DamagedFile(f"{path} cannot be read ({why})") from error
    return state


def intact(path: Path) -> bool:
    """Whether a file is there and every member of it has its checksum."""
    try:
        with read_stream(path, _MOST_BYTES) as file:
            _check_members(file)
    except Exception:  # zipfile raises what it likes for a file that is torn
        return False
    return True


def _check_members(file: BinaryIO) -> None:
    """Refuse an archive of which a member was changed."""
    with zipfile.ZipFile(file) as archive:
        if archive.testzip() is not None:
            raise ValueError("a part of it was changed after it was written")
    file.seek(0)
