"""EfficientNet-Lite of ``efficientnet_lite_pytorch`` with the blocks of `_fast_layers` where these serve.

Imported only where that package is installed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

from efficientnet_lite_pytorch.model import EfficientNet, MBConvBlock  # type: ignore[import-untyped]
from efficientnet_lite_pytorch.utils import Conv2dDynamicSamePadding  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional as F

from ._fast_layers import channels_last, clamp_convolve_clamp, convolve, convolve_and_bias, serves_layers

_PLAIN_LAYERS = (Conv2dDynamicSamePadding, nn.BatchNorm2d, nn.ReLU6)
"""The layers of a block; others, such as those that adapters put in their place, are called."""


def has_no_hooks(modules: Iterable[nn.Module]) -> bool:
    """Whether modules are the network's own layers, without hooks, and with fixed statistics.

    Then another code may compute what they compute without calling them.
    """
    return all(
        type(m) in _PLAIN_LAYERS
        and not (m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or m._backward_pre_hooks)
        and not (m.training and isinstance(m, nn.BatchNorm2d))
        for m in modules
    )


@final
class LiteBlock(MBConvBlock):  # type: ignore[misc]
    """An inverted residual block; made from one of the package's by `LiteNetwork`."""

    def forward(self, inputs: Tensor, drop_connect_rate: float | None = None) -> Tensor:
        """As in the package, whose code serves where C does not."""
        if drop_connect_rate or not (serves_layers(inputs, self._bn1.weight) and has_no_hooks(self.children())):
            return super().forward(inputs, drop_connect_rate)  # type: ignore[no-any-return]
        args = self._block_args
        x, shift = channels_last(inputs), None
        if args.expand_ratio != 1:
            x, shift = convolve_and_bias(x, self._expand_conv, self._bn0)
        x = clamp_convolve_clamp(x, shift, self._depthwise_conv, self._bn1)
        x = convolve(x, self._project_conv, self._bn2)
        return x + inputs if x.shape == inputs.shape and args.id_skip and args.stride == 1 else x


@final
class LiteNetwork(EfficientNet):  # type: ignore[misc]
    """The network, with parameters and buffers under the package's names."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for block in self._blocks:
            block.__class__ = LiteBlock  # the same children and attributes, another forward

    def extract_features(self, inputs: Tensor) -> Tensor:
        """As in the package; batch norms of stem and head are folded into their convolutions."""
        outer = (self._conv_stem, self._bn0, self._conv_head, self._bn1, self._swish)
        if self._global_params.drop_connect_rate or not (
            serves_layers(inputs, self._bn0.weight) and has_no_hooks(outer)
        ):
            return super().extract_features(inputs)  # type: ignore[no-any-return]
        x = F.relu6(convolve(channels_last(inputs), self._conv_stem, self._bn0), inplace=True)
        for block in self._blocks:
            x = block(x)
        return F.relu6(convolve(x, self._conv_head, self._bn1), inplace=True)
