"""Tables of pictures: parquet as Hugging Face's ``datasets`` writes it, with an image, a label and a domain.

The column of images holds ``{bytes, path}`` or the bytes alone. Where ``datasets`` has written the names of the
classes, they stand for the numbers, in its order; otherwise classes are the distinct labels, sorted, as domains
always are. Rows keep their order, those of several files one file after another. The pictures stay in memory as
they are in the file, and each is decoded when it is needed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from .columns import DOMAIN, LABEL, Columns, chosen_column
from .domains import BytesDomain, DataError, Domain, DomainSet
from .table_files import class_names, codes_of, parquet_kinds, read_frame, table_name


def image_columns(path: Path) -> list[str]:
    """The columns of a parquet file, or of a folder of them, that hold pictures."""
    return [name for name, kind in parquet_kinds(path).items() if _holds_images(kind)]


def _holds_images(kind: pl.DataType) -> bool:
    if isinstance(kind, pl.Struct):
        return any(field.name == "bytes" and field.dtype == pl.Binary for field in kind.fields)
    return bool(kind == pl.Binary)


def open_pictures(path: str | Path, columns: Columns = Columns(), name: str | None = None) -> DomainSet:  # noqa: B008  # frozen
    """The domains of a table of pictures.

    Args:
        path: a parquet file, or a folder of parquet files.
        columns: which column says what; what is not named is guessed where there is one choice only.
        name: what tables of results call the set; by default the name of the file or folder.
    """
    path = Path(path)
    names = class_names(path)
    image, label, domain = chosen = _chosen(path, columns)
    frame = read_frame(path, list(chosen))
    of_domain, domains = codes_of(frame[domain], path, names.get(domain, ()))
    of_class, classes = codes_of(frame[label], path, names.get(label, ()))
    files = _contents(frame[image], path)
    sets: list[Domain] = []
    for k, one in enumerate(domains):
        rows = np.flatnonzero(of_domain == k)
        if len(rows):  # a name that no row has is left out
            sets.append(BytesDomain(one, files.gather(rows).to_list(), of_class[rows], rows + 1, str(path)))
    return DomainSet(name or table_name(path), classes, tuple(sets))


def _chosen(path: Path, columns: Columns) -> tuple[str, str, str]:
    """The columns of image, label and domain."""
    kinds, images = parquet_kinds(path), image_columns(path)
    present = [name for name in kinds if name not in columns.ignored]
    image = chosen_column(
        "image", columns.image or (images[0] if len(images) == 1 else ""), present, ("image",), path
    )
    if image not in images:
        raise DataError(
            f"The column {image!r} of {path} is of the kind {kinds[image]}; expected pictures, as bytes or as "
            "{bytes, path}."
        )
    rest = [name for name in present if name not in images]
    label = chosen_column("label", columns.label, rest, LABEL, path)
    others = [name for name in rest if name != label]
    return image, label, chosen_column("domain", columns.domain, others, DOMAIN, path)


def _contents(column: pl.Series, path: Path) -> pl.Series:
    """The bytes of the pictures."""
    files = column if column.dtype == pl.Binary else column.struct.field("bytes")
    if missing := files.null_count():
        row = int(files.is_null().arg_true()[0]) + 1
        raise DataError(
            f"Row {row} of {path} has no picture in it, and {missing - 1:,} more; fill or remove these rows. "
            "Pictures in files of their own are read from a list (path, label, domain)."
        )
    return files
