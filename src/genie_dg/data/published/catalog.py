"""The published sets as facts: folders, domains in order, classes, counts. One row each; nothing is read here.

Domain order is the alphabetical order of the folders (as DomainBed counts them), class order is that of
torchvision's ``ImageFolder``: both decide which sample belongs to which split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedSet:
    """What is known of a published set.

    Args:
        folders: the names its folder goes by: DomainBed's first, then others.
        domains: folder of each domain, in order.
        letters: what tables call them.
        classes: in order; empty where only the number is fixed.
        class_count: how many classes there are.
        variants: by name, the number of images in each domain; several where several versions circulate.
    """

    name: str
    folders: tuple[str, ...]
    domains: tuple[str, ...]
    letters: tuple[str, ...]
    class_count: int
    classes: tuple[str, ...]
    variants: dict[str, tuple[int, ...] | int]

    def variant_of(self, counts: Mapping[str, int]) -> str:
        """The variant with these numbers of images by domain (or this total), or an empty string."""
        present = tuple(counts.get(domain, 0) for domain in self.domains)
        return next((name for name, known in self.variants.items() if known in (present, sum(present))), "")


PUBLISHED: dict[str, PublishedSet] = {
    row.name: row
    for row in (
        PublishedSet(
            "PACS",
            ("PACS", "kfold"),
            ("art_painting", "cartoon", "photo", "sketch"),
            ("A", "C", "P", "S"),
            7,
            ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
            {"9,991 images": (2048, 2344, 1670, 3929)},
        ),
        PublishedSet(
            "VLCS",
            ("VLCS",),
            ("Caltech101", "LabelMe", "SUN09", "VOC2007"),
            ("C", "L", "S", "V"),
            5,
            ("bird", "car", "chair", "dog", "person"),
            {"10,729 images": (1415, 2656, 3282, 3376)},
        ),
        PublishedSet(
            "OfficeHome",
            ("office_home", "OfficeHome", "OfficeHomeDataset_10072016"),
            ("Art", "Clipart", "Product", "Real World"),
            ("A", "C", "P", "R"),
            65,
            (),
            {"15,588 images": (2427, 4365, 4439, 4357)},
        ),
        PublishedSet(
            "TerraIncognita",
            ("terra_incognita", "TerraIncognita"),
            ("location_100", "location_38", "location_43", "location_46"),
            ("L100", "L38", "L43", "L46"),
            10,
            ("bird", "bobcat", "cat", "coyote", "dog", "empty", "opossum", "rabbit", "raccoon", "squirrel"),
            # Of the 2018 annotations only the total is published.
            {"24,788 images (2018 annotations)": 24788, "24,330 images (2021 JSON)": (4741, 9736, 3970, 5883)},
        ),
        PublishedSet(
            "DomainNet",
            ("domain_net", "DomainNet"),
            ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
            ("clip", "info", "paint", "quick", "real", "sketch"),
            345,
            (),
            {"586,575 images (duplicates removed)": (48129, 51605, 72266, 172500, 172947, 69128)},
        ),
    )
}
"""By name. DomainNet's duplicates are removed by DomainBed's list, which is fetched with the set."""
