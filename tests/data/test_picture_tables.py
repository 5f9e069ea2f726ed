"""Parquet of pictures, as Hugging Face's ``datasets`` writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from genie_dg.data.cache import EvalSpec, open_cache
from genie_dg.data.columns import Columns
from genie_dg.data.domains import BytesDomain, DataError, FileDomain
from genie_dg.data.loaders import Evaluation
from genie_dg.data.registry import open_data
from tests.data.pictures import folder, write

IMAGE = pl.Struct({"bytes": pl.Binary, "path": pl.String})


def parquet(path: Path, columns: dict[str, Any], root: Path, names: dict[str, list[str]] | None = None) -> Path:
    """A file as ``datasets`` writes it: pictures as ``{bytes, path}``, names of classes in the metadata."""
    files = sorted(root.glob("*/*/*.png"))
    images = [{"bytes": f.read_bytes(), "path": str(f.relative_to(root))} for f in files]
    count = len(next(iter(columns.values())))
    frame = pl.DataFrame({"image": images[:count], **columns}, schema_overrides={"image": IMAGE})
    features = {name: {"names": some, "_type": "ClassLabel"} for name, some in (names or {}).items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.write_parquet(path, metadata={"huggingface": json.dumps({"info": {"features": features}})})
    return path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Sorted by path: ink/cat, ink/dog, oil/cat, oil/dog, three of each."""
    return folder(tmp_path / "pictures", each=3)


DOMAINS = ["oil", "ink"] * 6
LABELS = [1, 0, 0, 1] * 3


def test_rows_become_domains_with_the_pixels_of_their_files(pictures: Path, tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "hub.parquet", {"label": LABELS, "domain": DOMAINS}, pictures, {"label": ["dog", "cat"]}
    )
    data = open_data(path)
    assert (data.name, data.classes, data.in_files, data.is_table) == ("hub", ("dog", "cat"), True, False)
    assert [domain.name for domain in data.domains] == ["ink", "oil"]
    files = sorted(pictures.glob("*/*/*.png"))
    for domain in data.domains:
        assert isinstance(domain, BytesDomain)
        rows = [k for k, name in enumerate(DOMAINS) if name == domain.name]
        assert domain.labels.tolist() == [LABELS[k] for k in rows]
        assert domain.where(0) == f"row {rows[0] + 1} of {path}"
        same = FileDomain(
            domain.name, pictures, [str(files[k].relative_to(pictures)) for k in rows], domain.labels
        )
        for place in range(len(rows)):
            assert np.array_equal(np.asarray(domain.read(place)), np.asarray(same.read(place)))


def test_the_cache_of_bytes_is_that_of_files(pictures: Path, tmp_path: Path) -> None:
    path = parquet(tmp_path / "hub.parquet", {"label": LABELS, "domain": DOMAINS}, pictures)
    domain = open_data(path).domains[0]
    assert isinstance(domain, BytesDomain)
    cache = open_cache(domain, EvalSpec(16), tmp_path / "cache")
    ((plain, _),) = Evaluation(domain, size=16)
    ((cached, _),) = Evaluation(domain, size=16, cache=cache)
    assert plain.equal(cached)


def test_a_folder_of_parquet_is_read_file_after_file(pictures: Path, tmp_path: Path) -> None:
    half = {"label": LABELS[:6], "domain": DOMAINS[:6]}
    parquet(tmp_path / "hub-1.0" / "data" / "train-00000-of-00002.parquet", half, pictures)
    parquet(tmp_path / "hub-1.0" / "data" / "train-00001-of-00002.parquet", half, pictures)
    data = open_data(tmp_path / "hub-1.0")
    assert (data.name, len(data)) == ("hub-1.0", 12)
    assert data.domains[0].labels.tolist() == [LABELS[k] for k in (1, 3, 5)] * 2
    assert data.classes == ("0", "1")


def test_columns_are_guessed_by_their_usual_names(pictures: Path, tmp_path: Path) -> None:
    path = parquet(tmp_path / "b.parquet", {"label": LABELS, "style": DOMAINS, "split": DOMAINS}, pictures)
    with pytest.raises(DataError, match=r"which column is the domain .*there are style, split"):
        open_data(path)
    assert len(open_data(path, columns=Columns(domain="style")).domains) == 2
    with pytest.raises(DataError, match="expected pictures"):
        open_data(path, columns=Columns(domain="style", image="split"))


def test_bytes_without_a_path_are_pictures_too(pictures: Path, tmp_path: Path) -> None:
    files = [f.read_bytes() for f in sorted(pictures.glob("*/*/*.png"))]
    pl.DataFrame({"png": files, "label": LABELS, "domain": DOMAINS}).write_parquet(tmp_path / "a.parquet")
    assert open_data(tmp_path / "a.parquet").domains[1].read(0).size == (36, 30)


def test_what_cannot_be_used_is_refused(pictures: Path, tmp_path: Path) -> None:
    files = [f.read_bytes() for f in sorted(pictures.glob("*/*/*.png"))]
    table = {"png": [*files[:-1], None], "label": LABELS, "domain": DOMAINS}
    pl.DataFrame(table).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"Row 12 of .* has no picture in it"):
        open_data(tmp_path / "a.parquet")
    table = {"png": [b"no picture", *files[1:]], "label": LABELS, "domain": DOMAINS}
    pl.DataFrame(table).write_parquet(tmp_path / "b.parquet")
    broken = open_data(tmp_path / "b.parquet").domains[1]
    assert isinstance(broken, BytesDomain)
    for use in (lambda: broken.read(0), lambda: open_cache(broken, EvalSpec(16), tmp_path / "cache")):
        with pytest.raises(DataError, match=r"row 1 of .* cannot be decoded as a picture"):
            use()
    pl.DataFrame({"png": files, "label": LABELS}).write_parquet(tmp_path / "c.parquet")
    with pytest.raises(DataError, match="which column is the domain"):
        open_data(tmp_path / "c.parquet")
    names = {"label": ["only"]}
    path = parquet(tmp_path / "d.parquet", {"label": LABELS, "domain": DOMAINS}, pictures, names)
    with pytest.raises(DataError, match="beyond the 1 names"):
        open_data(path)
    (tmp_path / "e.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="cannot be read as parquet"):
        open_data(tmp_path / "e.parquet")


def test_a_folder_of_domains_with_a_stray_parquet_is_a_folder(pictures: Path) -> None:
    parquet(pictures / "stray.parquet", {"label": LABELS, "domain": DOMAINS}, pictures)
    assert isinstance(open_data(pictures).domains[0], FileDomain)
    write(pictures / "ink" / "cat" / "more.png", 1)
    assert len(open_data(pictures)) == 13
