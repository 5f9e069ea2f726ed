"""Make one table or figure of the paper, or all: published numbers beside what is measured here.

Run it in a checkout: ``python -m paper NAME --scale smoke``. The name ``list`` says what there is, ``all``
makes everything, and ``pages`` makes the pages of docs/ and README.md anew from the numbers that were kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from genie_dg.arguments import MANY, whole
from genie_dg.check import InputError, folder, one_of, writable_folder
from genie_dg.data.registry import open_data

from .pages import write_pages
from .registry import PAPER, PaperRow
from .request import SCALES, NeedsData, Request


def parser_of_paper() -> argparse.ArgumentParser:
    """What, how large, where to."""
    parser = argparse.ArgumentParser("python -m paper", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("name", nargs="?", default="list", help="a table or figure, all, list (default) or pages")
    scales = "smoke (seconds), cpu (a miniature, minutes to an hour) or paper (default: %(default)s)"
    add("--scale", default="smoke", help=scales)
    out = Path("runs", "paper")
    add("--out", type=Path, default=out, help="the folder of what is made (default: %(default)s)")
    add("--data", default="", help="a set or a folder of pictures, instead of the embedded set")
    add("--root", type=Path, metavar="FOLDER", help="for published sets, the folder that holds them")
    add("--workers", type=whole(1, MANY), default=1, help="runs at a time (default: %(default)s)")
    only = "of the claims, this one and what is measured with it; may be given several times"
    add("--only", action="append", default=[], metavar="CLAIM", help=only)
    study = "read the claims from the packed runs of a study, such as studies/pacs, and train nothing"
    add("--study", type=Path, metavar="FOLDER", help=study)
    return parser


def run(arguments: argparse.Namespace) -> None:
    """Make what was asked for; every part leaves its files in its own folder."""
    one_of("name", arguments.name, ["all", "list", "pages", *PAPER])
    one_of("--scale", arguments.scale, SCALES)
    for option in ("only", "study"):
        if getattr(arguments, option) and arguments.name != "claims":
            raise InputError(
                f"--{option} is for claims, and {arguments.name} has none; leave it out, or ask for claims."
            )
    if arguments.name == "list":
        for row in PAPER.values():
            print(f"{row.name:15} {row.where:24} {row.summary}")
    elif arguments.name == "pages":
        write_pages(Path())
    else:
        _check_folders(arguments)
        if arguments.scale == "smoke":
            torch.set_num_threads(1)  # its networks are too small to share
        if arguments.name == "all":
            make_all(list(PAPER.values()), arguments)
        else:
            _make(PAPER[arguments.name], arguments, arguments.data)


def _check_folders(arguments: argparse.Namespace) -> None:
    """Refuse what is not there before anything is made."""
    writable_folder("--out", arguments.out)
    if arguments.study is not None:
        folder(arguments.study, "give --study the folder of a study")
    if arguments.root is not None:
        folder(arguments.root, "give --root the folder that holds the data sets")
    if arguments.data and arguments.data != "FashionMNIST":  # which the landscape reads itself
        open_data(arguments.data, arguments.root)


def make_all(rows: Sequence[PaperRow], arguments: argparse.Namespace) -> None:
    """Make every part.

    A figure at scale paper whose data set is not here is no failure: its command is printed, as tables print
    theirs.
    """
    for number, row in enumerate(rows, 1):
        own = row.own_sets and arguments.scale == "paper"
        print(f"Part {number} of {len(rows)}", flush=True)
        try:
            _make(row, arguments, "" if own else arguments.data)
        except NeedsData as error:
            command = f"python -m paper {row.name} --scale paper --root DATA"
            print(f"Not made: {error}\nThe command: {command} --out {arguments.out}\n")


def _make(row: PaperRow, arguments: argparse.Namespace, data: str) -> None:
    """Make one part, print what it says and name the files that it wrote."""
    print(f"## {row.name}: {row.summary} ({row.where})\n", flush=True)
    out, only = arguments.out / arguments.scale / row.name, tuple(arguments.only)
    request = Request(arguments.scale, out, data, arguments.root, arguments.workers, only, arguments.study)
    try:
        result = row.make(request)
    except (ValueError, ImportError, OSError) as error:
        raise error if isinstance(error, InputError) else InputError(str(error)) from error
    print(result.text)
    for file in result.files:
        print(f"wrote {file}")
    print()


def main(words: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    try:
        run(parser_of_paper().parse_args(words))
    except InputError as error:
        print(f"python -m paper: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
