"""Print a script that completes verbs, options and names in a shell; shtab makes it from the parsers."""

from __future__ import annotations

import argparse

from genie_dg.arguments import flag_of, infos, path, path_text, some_text
from genie_dg.check import one_of

_PLACES = {
    "bash": "genie-dg completion bash > ~/.local/share/bash-completion/completions/genie-dg",
    "zsh": "genie-dg completion zsh > ~/.zfunc/_genie-dg, with ~/.zfunc in $fpath before compinit",
    "fish": "genie-dg completion fish > ~/.config/fish/completions/genie-dg.fish",
}
"""The shells, and how each script is put in its place."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument("shell", type=some_text, help=f"{', '.join(_PLACES)}: {_PLACES['bash']}")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from .main import build_parser

    one_of("shell", arguments.shell, _PLACES)
    parser = build_parser()
    offer_choices(parser, names())
    print(shtab.complete(parser, arguments.shell))
    return 0


def offer_choices(parser: argparse.ArgumentParser, known: dict[str, list[str]]) -> None:
    """Give the arguments of a parser and of its verbs what completion offers."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                offer_choices(child, known)
        else:
            action.choices = known.get(action.option_strings[-1] if action.option_strings else action.dest)
            if action.choices is None and action.type in (path, path_text):
                action.complete = shtab.FILE  # type: ignore[attr-defined]


def names() -> dict[str, list[str]]:
    """The values of options and positional arguments that come from registries and fields."""
    from genie_dg.algorithms.registry import ALGORITHMS
    from genie_dg.bench.diwa import CHOICES
    from genie_dg.bench.engines.registry import ENGINES
    from genie_dg.bench.options import RunOptions
    from genie_dg.bench.trackers.tracker import TRACKERS
    from genie_dg.bench.watch import WATCHES
    from genie_dg.data.registry import SETS
    from genie_dg.models.backbones import BACKBONES
    from genie_dg.optim.registry import OPTIMIZERS
    from genie_dg.results.render import TABLE_FORMATS
    from genie_dg.results.select import METHODS
    from genie_dg.runs.config import RunConfig

    from .list import LISTED_KINDS

    fields = [*infos(RunConfig).items(), *infos(RunOptions).items()]
    chosen = {flag_of(name, info): list(info.choices) for name, info in fields if info.choices}
    return chosen | {
        "--algorithm": list(ALGORITHMS),
        "--optimizer": list(OPTIMIZERS),
        "--backbone": list(BACKBONES),
        "--watch": list(WATCHES),
        "--track": list(TRACKERS),
        "--engine": list(ENGINES),
        "--select": list(METHODS),
        "--format": list(TABLE_FORMATS),
        "--choice": list(CHOICES),
        "--device": ["cpu", "cuda", "mps"],
        "data": list(SETS),
        "what": list(SETS),
        "kind": list(LISTED_KINDS),
        "shell": list(_PLACES),
    }
