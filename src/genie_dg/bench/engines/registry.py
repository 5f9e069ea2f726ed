"""The table of engines, and of their flags; a row names its class, which is imported when it is used."""

from __future__ import annotations

import argparse
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genie_dg.arguments import MANY, MOST, real, some_text, whole
from genie_dg.check import InputError
from genie_dg.registry import Registry

if TYPE_CHECKING:
    from .engine import Engine, EngineOptions


@dataclass(frozen=True)
class EngineRow:
    """An engine.

    Args:
        name: for ``--engine``.
        engine: the class, as ``"module:Class"``.
        flags: names of flags of ``genie-dg sweep`` that it understands; see `_FLAGS`.
    """

    name: str
    engine: str
    flags: tuple[str, ...] = ()


_SLURM = ("partition", "time", "cpus", "gpus", "array-parallelism", "slurm")
ENGINES = Registry(
    "engine",
    (
        EngineRow("local", "genie_dg.bench.engines.local:LocalEngine"),
        EngineRow("ray", "genie_dg.bench.engines.ray:RayEngine", ("address", "cpus", "gpus")),
        EngineRow("slurm", "genie_dg.bench.engines.slurm:SlurmEngine", _SLURM),
        EngineRow("here", "genie_dg.bench.engines.here:HereEngine"),
    ),
    EngineRow,
    "genie_dg.engines",
)
"""By name. ``ENGINES.register(EngineRow(...))`` adds one."""

_FLAGS: dict[str, dict[str, Any]] = {
    "address": {"help": "of a Ray cluster (default: start one on this machine)"},
    "cpus": {"help": "of each run on a cluster (default: its threads)", "type": real(0, MANY)},
    "gpus": {"help": "of each run on a cluster (default: 0)", "type": real(0, MANY)},
    "partition": {"help": "of Slurm (default: the cluster's)"},
    "time": {"help": "limit of a Slurm job, such as 4:00:00 (default: an hour); a run goes on after it"},
    "array-parallelism": {
        "help": "of a Slurm array at a time (default: as many as the cluster takes)",
        "type": whole(1, MOST),
        "metavar": "RUNS",
    },
    "slurm": {
        "help": "any other option of sbatch, such as mem=8G or account=NAME; may be given several times",
        "metavar": "KEY=VALUE",
        "action": "append",
    },
}
"""The flags of engines, with what argparse is told of them."""


def build_engine(name: str, options: EngineOptions) -> Engine:
    """The engine of a row."""
    engine: Engine = pkgutil.resolve_name(ENGINES[name].engine)(options)
    return engine


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """Give a command the flags of all engines."""
    for name, details in _FLAGS.items():
        parser.add_argument(f"--{name}", **{"type": some_text, **details})


def engine_flags(arguments: argparse.Namespace, engine: str) -> dict[str, Any]:
    """The flags that were given, by name; one that the engine does not understand is refused."""
    given = {name: getattr(arguments, name.replace("-", "_")) for name in _FLAGS}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        if name not in ENGINES[engine].flags:
            owners = " or ".join(row.name for row in ENGINES.values() if name in row.flags)
            raise InputError(f"--{name} is for --engine {owners}; give that with it, or leave it out.")
    return given
