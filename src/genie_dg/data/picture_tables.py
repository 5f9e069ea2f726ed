"""Tables of pictures: parquet as Hugging Face's ``datasets`` writes it, with an image, a label and a domain.

The column of images holds ``{bytes, path}`` or the bytes alone. Where ``datasets`` has written the names of the
classes, they stand for the numbers, in its order; otherwise classes are the distinct labels, sorted, as domains
always are. Rows keep their order, those of several files one file after another. The pictures stay in memory as
they are in the file, and each is decoded when it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from .columns import DOMAIN, LABEL, Columns, chosen_column
from .domains import BytesDomain, DataError, Domain, DomainSet, FileDomain
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
    files, paths = _contents(frame[image], path)
    root = path if path.is_dir() else path.resolve().parent
    sets: list[Domain] = []
    for k, one in enumerate(domains):
        rows = np.flatnonzero(of_domain == k)
        if not len(rows):
            continue  # a name that no row has
        if paths is not None:
            sets.append(FileDomain(one, root, [paths[int(i)] for i in rows], of_class[rows]))
        else:
            sets.append(BytesDomain(one, _Files(files.gather(rows)), of_class[rows], rows + 1, str(path)))
    return DomainSet(name or table_name(path), classes, tuple(sets))


class _Files(Sequence[bytes]):
    """A column of bytes, one picture at a time."""

    def __init__(self, column: pl.Series) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, index: int) -> bytes:  # type: ignore[override]  # slices are never asked for
        content: bytes = self._column[index]
        return content


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


def _contents(column: pl.Series, path: Path) -> tuple[pl.Series, list[str] | None]:
    """The bytes of the pictures; where none has any, their paths."""
    if column.dtype == pl.Binary:
        files, paths = column, None
    else:
        fields = column.struct.unnest()
        files, paths = fields["bytes"], fields["path"] if "path" in fields.columns else None
    missing = files.null_count()
    if missing == len(files) and paths is not None and not paths.null_count():
        return files, paths.to_list()
    if missing:
        row = int(files.is_null().arg_true()[0]) + 1
        raise DataError(
            f"Row {row} of {path} has no picture, and {missing - 1:,} more; fill or remove these rows."
        )
    return files, None
