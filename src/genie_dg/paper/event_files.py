"""The numbers of a TensorBoard event file, read without TensorBoard.

A file is a row of records: the length as eight bytes, four bytes of checksum, the record, four more of
checksum. A record is a message of Google's protocol buffers, of which three fields matter: the step (2), and
in the summary (5) of each value (1) its tag (1) and its number (2). TensorBoard would be a dependency for this
alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from .request import PaperError

STEP, SUMMARY, VALUE, TAG, NUMBER = 2, 5, 1, 1, 2
"""Fields of an event, of its summary, and of a value of that."""

Field = int | bytes


def scalars(path: Path, endings: tuple[str, ...]) -> dict[str, list[tuple[int, float]]]:
    """Steps and numbers of the tags with these endings, by ending, in the order of the file.

    Args:
        path: the event file.
        endings: of tags, such as ``"/OSGR/OSGR"``.
    """
    series: dict[str, list[tuple[int, float]]] = {ending: [] for ending in endings}
    wanted = tuple(ending.encode() for ending in endings)
    for record in _records(path):
        if not any(ending in record for ending in wanted):
            continue  # most of a file is other tags
        step = 0
        for number, field in _fields(record, path):
            if number == STEP and isinstance(field, int):
                step = field
            elif number == SUMMARY and isinstance(field, bytes):
                for tag, value in _values(field, path):
                    for ending in endings:
                        if tag.endswith(ending):
                            series[ending].append((step, value))
    return series


def _records(path: Path) -> Iterator[bytes]:
    data, at = path.read_bytes(), 0
    while at + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        if at + 16 + length > len(data):
            return  # a run that was stopped while it wrote
        yield data[at + 12 : at + 12 + length]
        at += length + 16


def _values(summary: bytes, path: Path) -> Iterator[tuple[str, float]]:
    for number, field in _fields(summary, path):
        if number == VALUE and isinstance(field, bytes):
            parts = dict(_fields(field, path))
            tag, value = parts.get(TAG), parts.get(NUMBER)
            if isinstance(tag, bytes) and isinstance(value, bytes) and len(value) == 4:
                yield tag.decode(), struct.unpack("<f", value)[0]


def _fields(message: bytes, path: Path) -> Iterator[tuple[int, Field]]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise PaperError(
                f"{path} is not an event file of TensorBoard: a field has the unknown kind {kind}."
            )
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, and where the next field starts.

    >>> _varint(bytes([0b10101100, 0b00000010]), 0)
    (300, 2)
    """
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
