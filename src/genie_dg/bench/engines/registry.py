"""The table of engines, with their flags; a row names its class, which is imported when it is used."""

from __future__ import annotations

import argparse
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genie_dg.arguments import MANY, MOST, real, some_text, whole
from genie_dg.check import InputError
from genie_dg.registry import Registry

if TYPE_CHECKING:
    from .engine import Engine, EngineOptions


@dataclass(frozen=True)
class EngineFlag:
    """A flag of ``genie-dg sweep`` that some engines understand.

    Args:
        name: as in Python, ``array_parallelism``.
        text: for ``--help``.
        type: of argparse.
        metavar: of argparse.
        repeated: whether it may be given several times.
    """

    name: str
    text: str
    type: Callable[[str], Any] = some_text
    metavar: str | None = None
    repeated: bool = False

    @property
    def flag(self) -> str:
        """As it is typed."""
        return f"--{self.name.replace('_', '-')}"


@dataclass(frozen=True)
class EngineRow:
    """An engine.

    Args:
        name: for ``--engine``.
        engine: the class, as ``"module:Class"``.
        flags: that it understands; rows may share them.
        one_by_one: whether it trains one run at a time.
    """

    name: str
    engine: str
    flags: tuple[EngineFlag, ...] = ()
    one_by_one: bool = False


_CPUS = EngineFlag("cpus", "of each run on a cluster (default: its threads)", real(0, MANY))
_GPUS = EngineFlag("gpus", "of each run on a cluster (default: 0)", real(0, MANY))
_ADDRESS = EngineFlag("address", "of a Ray cluster (default: start one on this machine)")
_SLURM = (
    EngineFlag("partition", "of Slurm (default: the cluster's)"),
    EngineFlag(
        "time", "limit of a Slurm job, such as 4:00:00; a run goes on after it (default: the partition's)"
    ),
    EngineFlag(
        "array_parallelism",
        "of a Slurm array at a time (default: as many as the cluster takes)",
        whole(1, MOST),
        "RUNS",
    ),
    EngineFlag(
        "slurm",
        "any other option of sbatch, such as mem=8G or account=NAME; may be given several times",
        metavar="KEY=VALUE",
        repeated=True,
    ),
)

ENGINES = Registry(
    "engine",
    (
        EngineRow("local", "genie_dg.bench.engines.local:LocalEngine"),
        EngineRow("ray", "genie_dg.bench.engines.ray:RayEngine", (_ADDRESS, _CPUS, _GPUS)),
        EngineRow("slurm", "genie_dg.bench.engines.slurm:SlurmEngine", (_CPUS, _GPUS, *_SLURM)),
        EngineRow("here", "genie_dg.bench.engines.here:HereEngine", one_by_one=True),
    ),
    EngineRow,
    "genie_dg.engines",
)
"""By name. ``ENGINES.register(EngineRow(...))`` adds one."""


def build_engine(name: str, options: EngineOptions) -> Engine:
    """The engine of a row."""
    engine: Engine = pkgutil.resolve_name(ENGINES[name].engine)(options)
    return engine


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """Give a command the flags of all engines."""
    for flag in _owners():
        more: dict[str, Any] = {"action": "append"} if flag.repeated else {}
        parser.add_argument(flag.flag, type=flag.type, metavar=flag.metavar, help=flag.text, **more)


def engine_flags(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    """The flags that were given, by name; one that the engine does not understand is refused."""
    given = {}
    for flag, owners in _owners().items():
        value = getattr(arguments, flag.name)
        if value is None:
            continue
        if name not in owners:
            raise InputError(
                f"{flag.flag} is for --engine {' or '.join(owners)}; give that with it, or leave it out."
            )
        given[flag.name] = value
    return given


def _owners() -> Mapping[EngineFlag, list[str]]:
    """Every flag, and the engines that understand it."""
    owners: dict[EngineFlag, list[str]] = {}
    for row in ENGINES.values():
        for flag in row.flags:
            owners.setdefault(flag, []).append(row.name)
    return owners
