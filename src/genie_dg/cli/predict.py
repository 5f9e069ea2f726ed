"""Say what is on pictures: the likeliest classes of each with their probabilities."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from genie_dg.arguments import path_text, whole
from genie_dg.check import InputError

from ._shared import add_model, progress_bar, read_model

if TYPE_CHECKING:
    from pathlib import Path

    from genie_dg.inference.model import Prediction


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the pictures, and how the answers are written."""
    add_model(parser)
    text = "files, folders (all pictures below), patterns ('*.png'); for a model of a table, tables"
    parser.add_argument("pictures", nargs="+", type=path_text, metavar="PICTURES", help=text)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="as CSV: picture, rank, class, probability")
    form.add_argument("--json", action="store_true", help="as one JSON object a line")
    parser.add_argument("--top", type=whole(), default=3, help="classes of each picture (default: %(default)s)")
    parser.add_argument("--batch-size", type=whole(), default=64, help="at a time (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Predict batch by batch; what cannot be read goes to stderr, and the exit code is then 1."""
    from genie_dg.inference.pictures import picture_files

    paths = picture_files(arguments.pictures)
    if not paths:
        raise InputError(f"There is no picture in {', '.join(arguments.pictures)}; name others.")
    model = read_model(arguments)
    form = "csv" if arguments.csv else "json" if arguments.json else "text"
    items: Sequence[Path | str] = paths
    read: Callable[[Any], Any] = lambda path: path  # noqa: E731
    if model.encoding is not None:
        from genie_dg.inference.pictures import inputs_of_rows

        rows = inputs_of_rows(paths, model.encoding)
        items, read = list(rows), rows.__getitem__
    if form == "csv":
        csv.writer(sys.stdout, lineterminator="\n").writerow(["picture", "rank", "class", "probability"])
    broken = 0
    with progress_bar("predicting", len(items)) as advance:
        for batch in model.batches(items, read, arguments.batch_size):
            for _, sentence in batch.problems:
                print(f"genie-dg: {sentence}", file=sys.stderr)
            for path, prediction in zip(batch.items, model.ranked(batch.logits), strict=True):
                _say(path, prediction, form, arguments.top)
            broken += len(batch.problems)
            advance(len(batch.items) + len(batch.problems))
    return 1 if broken else 0


def _say(path: Path | str, prediction: Prediction, form: str, count: int) -> None:
    top = prediction.top(count)
    if form == "csv":
        csv.writer(sys.stdout, lineterminator="\n").writerows(
            [path, rank, name, repr(value)] for rank, (name, value) in enumerate(top, 1)
        )
    elif form == "json":
        classes = [{"class": name, "probability": value} for name, value in top]
        print(json.dumps({"picture": str(path), "classes": classes}))
    else:
        print(f"{path}  " + "  ".join(f"{name} {100 * value:.1f} %" for name, value in top))
