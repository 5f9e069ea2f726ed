"""Any model of timm as a backbone, under the name ``timm/<model>``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from genie_dg.check import did_you_mean
from genie_dg.facts import IMAGENET_MEAN, IMAGENET_STD
from genie_dg.registry import UnknownName

from ._featurizer import BackboneRequest, BackboneRow, Featurizer, Renormalised, need
from ._weights import WeightsError, load_weights

PREFIX = "timm/"
TIMM_LISTING = ("timm/NAME", 'any model of timm by its name (pip install "genie-dg[timm]")')
"""How all of them together are listed: a name and one line."""


def row(model: str) -> BackboneRow:
    """The row of a model of timm."""
    return BackboneRow(
        PREFIX + model,
        partial(build_timm, model),
        f"{model} of timm",
        "Wightman: PyTorch Image Models, github.com/huggingface/pytorch-image-models",
        image_size=check_name(model),
        extra="timm",
        pretrained="timm's hub",
    )


def check_name(name: str) -> int:
    """The natural image size of a model of timm; an unknown name is refused with the nearest match.

    Args:
        name: as timm writes it, without the prefix, with or without the tag of its weights.
    """
    timm = _timm(name)
    names = timm.list_models() + timm.list_models(f"{name.partition('.')[0]}.*", pretrained=True)
    if name not in names:
        hint = did_you_mean(PREFIX + name, [PREFIX + model for model in names])
        raise UnknownName(f"There is no model {PREFIX + name!r} in timm {timm.__version__}{hint}")
    return int(_config(timm.get_pretrained_cfg(name).to_dict())["input_size"][-1])


def build_timm(name: str, request: BackboneRequest) -> Featurizer:
    """A model of timm without its last layer.

    The points are the modules that timm's ``feature_info`` names, as far as their activations have channels
    in dimension 1 (those of transformers mostly do not). Models that were trained with another normalisation
    than ImageNet's begin with a fixed step that converts it.

    Differs from timm in the weights of the first convolution when images do not have 3 channels: see
    `copy_channels`.

    Args:
        name: as timm writes it.
        request: what the model is for. Models of a fixed image size are built for ``image_size``.
    """
    timm = _timm(name)
    model: Any = _create(timm, name, request, in_chans=request.channels)
    config = _config(model.pretrained_cfg)
    published = partial(_published, timm, name, request)
    first, head = ([x] if isinstance(x, str) else list(x) for x in (config["first_conv"], config["classifier"]))
    pretrained = load_weights(model, request, PREFIX + name, published, first=first, head=head)
    known = getattr(model, "feature_info", [])  # most models have it, not all
    declared = {i["module"]: int(i["num_chs"]) for i in getattr(known, "info", known) if "module" in i}
    size, points = _trial_run(name, model, declared, request)
    module, path = model, ""
    mean, std = tuple(config["mean"]), tuple(config["std"])
    if (mean, std) != (IMAGENET_MEAN, IMAGENET_STD):
        module, path = Renormalised(model, mean, std, request.channels), "network."
    channels = {point: declared[point] for point in points}
    return Featurizer(module, size, {p: path + p for p in points}, channels, pretrained)


def _timm(name: str) -> ModuleType:
    return need(PREFIX + name, "timm", "timm")


def _config(given: Mapping[str, Any]) -> dict[str, Any]:
    """Timm's configuration of a model, with ImageNet's usual numbers where it has none."""
    usual: dict[str, Any] = {"input_size": (3, 224, 224), "mean": IMAGENET_MEAN, "std": IMAGENET_STD}
    usual |= {"first_conv": (), "classifier": (), "fixed_input_size": False}
    return {**usual, **{key: value for key, value in given.items() if value is not None}}


def _create(timm: ModuleType, name: str, request: BackboneRequest, **options: Any) -> Any:
    """The model without its head, at the image size of the request where it has a fixed one."""
    config = _config(timm.get_pretrained_cfg(name).to_dict())
    if config["fixed_input_size"] and config["input_size"][-1] != request.image_size:
        options["img_size"] = request.image_size
    return timm.create_model(name, num_classes=0, **options)


def _published(timm: ModuleType, name: str, request: BackboneRequest) -> Mapping[str, Tensor]:
    """Timm's weights for 3 channels, from the cache of huggingface_hub or the internet."""
    try:
        return _create(timm, name, request, pretrained=True).state_dict()  # type: ignore[no-any-return]
    except (OSError, RuntimeError) as error:  # no network, or no weights
        raise WeightsError(
            f"The weights of {PREFIX}{name} are not in the cache of huggingface_hub and cannot be downloaded "
            f"({error}); give weights=FILE, or choose efficientnet_lite0."
        ) from error


def _trial_run(
    name: str, model: nn.Module, declared: Mapping[str, int], request: BackboneRequest
) -> tuple[int, list[str]]:
    """Run one empty image: the size of the features, and the points whose activation is as declared."""
    seen: dict[str, tuple[int, ...]] = {}

    def note(point: str, _module: nn.Module, _inputs: object, output: object) -> None:
        if isinstance(output, Tensor):
            seen[point] = tuple(output.shape)

    modules = dict(model.named_modules())
    hooks = [modules[p].register_forward_hook(partial(note, p)) for p in declared if p in modules]
    was_training = model.training
    try:
        with torch.no_grad():
            features = model.eval()(torch.zeros(1, request.channels, request.image_size, request.image_size))
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return features.shape[1], [p for p, shape in seen.items() if len(shape) == 4 and shape[1] == declared[p]]
