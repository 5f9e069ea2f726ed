"""From what a person types to a configuration: names, settings, plugins from files."""

from __future__ import annotations

import runpy
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.check import InputError, did_you_mean, folder, writable_folder
from genie_dg.models.backbones import find_backbone
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.registry import PluginError
from genie_dg.search_space import value_from

from .options import RunOptions
from .watch import check_watches


def full_names(algorithm: str, optimizer: str, backbone: str) -> tuple[str, str, str]:
    """The names as the registries spell them; one that is not there is refused with the nearest match.

    >>> full_names("irm", "Adam", "CNN")
    ('IRM', 'adam', 'cnn')
    """
    return ALGORITHMS[algorithm].name, OPTIMIZERS[optimizer].name, find_backbone(backbone).name


def sort_settings(
    words: Iterable[str], algorithm: str, optimizer: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """``NAME=VALUE`` words as the settings of the algorithm and of the optimizer.

    A name belongs to whichever of the two has it; where both do, write ``optimizer.NAME`` or
    ``algorithm.NAME``. The row of a setting says what its value can be.

    >>> sort_settings(["irm_lambda=10", "lr=1e-3"], "IRM", "adam")
    ({'irm_lambda': 10}, {'lr': 0.001})
    """
    spaces = {"algorithm": ALGORITHMS[algorithm].space, "optimizer": OPTIMIZERS[optimizer].space}
    settings: dict[str, dict[str, Any]] = {"algorithm": {}, "optimizer": {}}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise InputError(f"{word!r} is not a setting; write it as NAME=VALUE, for example lr=0.001.")
        owner, dot, rest = name.partition(".")
        named = dot and owner in spaces
        key = rest if named else name
        owners = [one for one in ([owner] if named else spaces) if key in spaces[one]]
        if len(owners) > 1:
            both = f"{algorithm} and {optimizer} both have a setting {name!r}"
            raise InputError(f"{both}; write algorithm.{name} or optimizer.{name}.")
        if not owners:
            known = [*spaces["algorithm"], *spaces["optimizer"]]
            raise InputError(
                f"Neither {algorithm} nor {optimizer} has a setting {key!r}; "
                f"they have {', '.join(known)}{did_you_mean(key, known)}"
            )
        of = algorithm if owners == ["algorithm"] else optimizer
        settings[owners[0]][key] = value_from(of, key, spaces[owners[0]][key], text)
    return settings["algorithm"], settings["optimizer"]


def check_here(options: RunOptions) -> None:
    """Refuse options that cannot be followed on this machine: folders, device, watches."""
    writable_folder("--out", options.out)
    if options.cache:
        writable_folder("--cache", options.cache)
    if options.root:
        folder(Path(options.root), "give --root the folder that holds the data sets")
    usable_device(options.device)
    check_watches(options.watches)


def usable_device(text: str) -> str:
    """The device that was asked for, or the best there is."""
    if not text:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        (torch.zeros(1, device=text) + 1).cpu()
    except (RuntimeError, AssertionError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"The device {text!r} cannot be used here ({reason}); try --device cpu.") from error
    return text


@cache
def load_plugin(path: Path) -> None:
    """Run a file that registers rows of its own, once in this process."""
    if not path.is_file():
        raise PluginError(f"{path} is not a file; name a Python file that registers rows.")
    try:
        runpy.run_path(str(path))
    except PluginError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise PluginError(f"{path} cannot be run ({why}); fix it and try again.") from error
