"""Say how right a model is on labelled pictures: by domain and class, confusion, macro-F1 and calibration."""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genie_dg.arguments import path, path_text, whole
from genie_dg.bench.options import add_flags, columns_from
from genie_dg.check import InputError, folder, writable_file

from ._shared import add_model, progress_bar, read_labelled, read_model, require, tell_problems, write

if TYPE_CHECKING:
    from genie_dg.inference.evaluate import Evaluated

_MISTAKES, _SIDE = 24, 160
"""Pictures of mistakes on the page, and their size in pixels."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The model, the pictures, and what is written."""
    add_model(parser)
    text = "a folder <domain>/<class>/<picture> or <class>/<picture>, a list, a table, or the name of a set"
    parser.add_argument("data", type=path_text, help=text)
    text = "for published sets, the folder that holds them"
    parser.add_argument("--root", type=path_text, metavar="FOLDER", help=text)
    text = (
        "only what the table counts, the 80 %% parts of the run's test domains: the accuracy equals the table's"
    )
    parser.add_argument("--as-table", action="store_true", help=text)
    parser.add_argument("--batch-size", type=whole(), default=64, help="at a time (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="all numbers as JSON, from 0 to 1")
    parser.add_argument("--page", type=path, metavar="FILE", help="also write a page that opens offline")
    add_flags(parser, "evaluate")


def run(arguments: argparse.Namespace) -> int:
    """Predict, count, print; pictures that cannot be read go to stderr, and the exit code is then 1."""
    if arguments.page is not None:
        require("The page", "report", {"jinja2": "jinja2", "matplotlib": "matplotlib"})
        writable_file("--page", arguments.page)
    if arguments.root is not None:
        folder(Path(arguments.root), "give --root the folder that holds the data sets")
    model = read_model(arguments)
    from genie_dg.inference.evaluate import evaluate, evaluate_as_table

    if model.encoding is not None and arguments.page is not None:
        raise InputError("The page shows pictures, and this model is of a table; leave --page out.")
    data = read_labelled(arguments.data, arguments.root, model, columns_from(arguments))
    with progress_bar("evaluating", len(data)) as advance:
        if arguments.as_table:
            evaluated = evaluate_as_table(model, data, advance)
        else:
            evaluated = evaluate(model, data, arguments.batch_size, advance)
    for note in evaluated.notes:
        print(f"Note: {note}", file=sys.stderr)
    tell_problems(evaluated.problems)
    numbers = evaluated.to_json()
    print(json.dumps(numbers, indent=1) if arguments.json else "\n".join(_summary(numbers)))
    if arguments.page is not None:
        _write_page(arguments.page, evaluated, numbers)
    return 1 if evaluated.problems else 0


def _summary(numbers: dict[str, Any]) -> list[str]:
    """The numbers to read, in percent."""
    from genie_dg.results.render import markdown_table, percent

    def rows(what: str, *keys: str) -> list[list[str]]:
        return [[one["name"], *(percent(one[k]) for k in keys), str(one["pictures"])] for one in numbers[what]]

    domains, classes = rows("domains", "accuracy", "macro_f1"), rows("classes", "accuracy", "precision", "f1")
    which = " (the 80 % parts of the test domains)" if numbers["part"] == "table" else ""
    return [
        f"{numbers['data']}{which}: {percent(numbers['accuracy'], 2)} % of {numbers['pictures']} are right; "
        f"macro-F1 {percent(numbers['macro_f1'], 2)} %, expected calibration error "
        f"{percent(numbers['calibration_error'], 2)} points; worst domain {numbers['worst_domain']}.",
        "",
        markdown_table(["domain", "accuracy", "macro-F1", "pictures"], domains, 1),
        "",
        markdown_table(["class", "accuracy", "precision", "F1", "pictures"], classes, 1),
    ]


def _write_page(path: Path, evaluated: Evaluated, numbers: dict[str, Any]) -> None:
    """The page with the surest mistakes as small pictures."""
    from genie_dg.inference.pictures import thumbnail
    from genie_dg.results.evaluation_page import Mistake, evaluation_page

    mistakes, classes = [], evaluated.model.classes
    for one, at in evaluated.mistakes(_MISTAKES):
        place, file = int(one.positions[at]), io.BytesIO()
        thumbnail(one.domain.read(place), _SIDE).save(file, "JPEG", quality=85)
        label, predicted = classes[one.labels[at]], classes[one.predicted[at]]
        where = "/".join(Path(one.domain.where(place)).parts[-3:])  # domain, class and name of a file
        mistakes.append(Mistake(file.getvalue(), where, label, predicted, float(one.confidence[at])))
    write(path, evaluation_page(numbers, evaluated.model.describe(), mistakes).encode("utf-8", "replace"))
    print(f"The page is in {path}; open it in a browser.", file=sys.stderr)
