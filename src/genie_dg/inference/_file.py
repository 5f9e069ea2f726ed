"""A model file as a `ModelFile`, whichever of its two forms it has; code in it is never run.

Runs write them in torch's format; ``genie-dg export --to safetensors`` writes the same fields into the metadata
of a safetensors file.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from genie_dg.check import InputError, MissingPackage
from genie_dg.files import FileError
from genie_dg.runs.model_file import ModelFile

SAFETENSORS = ".safetensors"
KEY = "genie_dg"
"""The name under which the metadata of a safetensors file holds all but the weights, as JSON."""


def read_model_file(path: Path) -> ModelFile:
    """The model in a file; what is not one is refused in a sentence."""
    if not path.is_file():
        raise InputError(f"{path} is not a file; name a model file, such as model.pt in the folder of a run.")
    try:
        safe = path.suffix == SAFETENSORS
        stored = ModelFile.from_state(path, _safetensors(path)) if safe else ModelFile.load(path)
        if not stored.complete:
            raise FileError(f"{path} was written by a version of genie-dg that did not name the classes")
        stored.evaluation()
    except FileError as error:
        raise FileError(f"{str(error).rstrip('.')}; name another model file.") from error
    except (InputError, ValueError, TypeError) as error:
        reason = str(error).rstrip(".")
        raise FileError(f"{path} is not a whole model file ({reason}); write it again.") from error
    return stored


def write_safetensors(path: Path, stored: ModelFile) -> None:
    """The same model in a file that holds numbers and text only, and that other tools read."""
    # safetensors refuses tensors that share memory, as tied weights do
    weights = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in stored.algorithm.items()}
    described = {KEY: json.dumps(stored.facts(), sort_keys=True), "format": "pt"}
    path.write_bytes(optional_package("safetensors.torch").save(weights, metadata=described))


def _safetensors(path: Path) -> Mapping[str, Any]:
    try:
        with optional_package("safetensors").safe_open(str(path), framework="pt") as file:
            described = json.loads((file.metadata() or {})[KEY])
            return {**described, "algorithm": {name: file.get_tensor(name) for name in file.keys()}}  # noqa: SIM118
    except MissingPackage:
        raise
    except Exception as error:  # the library raises what it likes for a file that is torn
        raise FileError(f"{path} cannot be read as a model file ({type(error).__name__})") from error


def optional_package(name: str) -> Any:
    """A package of the extra ``export``."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise MissingPackage(f'This needs {name}; run pip install "genie-dg[export]".') from error
