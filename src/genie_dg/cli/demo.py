"""The main job in miniature: optimizers fine-tune a network, from a sweep to a table and a report.

The sweep of a set is ``demo_<set>_sweep.toml`` beside this file, and its protocol ``demo_<set>.toml``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from genie_dg.arguments import path, some_text
from genie_dg.check import one_of

from ._shared import make_folder, write

READING = {
    "styleshapes": "EfficientNet-Lite0 was fine-tuned from its ImageNet weights on three of four drawing "
    "styles, and tested on the fourth; each style was left out once. Each optimizer had one learning "
    "rate, chosen beforehand on another split. One trial and one rate show the way from data to a table "
    "and decide nothing: studies/pacs in the repository compares the optimizers on real pictures, with "
    "equal budgets and intervals.",
    "digits": "Three angles of scikit-learn's digits were left out in turn; each optimizer had the same "
    "number of draws of its learning rate, chosen on held-back data of the angles that were trained on. "
    "The ranges were set in a pilot on the same digits, so the task is not unseen, and small "
    "differences are noise. The network starts from random weights; GENIE's claims are about fine- "
    "tuning pretrained ones.",
}
"""How to read what came out, by the name of the set; the first is the default."""

_FILES = Path(__file__).parent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The defaults take one to three minutes on two cores."""
    parser.add_argument(
        "-o", "--out", metavar="FOLDER", type=path, help="the folder of its runs (default: runs/demo-SET)"
    )
    text = "styleshapes, with a pretrained network, or digits, from random weights (default: %(default)s)"
    parser.add_argument("--data", metavar="SET", type=some_text, default="styleshapes", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Write the two files, sweep, and show what came out."""
    from . import main

    reading = READING[one_of("--data", arguments.data, READING)]
    out: Path = arguments.out or Path(f"runs/demo-{arguments.data}")
    file = write_demo(out, arguments.data)
    code = main.main(["sweep", str(file), "--out", str(out), "--device", "cpu", "--keep", "none"])
    if code:
        return code
    print()
    for words in (["table"], ["compare"], ["report", "-o", str(out / "report.html")]):
        code = main.main([words[0], str(out), *words[1:]]) or code
    print(f"\nHow to read it: {reading}")
    return code


def write_demo(out: Path, data: str) -> Path:
    """The sweep and its protocol, in the folder of the runs; returns the sweep's file."""
    make_folder(out)
    write(out / "protocol.toml", (_FILES / f"demo_{data}.toml").read_bytes())
    write(out / "demo.toml", (_FILES / f"demo_{data}_sweep.toml").read_bytes())
    return out / "demo.toml"
