"""``frame.arrow`` beside many runs: the complete ones, so that the next read need not open their files.

A run is taken from there while its folder, configuration and records have the times and sizes that they had.
The file can be removed at any time.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import polars as pl

from genie_dg.files import read_whole
from genie_dg.runs.decode import decode_config
from genie_dg.runs.folder import CONFIG, RECORDS
from genie_dg.runs.read import in_parallel

INDEX = "frame.arrow"
"""The consolidated file in a folder of runs."""
_CHECK = ".crc32"
"""The ending of the file beside it that holds its checksum."""
_MOST_BYTES = 2**20
"""Of it for each run; a larger one is not an index of these runs."""
_OTHER_TYPES = {"config": pl.String(), "stamp": pl.Int64()}
"""The columns that the index has in another form than the frame, or alone."""


def stamps_of(paths: Sequence[str]) -> list[int]:
    """For each run a number that changes when its numbers or its configuration are written, or a file of it is
    replaced, added or removed; 0 where there are none.
    """
    stamps = []
    for path in paths:
        try:
            folder = os.stat(path)
            config, lines = os.stat(f"{path}/{CONFIG}"), os.stat(f"{path}/{RECORDS}")
        except OSError:
            stamps.append(0)
        else:
            sizes = config.st_size, lines.st_size
            stamps.append(hash((folder.st_mtime_ns, config.st_mtime_ns, lines.st_mtime_ns, *sizes)))
    return stamps


def read_index(folder: str, runs: int, schema: pl.Schema) -> pl.DataFrame | None:
    """The index of a folder, with a column ``stamp``; one that is damaged, or of another version, is not there.

    Args:
        folder: that holds the runs.
        runs: how many it holds now.
        schema: of the frame.
    """
    path = Path(folder) / INDEX
    try:
        data = read_whole(path, _MOST_BYTES * (runs + 64))
        if read_whole(path.with_suffix(_CHECK)) != f"{zlib.crc32(data):08x}".encode("ascii"):
            return None
        index = pl.read_ipc(data)
    except (pl.exceptions.PolarsError, OSError, ValueError):
        return None
    if index.schema != pl.Schema({**schema, **_OTHER_TYPES}):
        return None
    named = pl.format("{}{}", pl.lit(os.path.join(folder, "")), "folder")
    configs = [decode_config(text) for text in index["config"]]
    return index.with_columns(folder=named, config=pl.Series(configs, dtype=pl.Object))


def write_index(folder: str, frame: pl.DataFrame) -> None:
    """Keep the complete runs, with a checksum; a folder that cannot be written is read in full every time."""
    done = frame.filter(pl.col("done"))
    done = done.with_columns(
        folder=pl.col("folder").str.split(os.sep).list.last(),
        config=pl.Series([msgspec.json.encode(c).decode() for c in done["config"]], dtype=pl.String),
        stamp=pl.Series(in_parallel(stamps_of, done["folder"].to_list()), dtype=pl.Int64),
    )
    data, path = io.BytesIO(), Path(folder) / INDEX
    done.write_ipc(data, compression="uncompressed")
    check = f"{zlib.crc32(data.getbuffer()):08x}".encode("ascii")
    for name, contents in ((path, data.getbuffer()), (path.with_suffix(_CHECK), check)):
        part = name.with_name(f"{name.name}.{os.getpid()}.part")
        try:  # not synced: an index that is lost or torn is made again
            part.write_bytes(contents)
            part.replace(name)
        except OSError:
            with suppress(OSError):
                part.unlink()
            return
