"""The network that every algorithm trains: a backbone and a linear layer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from genie_dg._types import Edit, Network
from genie_dg.check import did_you_mean, number, whole_number
from genie_dg.registry import UnknownName

from ._featurizer import BackboneRequest, Featurizer
from .backbones import find_backbone


def freeze_statistics(module: nn.Module) -> nn.Module:
    """Put every batch norm inside a module in evaluation mode, and return the module.

    Running means and variances then stay as they are; the affine weights can still be trained. ``train()``
    undoes it: call it again after each ``train()``. A `Classifier` with frozen statistics does so by itself.

    >>> net = freeze_statistics(nn.Sequential(nn.BatchNorm1d(2), nn.Dropout()).train())
    >>> [part.training for part in net]
    [False, True]
    """
    for part in module.modules():
        if isinstance(part, _BatchNorm):
            part.eval()
    return module


@final
class Classifier(Network):
    """A featurizer and a linear head, with dropout of the features between them where asked for.

    As in DomainBed, dropout belongs to the features: what an algorithm compares or shows to an adversary is
    what the head sees.

    Args:
        backbone: makes the features.
        classes: how many logits.
        dropout: probability that a feature is set to 0 while training.
        frozen: batch-norm statistics stay as they are, whatever ``train`` is called with.
    """

    def __init__(self, backbone: Featurizer, classes: int, dropout: float = 0.0, frozen: bool = False) -> None:
        super().__init__()
        whole_number("classes", classes)
        number("dropout", dropout, 0, 1, excluding=(1,))
        self.featurizer = backbone.module
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(backbone.size, classes)
        self.feature_size, self.classes, self.frozen = backbone.size, classes, frozen
        self.points, self.point_channels = tuple(backbone.points), dict(backbone.point_channels)
        self._paths = dict(backbone.points)
        self._still: list[nn.Module] = []  # batch norms of the part that does not train
        self.train()

    def features(self, images: Tensor, edits: Mapping[str, Edit] | None = None) -> Tensor:
        """The feature vectors ``[n, feature_size]``, with dropout while training.

        Where processes share the samples, features and activations at points are those of all samples, and
        dropout is that of one process.

        Args:
            images: ``[n, channels, height, width]``.
            edits: for names of points a function of the activation there; what it returns takes its place.
        """
        features = self._edited(images, edits) if edits else self._featurized(images)
        return self.dropout(features)  # type: ignore[no-any-return]

    def _featurized(self, images: Tensor) -> Tensor:
        """Apart from `_edited`, so that torch.compile sees no hooks where there are none."""
        if self.sharing is not None:
            return self.sharing.features(self.featurizer, images)
        return self.featurizer(images)  # type: ignore[no-any-return]

    def _edited(self, images: Tensor, edits: Mapping[str, Edit]) -> Tensor:
        with ExitStack() as hooks:
            for point, edit in edits.items():
                whole = edit if self.sharing is None else self.sharing.edit(edit, len(images))
                hook = self._module_at(point).register_forward_hook(lambda _, __, out, edit=whole: edit(out))
                hooks.callback(hook.remove)
            return self._featurized(images)

    def train(self, mode: bool = True) -> Classifier:
        """Training or evaluation mode, except for frozen statistics."""
        super().train(mode)
        if self.frozen:
            freeze_statistics(self.featurizer)
        for norm in self._still:
            norm.eval()
        return self

    def freeze(self, points: int, image: Tensor) -> None:
        """Let the first feature points, and all that leads to them, train no more.

        The parameters on which the activation there depends need no gradients from now on, and the batch norms
        that are passed on the way keep their statistics.

        Args:
            points: how many; 0 for none.
            image: any image, as a batch ``[1, channels, height, width]``, to find the way.
        """
        if whole_number("freeze", points, 0, len(self.points)) == 0:
            return
        passed, activation = self._way_to(self.points[points - 1], image)
        weights = [p for p in self.featurizer.parameters() if p.requires_grad]
        used = torch.autograd.grad(activation.sum(), weights, allow_unused=True)
        for weight, gradient in zip(weights, used, strict=True):
            if gradient is not None:
                weight.requires_grad_(False)
        self._still += passed
        self.train(self.training)

    def _way_to(self, point: str, image: Tensor) -> tuple[list[nn.Module], Tensor]:
        """The batch norms that an image passes on its way to a point, and the activation there."""
        passed: list[nn.Module] = []
        seen: list[tuple[list[nn.Module], Tensor]] = []
        with ExitStack() as hooks:
            for part in self.featurizer.modules():
                if isinstance(part, _BatchNorm):
                    hook = part.register_forward_pre_hook(lambda module, _: passed.append(module))
                    hooks.callback(hook.remove)
            at = self._module_at(point).register_forward_hook(
                lambda module, inputs, output: seen.append((list(passed), output))
            )
            hooks.callback(at.remove)
            training = self.training
            hooks.callback(self.train, training)
            self.eval()
            with torch.enable_grad():
                self.featurizer(image)
        return seen[0]

    def _module_at(self, point: str) -> nn.Module:
        if point not in self._paths:
            names = ", ".join(self.points) or "none"
            hint = did_you_mean(point, self.points)
            raise UnknownName(f"This network has no feature point {point!r}; its points are {names}{hint}")
        return self.featurizer.get_submodule(self._paths[point])


def build_network(
    backbone: str,
    classes: int,
    channels: int,
    image_size: int,
    *,
    pretrained: bool = False,
    weights: str | Path | None = None,
    dropout: float = 0.0,
    freeze_statistics: bool | None = None,
    freeze: int = 0,
) -> Classifier:
    """A classifier on one of the backbones.

    Args:
        backbone: a name of `genie_dg.models.backbones.BACKBONES`, or ``timm/<model>``.
        classes: how many logits.
        channels: of the images. Pretrained weights of the first convolution are copied to other numbers than 3
            (channel c from colour c % 3, not scaled, as DomainBed does).
        image_size: height and width of the images.
        pretrained: take the backbone's published weights.
        weights: take the weights of this file instead (a state dict; a head inside it is left out).
        dropout: of the features; DomainBed's ``resnet_dropout``.
        freeze_statistics: keep batch-norm statistics as they are, as DomainBed does; ``None`` means so when the
            weights come from a file, and not so when they are drawn.
        freeze: how many feature points, with all that leads to them, do not train.

    >>> network = build_network("resnet50", classes=7, channels=3, image_size=224)
    >>> sum(p.numel() for p in network.parameters()), network.points
    (23522375, ('stem', 'layer1', 'layer2', 'layer3', 'layer4'))
    """
    request = BackboneRequest(channels, image_size, pretrained, None if weights is None else Path(weights))
    built = find_backbone(backbone).build(request)
    frozen = built.pretrained if freeze_statistics is None else freeze_statistics
    network = Classifier(built, classes, dropout, frozen)
    network.freeze(freeze, torch.zeros(1, channels, image_size, image_size))
    return network
