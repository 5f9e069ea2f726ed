"""Camelyon17, FMoW and iWildCam as WILDS publishes them: pictures, and a CSV file that says what each one is.

The files are read as they are unpacked; the package ``wilds`` is not needed. Rows keep the order of the CSV, so
the splits of Camelyon17 and FMoW are those of DomainBed's ``WILDSCamelyon`` and ``WILDSFMoW``. WILDS's own
splits (domains to validate and to test on) are not used: every domain can be the one that is left out.

References: Koh et al.: WILDS: A Benchmark of in-the-Wild Distribution Shifts, ICML 2021.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from genie_dg.check import folder

from ..domains import DataError, DomainSet, FileDomain
from ..image_folders import DataWarning

_FEWEST = 5
"""Pictures of a domain at least: a fifth is held back."""
_OTHER = "Other"
"""The region of a country that FMoW's table of countries does not name."""


def camelyon17(root: Path) -> DomainSet:
    """Tumour or not on a patch of tissue; the domain is the hospital (column ``center``)."""
    rows = _metadata(root / "metadata.csv", ("patient", "node", "x_coord", "y_coord", "tumor", "center"))
    place = pl.format("patient_{}_node_{}", "patient", "node")
    paths = rows.select(pl.format("patches/{}/patch_{}_x_{}_y_{}.png", place, place, "x_coord", "y_coord"))
    labels, centres = _whole(rows["tumor"], root), _whole(rows["center"], root)
    domains = [(f"hospital_{k}", np.flatnonzero(centres == k)) for k in np.unique(centres)]
    return _assembled(
        "WILDSCamelyon", root, paths.to_series().to_list(), labels, ("no tumour", "tumour"), domains
    )


def fmow(root: Path) -> DomainSet:
    """What a place is used for, seen from a satellite; the domain is the region of its country.

    Regions are in the order in which the file first names them, which is DomainBed's ``region_0`` to
    ``region_5``. Sequestered pictures (split ``seq``) are not in the set, but count in the names of the files.
    """
    rows = _metadata(root / "rgb_metadata.csv", ("split", "category", "country_code"))
    countries = _metadata(root / "country_code_mapping.csv", ("alpha-3", "region"))
    region_of = dict(countries.drop_nulls().select("alpha-3", "region").iter_rows())
    regions = [region_of.get(code, _OTHER) for code in rows["country_code"]]
    kept = np.flatnonzero((rows["split"] != "seq").to_numpy())
    classes = sorted(rows["category"].unique().to_list())
    numbers = {name: k for k, name in enumerate(classes)}
    labels = np.array([numbers[name] for name in rows["category"]], dtype=np.int64)[kept]
    of_kept = np.array(regions, dtype=object)[kept]
    names = [name for name in dict.fromkeys(regions) if (of_kept == name).any()]
    domains = [(name, np.flatnonzero(of_kept == name)) for name in names]
    paths = [f"images/rgb_img_{index}.png" for index in kept]
    return _assembled("WILDSFMoW", root, paths, labels, classes, domains)


def iwildcam(root: Path) -> DomainSet:
    """Which animal is on the picture of a camera trap; the domain is the trap (column ``location_remapped``).

    Traps with fewer than five pictures cannot be split and are left out, with a warning that says how many.
    """
    rows = _metadata(root / "metadata.csv", ("location_remapped", "y", "filename"))
    labels, traps = _whole(rows["y"], root), _whole(rows["location_remapped"], root)
    domains = [(f"location_{k}", np.flatnonzero(traps == k)) for k in np.unique(traps)]
    kept = [(name, some) for name, some in domains if len(some) >= _FEWEST]
    if len(kept) < len(domains):
        warnings.warn(
            f"{len(domains) - len(kept)} of {len(domains)} locations of {root} have fewer than {_FEWEST} "
            "pictures and are left out.",
            DataWarning,
            stacklevel=4,
        )
    paths = [f"train/{name}" for name in rows["filename"]]
    return _assembled("WILDSiWildCam", root, paths, labels, _animals(root, int(labels.max()) + 1), kept)


def _animals(root: Path, count: int) -> tuple[str, ...]:
    """The names of the classes from ``categories.csv``; their numbers where that is not there."""
    names = {k: str(k) for k in range(count)}
    if (root / "categories.csv").is_file():
        rows = _metadata(root / "categories.csv", ("y", "name"))
        named = dict(zip(_whole(rows["y"], root).tolist(), rows["name"], strict=True))
        names |= {k: name for k, name in named.items() if k in names and name}
    return tuple(names.values())


def _metadata(path: Path, columns: Sequence[str]) -> pl.DataFrame:
    """Columns of a CSV file as text, as they stand in it: the number of a patient keeps its zeros."""
    folder(path.parent, "give the folder of the set as WILDS unpacks it", DataError)
    try:
        frame = pl.read_csv(path, infer_schema=False, glob=False)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(
            f"{path} cannot be read ({(str(error).splitlines() or [''])[0][:120]}); give the folder of the set "
            "as WILDS unpacks it."
        ) from error
    missing = [name for name in columns if name not in frame.columns]
    if missing or not len(frame):
        lacks = f"has no column {missing[0]!r}" if missing else "has no row"
        raise DataError(f"{path} {lacks}; give the folder of the set as WILDS unpacks it.")
    return frame.select(columns)


def _whole(column: pl.Series, root: Path) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Whole numbers from 0, which pandas may have written as 1.0."""
    numbers = column.cast(pl.Float64, strict=False)
    if numbers.null_count() or not bool(((numbers >= 0) & (numbers == numbers.floor())).all()):
        raise DataError(
            f"The column {column.name!r} of {root} holds other than whole numbers from 0; replace it."
        )
    return numbers.to_numpy().astype(np.int64)


def _assembled(
    name: str,
    root: Path,
    paths: Sequence[str],
    labels: np.ndarray[tuple[int], np.dtype[np.int64]],
    classes: Sequence[str],
    domains: Sequence[tuple[str, np.ndarray[tuple[int], np.dtype[np.int64]]]],
) -> DomainSet:
    """Domains of the rows of each."""
    sets = tuple(FileDomain(one, root, [paths[int(i)] for i in rows], labels[rows]) for one, rows in domains)
    return DomainSet(name, tuple(classes), sets)
