"""Weights from files: read them, fit them to a number of channels, load_weights them or say why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from genie_dg.check import InputError, MissingPackage

from ._featurizer import BackboneRequest, need


class WeightsError(InputError):
    """The weights asked for are not available or do not fit."""


def read_state(path: Path) -> dict[str, Tensor]:
    """The state dict in a file. Nothing in the file is executed.

    Args:
        path: ``*.safetensors``, or anything that ``torch.load(..., weights_only=True)`` reads.
    """
    if not path.is_file():
        raise WeightsError(f"There is no file {path}; give weights= the path of a file with a state dict.")
    try:
        if path.suffix == ".safetensors":
            state: object = need("with weights in safetensors", "safetensors.torch", "timm").load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except MissingPackage:
        raise
    except Exception as error:  # what is raised for a file of another kind depends on its first bytes
        raise WeightsError(
            f"{path} cannot be read as tensors only ({type(error).__name__}); "
            "save a state dict with torch.save(model.state_dict(), file)."
        ) from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise WeightsError(
            f"{path} does not hold a plain state dict (names of parameters with their tensors); "
            "save one with torch.save(model.state_dict(), file)."
        )
    return dict(state)


def copy_channels(weight: Tensor, channels: int) -> Tensor:
    """The weight of a first convolution, ``[out, 3, h, w]``, for images of another number of channels.

    Channel c is a copy of colour c % 3, not scaled, as DomainBed does it: with 4 channels the first has twice
    the share, with 1 channel only red is left.

    >>> copy_channels(torch.tensor([[1.0, 2.0, 3.0]]).view(1, 3, 1, 1), 4).flatten().tolist()
    [1.0, 2.0, 3.0, 1.0]
    """
    if weight.shape[1] != 3:
        return weight
    return weight[:, torch.arange(channels) % 3].clone()


def load_weights(
    module: nn.Module,
    request: BackboneRequest,
    name: str,
    published: Callable[[], Mapping[str, Tensor]] | None = None,
    *,
    first: Sequence[str] = (),
    head: Sequence[str] = (),
) -> bool:
    """Load the weights that a request asks for, if any, into a featurizer, and say whether it did.

    Args:
        module: what to load_weights into.
        request: names the file, or asks for the published weights.
        name: of the backbone, for messages.
        published: returns the published state dict of the same network, with or without its head.
        first: names of the convolutions that see the images; see `copy_channels`.
        head: names of the modules that are left out.
    """
    if request.weights is not None:
        state, source = read_state(request.weights), str(request.weights)
    elif request.pretrained and published is not None:
        state, source = dict(published()), f"the published {name}"
    elif request.pretrained:
        raise WeightsError(
            f"The backbone {name} has no published weights; leave pretrained=True out, or give weights=FILE."
        )
    else:
        return False
    kept = {key: value for key, value in state.items() if not key.startswith(tuple(f"{h}." for h in head))}
    for key in (f"{conv}.weight" for conv in first):
        if key in kept:
            kept[key] = copy_channels(kept[key], request.channels)
    try:
        module.load_state_dict(kept)  # batch norms of old files, which did not count batches, begin at 0
    except RuntimeError as error:
        first = str(error).splitlines()[1].strip()
        raise WeightsError(
            f"The weights of {source} do not fit the backbone: {first[:200]}; give it its own weights."
        ) from error
    return True
