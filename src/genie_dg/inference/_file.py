"""The file of a trained model as this package sees it: read in one place, code in it is never run.

A run's files are written by the training loop with ``torch.save``; ``genie-dg export --to safetensors`` writes
the same fields into the metadata of a safetensors file. Both are read here, and nothing else of the package
knows how a model is stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genie_dg.check import InputError, MissingPackage
from genie_dg.files import FileError
from genie_dg.runs.record import Record, RunConfig, from_mapping, record_from

FORMAT = 1
"""The only version of the format so far."""
SAFETENSORS = ".safetensors"
KEY = "genie_dg"
"""The name under which the metadata of a safetensors file holds all but the weights, as JSON."""


@dataclass(frozen=True)
class StoredModel:
    """What a model file holds.

    Args:
        weights: the state dict of the algorithm.
        config: of the run.
        classes: names, in the order of the logits.
        domains: names of all domains of the data set.
        sources: indices of the domains that were trained on.
        channels, size: of the images that the network sees; height and width are equal.
        pictures: files were decoded to RGB and resized; otherwise samples were tensors in memory.
        mean, std: what three channels were normalised with; ``None`` where nothing was.
        record: the evaluation of these weights.
        averaged: they are a mean of weights (SWAD, DiWA).
        versions: of the packages that trained.
    """

    weights: Mapping[str, Tensor] = field(repr=False)
    config: RunConfig
    classes: tuple[str, ...]
    domains: tuple[str, ...]
    sources: tuple[int, ...]
    channels: int
    size: int
    pictures: bool
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    record: Record
    averaged: bool
    versions: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """All but the weights, as plain data with the names of the file."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "weights"}
        return {"format": FORMAT, **plain, "config": asdict(self.config), "record": self.record.to_json()}


def read_model_file(path: Path) -> StoredModel:
    """The model in a file; what is not one is refused in a sentence."""
    if not path.is_file():
        raise InputError(f"{path} is not a file; name a model file, such as model.pt in the folder of a run.")
    values = _safetensors(path) if path.suffix == SAFETENSORS else _torch(path)
    if values.get("format") != FORMAT:
        raise FileError(
            f"{path} is a model file of format {values.get('format', 'none')}; this version of genie-dg reads "
            f"format {FORMAT}, which also names the classes: train the run again, or write such a file."
        )
    try:
        return _stored(values)
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(
            f"{path} is not a whole model file ({type(error).__name__}: {error}); write it again."
        ) from error


def write_safetensors(path: Path, stored: StoredModel) -> None:
    """The same model in a file that holds numbers and text only, and that other tools read."""
    # safetensors refuses tensors that share memory, as tied weights do
    weights = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in stored.weights.items()}
    described = {KEY: json.dumps(stored.to_json(), sort_keys=True), "format": "pt"}
    path.write_bytes(_library().save(weights, metadata=described))


def _stored(values: Mapping[str, Any]) -> StoredModel:
    config = dict(values["config"])
    config["average_of"] = tuple(config.get("average_of", ()))
    domains = tuple(map(str, values["domains"]))
    mean, std = (None if values.get(k) is None else tuple(map(float, values[k])) for k in ("mean", "std"))
    return StoredModel(
        weights=values["algorithm"],
        config=from_mapping(config),
        classes=tuple(map(str, values["classes"])),
        domains=domains,
        sources=tuple(map(int, values["sources"])),
        channels=int(values["channels"]),
        size=int(values["size"]),
        pictures=bool(values["pictures"]),
        mean=mean,
        std=std,
        record=record_from(values["record"], len(domains), finite=False),
        averaged=bool(values["averaged"]),
        versions=dict(values.get("versions", {})),
    )


def _torch(path: Path) -> dict[str, Any]:
    try:
        # mapped: whoever asks for the record alone does not read the weights
        values = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        raise FileError(
            f"{path} cannot be read as a model file ({type(error).__name__}); name one that genie-dg wrote."
        ) from error
    if not isinstance(values, dict) or "algorithm" not in values:
        raise FileError(f"{path} does not hold the weights of an algorithm; name a file that genie-dg wrote.")
    return values


def _safetensors(path: Path) -> dict[str, Any]:
    try:
        with _library("safe_open")(str(path), framework="pt") as file:
            described = json.loads((file.metadata() or {})[KEY])
            return {**described, "algorithm": {name: file.get_tensor(name) for name in file.keys()}}  # noqa: SIM118
    except MissingPackage:
        raise
    except Exception as error:
        raise FileError(
            f"{path} cannot be read as a model file ({type(error).__name__}); name one that genie-dg export "
            "wrote."
        ) from error


def _library(name: str = "") -> Any:
    """``safetensors.torch``, or something of ``safetensors`` itself."""
    try:
        import safetensors
        import safetensors.torch
    except ModuleNotFoundError as error:
        raise MissingPackage(
            'A safetensors file needs safetensors, not installed here; run pip install "genie-dg[export]" and '
            "try again."
        ) from error
    return getattr(safetensors, name) if name else safetensors.torch
