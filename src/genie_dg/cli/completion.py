"""Print a script that completes verbs, options and names in bash, zsh or fish; it is made from the parsers."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from genie_dg.arguments import some_text
from genie_dg.check import one_of

from ._shared import require

SHELLS = {
    "bash": "genie-dg completion bash > ~/.local/share/bash-completion/completions/genie-dg",
    "zsh": "genie-dg completion zsh > ~/.genie-dg.zsh, and in ~/.zshrc: source ~/.genie-dg.zsh",
    "fish": "genie-dg completion fish > ~/.config/fish/completions/genie-dg.fish",
}
"""The shells, and how each script is put in its place."""


@dataclass(frozen=True)
class Verb:
    """What can follow some words: actions or values, and options with their help and their values."""

    words: tuple[str, ...]
    follow: list[str]
    options: dict[str, str] = field(default_factory=dict)
    values: dict[str, list[str]] = field(default_factory=dict)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument("shell", type=some_text, help=f"{', '.join(SHELLS)}: {SHELLS['bash']}")


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    one_of("shell", arguments.shell, SHELLS)
    require("Completion", "bench", {"numpy": "numpy", "rich": "rich"})
    from .main import build_parser

    found = list(verbs(build_parser(), names()))
    print(fish_script(found) if arguments.shell == "fish" else bash_script(found, arguments.shell == "zsh"))
    return 0


def names() -> dict[str, list[str]]:
    """The values of options and positional arguments that come from registries and short lists."""
    from genie_dg.algorithms.registry import ALGORITHMS
    from genie_dg.bench.diwa import CHOICES
    from genie_dg.bench.engines.registry import ENGINES
    from genie_dg.bench.options import EVALUATE
    from genie_dg.bench.trackers.tracker import TRACKERS
    from genie_dg.bench.watch import WATCHES
    from genie_dg.data.registry import SETS
    from genie_dg.models.backbones import BACKBONES
    from genie_dg.optim.registry import OPTIMIZERS
    from genie_dg.paper.request import SCALES
    from genie_dg.results.render import FORMATS
    from genie_dg.results.select import METHODS
    from genie_dg.runs.config import PRECISIONS

    from . import list as listing

    return {
        "--algorithm": list(ALGORITHMS),
        "--optimizer": list(OPTIMIZERS),
        "--backbone": list(BACKBONES),
        "--precision": list(PRECISIONS),
        "--evaluate": list(EVALUATE),
        "--watch": list(WATCHES),
        "--track": list(TRACKERS),
        "--engine": list(ENGINES),
        "--select": list(METHODS),
        "--format": list(FORMATS),
        "--scale": list(SCALES),
        "--choice": list(CHOICES),
        "--device": ["cpu", "cuda", "mps"],
        "data": list(SETS),
        "what": list(SETS),
        "kind": [*listing.KINDS, listing.DOMAINBED],
        "shell": list(SHELLS),
    }


def verbs(
    parser: argparse.ArgumentParser, known: dict[str, list[str]], words: tuple[str, ...] = ()
) -> Iterator[Verb]:
    """A parser and those of its verbs, as plain lists."""
    follow: list[str] = []
    options: dict[str, str] = {}
    values: dict[str, list[str]] = {}
    children: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            children = dict(action.choices)
            follow += children
        elif not action.option_strings:
            follow += known.get(action.dest, [])
        else:
            text = " ".join(str(action.help or "").replace("%(default)s", str(action.default)).split())
            options |= dict.fromkeys(action.option_strings, text)
            listed = known.get(action.option_strings[-1])
            values |= dict.fromkeys(action.option_strings, listed) if listed else {}
    yield Verb(words, follow, options, values)
    for name, child in children.items():
        yield from verbs(child, known, (*words, name))


def bash_script(found: list[Verb], zsh: bool = False) -> str:
    """The function for bash, which zsh runs with its ``bashcompinit``."""
    lines = ["autoload -U +X bashcompinit && bashcompinit"] if zsh else []
    lines += [
        "_genie_dg() {",
        '    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
        '    local verb="" words="" word',
        '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        '        case "$verb $word" in',
    ]
    paths = [" ".join(verb.words) for verb in found if verb.words]
    lines += [f"            {shlex.quote(_before(path))}) verb={shlex.quote(path)} ;;" for path in paths]
    lines += ["        esac", "    done", '    case "$verb|$before" in']
    for verb in found:
        for option, values in verb.values.items():
            case = shlex.quote(f"{' '.join(verb.words)}|{option}")
            lines.append(f"        {case}) words={shlex.quote(' '.join(values))} ;;")
    lines += ["    esac", '    if [ -z "$words" ]; then', '        case "$verb" in']
    for verb in found:
        case = shlex.quote(" ".join(verb.words))
        offered = " ".join([*verb.follow, *verb.options])
        lines.append(f"            {case}) words={shlex.quote(offered)} ;;")
    lines += [
        "        esac",
        "    fi",
        '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        "complete -o default -o bashdefault -F _genie_dg genie-dg",
    ]
    return "\n".join(lines)


def _before(path: str) -> str:
    """The verb so far and the word that leads to a path: ``" data"``, ``"data list"``."""
    head, _, last = path.rpartition(" ")
    return f"{head} {last}"


def fish_script(found: list[Verb]) -> str:
    """One ``complete`` for each verb and option."""
    lines = []
    for verb in found:
        seen = [f"__fish_seen_subcommand_from {word}" for word in verb.words]
        others = [word for word in verb.follow if verb.words[:1] in ((), ("data",))]
        if not verb.words or (others and len(verb.words) == 1):
            seen.append(f"not __fish_seen_subcommand_from {' '.join(verb.follow)}")
        when = shlex.quote("; and ".join(seen))
        lines += [f"complete -c genie-dg -n {when} -a {shlex.quote(word)}" for word in verb.follow]
        for option, text in verb.options.items():
            name = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            values = f" -x -a {shlex.quote(' '.join(verb.values[option]))}" if option in verb.values else ""
            lines.append(f"complete -c genie-dg -n {when} {name}{values} -d {shlex.quote(text)}")
    return "\n".join(lines)
