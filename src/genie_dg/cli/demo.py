"""The main job in miniature: optimizers fine-tune a network, from a sweep to a table and a report."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from genie_dg.arguments import path, some_text, whole
from genie_dg.check import InputError, one_of

from ._shared import make_folder, require, write

_OPTIMIZERS = ("sgd", "adam", "sam", "genie")
_COUNT = whole(1, 10**6)


@dataclass(frozen=True)
class Demo:
    """What is shown on one embedded set; its protocol is ``demo_<set>.toml`` beside this file.

    Args:
        network: lines of a sweep's overrides that name it.
        test_domains: those left out in turn, as a sweep's file has them.
        optimizers, steps, draws, trials: unless others are asked for.
        parts: of a run, with a record after each.
        packages: what it needs, by the name of the import.
        reading: how to read what came out.
    """

    network: str
    test_domains: str
    optimizers: tuple[str, ...]
    steps: int
    draws: int
    trials: int
    parts: int
    packages: dict[str, str]
    reading: str


DEMOS = {
    "styleshapes": Demo(
        'backbone = "efficientnet_lite0"\npretrained = true',
        '"leave-one-out"',
        ("sgd", "adam", "genie"),
        31,
        1,
        1,
        2,
        {"efficientnet_lite_pytorch": "efficientnet_lite_pytorch"},
        "EfficientNet-Lite0 was fine-tuned from its ImageNet weights on three of four drawing styles, and "
        "tested on the fourth; each style was left out once. Each optimizer had one learning rate, chosen "
        "beforehand on another split. One trial and one rate show the way from data to a table and decide "
        "nothing: studies/pacs in the repository compares the optimizers on real pictures, with equal "
        "budgets and intervals.",
    ),
    "digits": Demo(
        'backbone = "mlp"',
        '[["0 degrees"], ["30 degrees"], ["75 degrees"]]',
        _OPTIMIZERS,
        200,
        3,
        3,
        4,
        {"sklearn": "scikit-learn"},
        "Three angles of scikit-learn's digits were left out in turn; each optimizer had the same number of"
        " draws of its learning rate, chosen on held-back data of the angles that were trained on. The "
        "ranges were set in a pilot on the same digits, so the task is not unseen, and small differences "
        "are noise. The network starts from random weights; GENIE's claims are about fine-tuning pretrained"
        " ones.",
    ),
}
"""By the name of the set; the first is the default."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The defaults take one to three minutes on two cores."""
    parser.add_argument(
        "-o", "--out", metavar="FOLDER", type=path, help="the folder of its runs (default: runs/demo-SET)"
    )
    parser.add_argument(
        "--data",
        metavar="SET",
        type=some_text,
        default=next(iter(DEMOS)),
        help="styleshapes, with a pretrained network, or digits, from random weights (default: %(default)s)",
    )
    parser.add_argument("--steps", metavar="N", type=_COUNT, help="of each run (default: 31, for digits 200)")
    parser.add_argument("--draws", metavar="K", type=_COUNT, help="of the search (default: 1, for digits 3)")
    parser.add_argument("--trials", metavar="K", type=_COUNT, help="(default: 1, for digits 3)")
    parser.add_argument(
        "--optimizers",
        metavar="NAMES",
        type=some_text,
        help=f"some of {', '.join(_OPTIMIZERS)}, with commas (default: sgd,adam,genie, for digits all)",
    )


def pick(text: str, known: Collection[str]) -> list[str]:
    """The names in a comma-separated list, each once, all of them known."""
    names = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not names:
        raise InputError(f"The list of optimizers is empty; the choice is {', '.join(known)}.")
    for one in names:
        one_of("optimizer", one, known)
    return names


def run(arguments: argparse.Namespace) -> int:
    """Write the two files, sweep, and show what came out."""
    demo = DEMOS[one_of("--data", arguments.data, DEMOS)]
    require("The demo", "bench", demo.packages)
    from . import main

    out: Path = arguments.out or Path(f"runs/demo-{arguments.data}")
    file = write_demo(out, arguments, demo)
    code = main.main(["sweep", str(file), "--out", str(out), "--device", "cpu", "--keep", "none"])
    if code:
        return code
    print()
    for words in (
        ["table", str(out)],
        ["compare", str(out)],
        ["report", str(out), "-o", str(out / "report.html")],
    ):
        code = main.main(words) or code
    print(f"\nHow to read it: {demo.reading}")
    return code


def write_demo(out: Path, arguments: argparse.Namespace, demo: Demo) -> Path:
    """The sweep and its protocol, in the folder of the runs; returns the sweep's file."""
    asked, here = arguments.optimizers, Path(__file__).parent
    names = list(demo.optimizers) if asked is None else pick(asked, _OPTIMIZERS)
    file = out / "demo.toml"
    steps = arguments.steps or demo.steps
    text = (here / "demo_sweep.toml").read_text(encoding="utf-8")
    sweep = text.format(
        file=file,
        out=out,
        data=arguments.data,
        optimizers=", ".join(f'"{one}"' for one in names),
        network=demo.network,
        test_domains=demo.test_domains,
        draws=arguments.draws or demo.draws,
        trials=arguments.trials or demo.trials,
        steps=steps,
        every=max(1, steps // demo.parts),
    )
    make_folder(out)
    write(out / "protocol.toml", (here / f"demo_{arguments.data}.toml").read_bytes())
    write(file, sweep.encode("utf-8"))
    return file
