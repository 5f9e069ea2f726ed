"""A model in a form that other programs run, compared with the original before it is called done.

Both forms hold, besides the weights, what a user of them must know: the names of the classes, the size of
the images and how they are normalised. The input is what ``Model.preprocess`` makes, in a batch of any size;
the output is logits.
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genie_dg.check import InputError, folder, one_of
from genie_dg.files import FileError

from ._file import optional_package, read_model_file, write_safetensors
from .model import Model
from .pictures import Picture

TOLERANCE = 1e-4
"""The largest difference of a logit, relative to the largest logit where that is above 1."""

_PICTURES = (
    "pictures resized to size x size (bilinear), divided by 255, minus mean, divided by std; where mean is "
    "null, divided by 255 only"
)
_ROWS = (
    "rows of a table; first the numbers, each minus its mean, divided by its std (0 where missing or where "
    "std is 0), then for each column of words one input for each level, 1 for the row's own"
)

_Run = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Exported:
    """A file that was written and checked.

    Args:
        path: the file.
        difference: the largest difference of a logit from the original's.
        pictures: how many were compared.
        real: whether they were given, or drawn at random.
    """

    path: Path
    difference: float
    pictures: int
    real: bool


def export(model: Model, to: str, path: Path, pictures: Sequence[Picture] = ()) -> Exported:
    """Write a model in another form; a file that differs from the original is not kept.

    Args:
        model: on the CPU.
        to: one of `EXPORT_FORMS`.
        path: the file to write.
        pictures: to compare on; without any, random ones are drawn.
    """
    one_of("form", to, EXPORT_FORMS)
    folder(path.parent, "name a file in a folder that is there")
    images = _images(model, pictures)
    part = path.with_name(f"{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        run = EXPORT_FORMS[to](model, part)
        difference = _difference(model, run, images)
        part.replace(path)
    except OSError as error:
        raise FileError(f"{path} cannot be written ({error.strerror}); name another file.") from error
    finally:
        part.unlink(missing_ok=True)
    return Exported(path, difference, len(images), bool(pictures))


def _images(model: Model, pictures: Sequence[Picture]) -> Tensor:
    if pictures:
        return model.normalised(torch.stack([model.sample(picture) for picture in pictures]))
    shape = 8, model.stored.channels, model.stored.size, model.stored.size
    generator = torch.Generator().manual_seed(0)
    if model.stored.table is not None:
        return torch.randn(shape, generator=generator)
    return model.normalised(torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8))


def _difference(model: Model, run: _Run, images: Tensor) -> float:
    """The largest difference over batches of several sizes; too large a one is refused."""
    largest = 0.0
    for size in (1, 3, len(images)):  # the batch must stay free
        expected, got = model.logits(images[:size]), run(images[:size])
        far = float((expected - got).abs().max()) if expected.shape == got.shape else math.inf
        if not far <= TOLERANCE * max(1.0, float(expected.abs().max())):
            what = f"The exported model differs from the original by {far:.2g} in a batch of {size}"
            raise FileError(f"{what}, more than {TOLERANCE:g}; try another form.")
        largest = max(largest, far)
    return largest


def description(model: Model) -> dict[str, Any]:
    """What a user of an exported file must know, as plain data."""
    stored = model.stored
    about: dict[str, Any] = {}
    kind = _PICTURES
    if stored.table is not None:
        kind, about = _ROWS, {"table": stored.table}
    about |= {name: getattr(stored, name) for name in ("classes", "channels", "size", "mean", "std")}
    about |= {"input": f"float32 [batch, channels, size, size]: {kind}", "output": "logits [batch, classes]"}
    return {**about, "run": stored.config.run_id, "step": model.record.step}


def _onnx(model: Model, path: Path) -> _Run:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        optional_package(package)
    example = torch.zeros(
        2, model.stored.channels, model.stored.size, model.stored.size
    )  # 1 would become fixed
    names: dict[str, Any] = {"input_names": ["images"], "output_names": ["logits"]}
    shapes = ({0: torch.export.Dim("batch")},)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter warns of its own internals
            program: Any = torch.onnx.export(
                model.module, (example,), dynamo=True, dynamic_shapes=shapes, verbose=False, **names
            )
    except Exception as error:  # the exporter raises what it likes
        first = (str(error).strip().splitlines() or [""])[0][:160]
        reason = f"{type(error).__name__}: {first.rstrip('.')}"
        raise InputError(f"The model cannot be written as onnx ({reason}); try another form.") from error
    program.model.metadata_props["genie_dg"] = json.dumps(description(model))
    program.save(str(path), external_data=False)
    session = optional_package("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


def _safetensors(model: Model, path: Path) -> _Run:
    write_safetensors(path, model.stored)
    return Model(read_model_file(path), path).logits


EXPORT_FORMS: dict[str, Callable[[Model, Path], _Run]] = {"onnx": _onnx, "safetensors": _safetensors}
"""The forms by name, which is also how their files end; each writes a file and returns how it is run."""
