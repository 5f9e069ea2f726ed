"""Print a script that completes verbs, options and names in a shell; shtab makes it from the parsers."""

from __future__ import annotations

import argparse

from genie_dg.arguments import infos, path, path_text, some_text
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
    _offer_choices(parser, _names())
    print(shtab.complete(parser, arguments.shell))
    return 0


def _offer_choices(parser: argparse.ArgumentParser, names: dict[str, list[str]]) -> None:
    """Give the arguments of a parser and of its verbs what completion offers."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                _offer_choices(child, names)
        else:
            action.choices = names.get(action.dest)
            if action.choices is None and action.type in (path, path_text):
                action.complete = shtab.FILE  # type: ignore[attr-defined]


def _names() -> dict[str, list[str]]:
    """The values of arguments that come from registries and fields."""
    from genie_dg.bench.engines.registry import ENGINES
    from genie_dg.bench.options import RunOptions
    from genie_dg.models.backbones import BACKBONES
    from genie_dg.runs.config import RunConfig

    from .list import LISTED_KINDS, registries

    fields = {**infos(RunConfig), **infos(RunOptions)}
    chosen = {name: list(info.choices) for name, info in fields.items() if info.choices}
    listed = {"kind": list(LISTED_KINDS), "shell": list(_PLACES)}
    listed |= {kind.removesuffix("s"): list(rows) for kind, rows in registries().items()}
    return {**chosen, **listed, "backbone": list(BACKBONES), "engine": list(ENGINES)}
