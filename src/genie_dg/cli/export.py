"""Write a model in a form that other programs run, compared with the original before it counts as done."""

from __future__ import annotations

import argparse

from genie_dg.arguments import path, path_text, some_text
from genie_dg.check import one_of, writable_file

from ._shared import add_model, read_model, require


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the form, the file, and pictures to compare on."""
    add_model(parser, device=False)
    parser.add_argument("--to", required=True, type=some_text, metavar="FORM", help="onnx or safetensors")
    text = "(default: beside the model, with another ending)"
    parser.add_argument("-o", "--out", type=path, metavar="FILE", help=text)
    text = "files, folders or patterns; the two are compared on the first 64 (default: random pictures)"
    parser.add_argument("--pictures", nargs="+", type=path_text, default=[], metavar="PICTURES", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Export, compare, say by how much they differ."""
    from genie_dg.inference.export import EXPORT_FORMS, export

    one_of("--to", arguments.to, EXPORT_FORMS)
    packages = ("onnx", "onnxscript", "onnxruntime") if arguments.to == "onnx" else ("safetensors",)
    require("This export", "export", {name: name for name in packages})
    if arguments.out is not None:
        writable_file("--out", arguments.out)
    model = read_model(arguments)
    from genie_dg.inference.pictures import picture_files

    file = arguments.out or model.path.with_suffix(f".{arguments.to}")
    done = export(model, arguments.to, file, picture_files(arguments.pictures)[:64])
    kind = "pictures" if done.real else "random pictures"
    print(
        f"{done.path}: {file.stat().st_size / 1e6:.1f} MB; the largest difference of a logit from the original "
        f"is {done.difference:.2g}, on {done.pictures} {kind}."
    )
    return 0
