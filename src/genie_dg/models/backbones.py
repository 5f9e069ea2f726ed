"""The registry of backbones: networks that turn images into feature vectors.

Importing this module imports torch only; torchvision, timm and the like are imported when a backbone is built.
"""

from __future__ import annotations

from genie_dg.registry import Registry

from . import efficientnet_lite, resnet, small, timm_model
from ._featurizer import BackboneRequest, BackboneRow, Featurizer

__all__ = ["BACKBONES", "BackboneRequest", "BackboneRow", "Featurizer", "find_backbone"]

BACKBONES = Registry(
    "backbone", [*small.ROWS, *resnet.ROWS, efficientnet_lite.ROW], BackboneRow, "genie_dg.backbones"
)
"""The backbones by name. Names ``timm/<model>`` are understood besides: see `find_backbone`."""


def find_backbone(name: str) -> BackboneRow:
    """The row of a backbone: one of the registry, or one built for a name ``timm/<model>``.

    >>> find_backbone("ResNet50").name, find_backbone("cnn").pretrained
    ('resnet50', '')
    """
    if name in BACKBONES or not name.lower().startswith(timm_model.PREFIX):
        return BACKBONES[name]
    return timm_model.row(name[len(timm_model.PREFIX) :])


def listing() -> list[tuple[str, str]]:
    """The name of each backbone, and one line about it; all models of timm together."""
    return [*((row.name, row.summary) for row in BACKBONES.values()), timm_model.TIMM_LISTING]
