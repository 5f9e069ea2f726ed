"""Where the published sets come from: one row for each file, exactly as the harnesses give them.

A mirror is an http address or ``drive:<id>`` for a file on Google Drive. No publisher gives checksums of the
archives, so they are None here; the one that is known is of DomainBed's list of duplicates, at the commit in
its address.
"""

from __future__ import annotations

from dataclasses import dataclass

from genie_dg.check import did_you_mean

from ..domains import DataError


@dataclass(frozen=True)
class SourceFile:
    """One file to fetch.

    Args:
        file: what it is called on disk.
        mirrors: best first, and the same set from each.
        unpacks_to: the folders in the archive that are wanted, one of which is there; empty for a plain file.
        becomes: what that folder is called below the folder of the set; empty for the set itself.
        by_hand: names of files that may be put in its place.
        sha256: checksum, where known.
        size: bytes, where known.
    """

    file: str
    mirrors: tuple[str, ...]
    unpacks_to: tuple[str, ...] = ()
    becomes: str = ""
    by_hand: tuple[str, ...] = ()
    sha256: str | None = None
    size: int | None = None


@dataclass(frozen=True)
class SetSource:
    """One set.

    Args:
        name: as in `genie_dg.data.published.catalog.PUBLISHED`.
        files: all of them are needed.
        elsewhere: copies in another layout or dead links, to tell the user and never fetched.
        camera_traps: whether the two files are pictures and annotations, which say where each picture goes.
        duplicates: the file that lists pictures to remove; empty for none.
    """

    name: str
    files: tuple[SourceFile, ...]
    elsewhere: tuple[str, ...] = ()
    camera_traps: bool = False
    duplicates: str = ""


DUPLICATES = "domain_net_duplicates.txt"
TERRA_IMAGES = "eccv_18_all_images_sm.tar.gz"
TERRA_ANNOTATIONS = "eccv_18_annotations.tar.gz"
TERRA_2021 = "caltech_camera_traps.json.zip"

_VISDA = "http://csr.bu.edu/ftp/visda/2019/multi-source"
_LILA = "https://storage.googleapis.com/public-datasets-lila/caltechcameratraps"
_OLD_LILA = "https://lilablobssc.blob.core.windows.net/caltechcameratraps"
_DOMAINBED = "https://raw.githubusercontent.com/facebookresearch/DomainBed"
_COMMIT = "b93c22a1cfc3b2428398272c1a116c8de1f4139e"


def _domain(name: str, folder: str = "") -> SourceFile:
    return SourceFile(f"{name}.zip", (f"{_VISDA}{folder}/{name}.zip",), (name,), name)


SOURCES: dict[str, SetSource] = {
    row.name: row
    for row in (
        SetSource(
            "PACS",
            (
                SourceFile(
                    "PACS.zip",
                    # DomainBed's copy, then Dassl's, whose pictures are in another folder.
                    ("drive:1JFr8f805nMUelQWWmfnJR3y4_SYoN5Pd", "drive:1m4X4fROCCXMO0lRLrr6Zz9Vb3974NWhE"),
                    ("kfold", "pacs/images", "images"),
                ),
            ),
        ),
        SetSource(
            "VLCS",
            (SourceFile("VLCS.tar.gz", ("drive:1skwblH1_okBwxWxmRsp9_qi15hyPpxg8",), ("VLCS",)),),
            # Dassl's copy has other folders; the others are what DomainBed's list rebuilds the set from.
            elsewhere=(
                "drive:1r0WL5DDqKfSPp9E3tRENwHaXNs1olLZd",
                "http://pjreddie.com/media/files/VOCtrainval_06-Nov-2007.tar",
                "drive:1I8ydxaAQunz9R_qFFdBFtw6rFTUW9goz",
                "http://groups.csail.mit.edu/vision/Hcontext/data/sun09_hcontext.tar",
            ),
        ),
        SetSource(
            "OfficeHome",
            (
                SourceFile(
                    "office_home.zip",
                    ("drive:1uY0pj7oFsjMxRwaD3Sxy0jgel0fsYXLC",),
                    ("OfficeHomeDataset_10072016",),
                ),
            ),
            elsewhere=("drive:1gkbf_KaxoBws-GWT3XIPZ7BnkqbAxIFa",),  # Dassl's, split by train and val
        ),
        SetSource(
            "TerraIncognita",
            (
                SourceFile(
                    TERRA_IMAGES,
                    (f"{_LILA}/{TERRA_IMAGES}", f"{_OLD_LILA}/{TERRA_IMAGES}"),
                    ("eccv_18_all_images_sm",),
                ),
                SourceFile(
                    TERRA_ANNOTATIONS,
                    (f"{_LILA}/{TERRA_ANNOTATIONS}",),
                    ("eccv_18_annotation_files",),
                    by_hand=(TERRA_2021,),
                ),
            ),
            elsewhere=(f"{_OLD_LILA}/labels/{TERRA_2021}",),  # the 24,330 images; dead
            camera_traps=True,
        ),
        SetSource(
            "DomainNet",
            (
                _domain("clipart", "/groundtruth"),
                _domain("infograph"),
                _domain("painting", "/groundtruth"),
                _domain("quickdraw"),
                _domain("real"),
                _domain("sketch"),
                SourceFile(
                    DUPLICATES,
                    tuple(f"{_DOMAINBED}/{at}/domainbed/misc/{DUPLICATES}" for at in (_COMMIT, "main")),
                    sha256="a52b4ab70203f4f3df381077694dba3e33ff44c26407e1c5faca76919c702770",
                    size=365_663,
                ),
            ),
            duplicates=DUPLICATES,
        ),
    )
}
"""By name."""


def source_of(name: str) -> SetSource:
    """The row of a set, by its name in any case; for an unknown name `DataError` lists the names."""
    for known, row in SOURCES.items():
        if known.lower() == name.lower():
            return row
    hint = did_you_mean(name, SOURCES)
    raise DataError(f"There is no download for {name!r}; the choice is {', '.join(SOURCES)}{hint}")
