"""WILDS's files on disk: which picture is in which domain, with which label, in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from genie_dg.data.domains import DataError, FileDomain
from genie_dg.data.registry import open_data
from tests.data.published import layouts


def paths_of(domain: object) -> list[str]:
    assert isinstance(domain, FileDomain)
    return list(domain.paths)


def test_camelyon17_is_sorted_by_hospital(tmp_path: Path) -> None:
    data = open_data("WILDSCamelyon", layouts.camelyon17(tmp_path))
    assert data.classes == ("no tumour", "tumour")
    assert [domain.name for domain in data.domains] == [f"hospital_{k}" for k in range(5)]
    second = data.domains[1]
    first = "patches/patient_005_node_1/patch_patient_005_node_1_x_1_y_2.png"  # the zeros of 005 are kept
    assert paths_of(second)[:2] == [first, "patches/patient_005_node_0/patch_patient_005_node_0_x_6_y_12.png"]
    assert second.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert data.variant == ""  # the published set has 455,954 pictures
    for domain in data.domains:
        domain.read(0)


def test_the_folder_itself_may_be_given(tmp_path: Path) -> None:
    layouts.camelyon17(tmp_path)
    assert len(open_data("wildscamelyon", tmp_path / "camelyon17_v1.0")) == 30


def test_fmow_is_sorted_by_region_in_the_order_of_the_file(tmp_path: Path) -> None:
    data = open_data("WILDSFMoW", layouts.fmow(tmp_path))
    assert [domain.name for domain in data.domains] == ["Africa", "Europe", "Other"]
    assert data.classes == ("barn", "zoo")
    # rows 0 and 1 are sequestered; every picture keeps the number of its row
    assert paths_of(data.domains[0]) == [f"images/rgb_img_{k}.png" for k in (3, 6, 9, 12, 15, 18)]
    assert data.domains[0].labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert sum(map(len, data.domains)) == 18


def test_iwildcam_leaves_tiny_locations_out_and_says_so(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="1 of 3 locations .* fewer than 5"):
        data = open_data("WILDSiWildCam", layouts.iwildcam(tmp_path))
    assert [domain.name for domain in data.domains] == ["location_0", "location_1"]
    assert data.classes == ("empty", "ocelot")
    assert paths_of(data.domains[1])[:2] == ["train/1.jpg", "train/3.jpg"]
    assert data.domains[1].labels.tolist() == [0, 1, 0, 1, 0, 1]
    (tmp_path / "iwildcam_v2.0" / "categories.csv").unlink()
    with pytest.warns(UserWarning, match="locations"):
        assert open_data("WILDSiWildCam", tmp_path).classes == ("0", "1")


def test_what_is_not_the_published_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no folder was given") as caught:
        open_data("WILDSCamelyon")
    assert "download" not in str(caught.value)
    with pytest.raises(DataError, match=r"metadata.csv cannot be read"):
        open_data("WILDSCamelyon", tmp_path)
    (tmp_path / "metadata.csv").write_text("patient,node\n004,1\n")
    with pytest.raises(DataError, match="has no column 'x_coord'"):
        open_data("WILDSCamelyon", tmp_path)
    (tmp_path / "metadata.csv").write_text("location_remapped,y,filename\n0,x,a.jpg\n")
    with pytest.raises(DataError, match=r"'y' .* holds other than whole numbers"):
        open_data("WILDSiWildCam", tmp_path)
