"""Put the records of complete runs into one small compressed file, which every verb reads as a folder of runs.

Weights are left out. Runs that the file has already are kept, so it can grow while a sweep goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from genie_dg.arguments import path
from genie_dg.check import InputError, printable

from ._shared import make_folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The runs, and where the file goes."""
    parser.add_argument("runs", type=path, metavar="RUNS", help="a folder of runs")
    parser.add_argument(
        "-o", "--out", type=path, required=True, metavar="FOLDER", help="where runs.tar.xz is written"
    )


def run(arguments: argparse.Namespace) -> int:
    """Pack, and say what is in the file."""
    from genie_dg.runs.archive import ARCHIVE, pack_runs

    folder: Path = arguments.runs
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder; name a folder that genie-dg train or sweep wrote.")
    archive = make_folder(arguments.out) / ARCHIVE
    count, new = pack_runs(folder, archive)
    size = archive.stat().st_size / 1024
    print(printable(f"{archive} holds {count} runs, {new} of them new ({size:,.0f} KB)."))
    return 0
