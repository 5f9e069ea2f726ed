"""A model in a form that other programs run, compared with the original before it is called done.

All three forms hold, besides the weights, what a user of them must know: the names of the classes, the size of
the images and how they are normalised. The input is what ``Model.preprocess`` makes, in a batch of any size;
the output is logits.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genie_dg.check import InputError, folder, one_of
from genie_dg.files import FileError

from ._file import SAFETENSORS, optional_package, read_model_file, write_safetensors
from .model import Model
from .pictures import Picture

TOLERANCE = 1e-4
"""The largest difference of a logit, relative to the largest logit where that is above 1."""
_RANDOM_PICTURES = 8
"""Random pictures that an export is checked on when none are given."""
_BATCH_SIZES = (1, 3)
"""Batches of these sizes are compared besides the whole one: the batch must stay free."""

_Run = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Exported:
    """A file that was written and checked.

    Args:
        path: the file.
        difference: the largest difference of a logit from the original's.
        pictures: how many were compared.
        real: whether they were given, or drawn at random.
        batch_matters: the model adapts to the batch that it predicts, as MTL and ARM do.
    """

    path: Path
    difference: float
    pictures: int
    real: bool
    batch_matters: bool


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
        run = EXPORT_FORMS[to].write(model, part)
        difference = _difference(model, run, images)
        part.replace(path)
    except OSError as error:
        raise FileError(f"{path} cannot be written ({error.strerror}); name another file.") from error
    finally:
        part.unlink(missing_ok=True)
    alone = torch.cat([model.logits(images[k : k + 1]) for k in range(len(images))])
    batch_matters = not _close(alone, model.logits(images))
    return Exported(path, difference, len(images), bool(pictures), batch_matters)


def _images(model: Model, pictures: Sequence[Picture]) -> Tensor:
    if pictures:
        return model.normalised(torch.stack([model.sample(picture) for picture in pictures]))
    shape = _RANDOM_PICTURES, model.stored.channels, model.stored.size, model.stored.size
    generator = torch.Generator().manual_seed(0)
    if model.stored.table is not None:
        return torch.randn(shape, generator=generator)
    return model.normalised(torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8))


def _difference(model: Model, run: _Run, images: Tensor) -> float:
    """The largest difference over batches of several sizes; too large a one is refused."""
    largest = 0.0
    for size in {len(images), *(size for size in _BATCH_SIZES if size <= len(images))}:
        expected, got = model.logits(images[:size]), run(images[:size])
        if expected.shape != got.shape or not _close(expected, got):
            far = "another shape" if expected.shape != got.shape else f"{(expected - got).abs().max():.2g}"
            raise FileError(
                f"The exported model differs from the original by {far} in a batch of {size}, more than "
                f"{TOLERANCE:g}; {model.config.algorithm} on {model.config.backbone} cannot be exported so: "
                "try another form."
            )
        largest = max(largest, float((expected - got).abs().max()))
    return largest


def _close(expected: Tensor, got: Tensor) -> bool:
    scale = max(1.0, float(expected.abs().max()))
    return float((expected - got).abs().max()) <= TOLERANCE * scale


def description(model: Model) -> dict[str, Any]:
    """What a user of an exported file must know, as plain data."""
    stored = model.stored
    pictures = (
        "pictures resized to size x size (bilinear), divided by 255, minus mean, divided by std; where mean is "
        "null, divided by 255 only"
    )
    rows = (
        "rows of a table; first the numbers, each minus its mean, divided by its std (0 where missing or where "
        "std is 0), then for each column of words one input for each level, 1 for the row's own"
    )
    about = {} if stored.table is None else {"table": stored.table}
    return {
        "classes": list(stored.classes),
        "channels": stored.channels,
        "size": stored.size,
        "mean": stored.mean,
        "std": stored.std,
        "input": f"float32 [batch, channels, size, size]: {pictures if stored.table is None else rows}",
        "output": "logits [batch, classes]",
        "run": stored.config.run_id,
        "step": model.record.step,
        **about,
    }


def _example(model: Model) -> Tensor:
    size = model.stored.size
    return torch.zeros(2, model.stored.channels, size, size)  # 2: a batch of 1 would be taken as fixed


def _onnx(model: Model, path: Path) -> _Run:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        optional_package(package)
    with warnings.catch_warnings(), _refusal(model, "onnx"):
        warnings.simplefilter("ignore")  # the exporter warns of its own internals
        program: Any = torch.onnx.export(
            model.module,
            (_example(model),),
            dynamo=True,
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            input_names=["images"],
            output_names=["logits"],
            verbose=False,
        )
        program.model.metadata_props["genie_dg"] = json.dumps(description(model))
        program.save(str(path), external_data=False)
    session = optional_package("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


def _torchscript(model: Model, path: Path) -> _Run:
    extra = {"genie_dg.json": json.dumps(description(model))}
    with warnings.catch_warnings(), torch.no_grad(), _refusal(model, "torchscript"):
        warnings.simplefilter("ignore")  # deprecated, and still what many C++ programs load
        trace: Any = torch.jit.trace  # untyped
        script = trace(model.module, _example(model), check_trace=False)
        torch.jit.save(script, str(path), _extra_files=extra)
        loaded: Any = torch.jit.load(str(path))  # type: ignore[no-untyped-call]

    def run(images: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = loaded(images)
        return logits

    return run


def _safetensors(model: Model, path: Path) -> _Run:
    write_safetensors(path, model.stored)
    return Model(read_model_file(path), path).logits


@contextmanager
def _refusal(model: Model, form: str) -> Iterator[None]:
    """What an exporter cannot do, as one sentence."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0][:160]
        raise InputError(
            f"{model.config.algorithm} on {model.config.backbone} cannot be written as {form} "
            f"({type(error).__name__}: {first.rstrip('.')}); try another form."
        ) from error


@dataclass(frozen=True)
class Form:
    """One form: how it is written and run, and how its files end."""

    write: Callable[[Model, Path], _Run]
    ending: str


EXPORT_FORMS = {
    "onnx": Form(_onnx, ".onnx"),
    "torchscript": Form(_torchscript, ".torchscript.pt"),
    "safetensors": Form(_safetensors, SAFETENSORS),
}
"""The forms by name."""
