"""A connection to Ray: to a cluster on this machine that lives as long as it is used, or to a running one."""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from genie_dg.data.registry import is_table
from genie_dg.runtime import cores

from ..options import Job
from ._ray_task import MOST_SENT, paths_read_by
from .engine import ClusterError

_CONNECT = 5.0
"""Seconds in which the address of a cluster must answer."""


@contextmanager
def connection(address: str, working_dir: Path | None = None) -> Iterator[Any]:
    """The module ray, connected; what was started here is stopped at the end, and nothing else.

    Args:
        address: of a running cluster; empty for one of this machine's cores, or the one this process is
            connected to.
        working_dir: a folder of which every worker gets a copy, where the cluster was named.
    """
    if importlib.util.find_spec("ray") is None:
        raise ClusterError(
            "Launching on a cluster needs ray, not installed here; "
            'run pip install "genie-dg[ray]" and try again.'
        )
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report its use to its makers
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's own coming default; else it warns
    import ray

    if address:
        _check_address(address)
    if ray.is_initialized():
        if address:
            raise ClusterError(
                f"Got address={address!r}, but this process is connected to a cluster already; call "
                "ray.shutdown() first, or leave the address empty to use that cluster."
            )
        yield ray
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address:
        options["runtime_env"] = {"working_dir": str(working_dir)} if working_dir else {}
    else:
        options |= {"num_cpus": cores(), "include_dashboard": False}
    try:
        ray.init(address=address or "local", **options)
    except (OSError, RuntimeError, ValueError) as error:
        what = f"The cluster {address!r} cannot be reached" if address else "Ray cannot start on this machine"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ClusterError(f"{what} ({reason}); fix that, or launch without Ray.") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Refuse an address where nobody listens; Ray itself would try for minutes."""
    if address == "auto":
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ClusterError(
            f"{address!r} is not the address of a cluster; write HOST:PORT (Ray's port is 6379 unless chosen "
            "otherwise), auto, or ray://HOST:PORT."
        )
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT).close()
    except OSError as error:
        raise ClusterError(
            f"No cluster answers at {address!r} ({error}); start one there with ray start --head, or correct "
            "the address."
        ) from error


def room_on(node: Mapping[str, Any], cpus: float, gpus: float) -> int:
    """How many runs a node holds, one of ``ray.nodes()``; none when it is lost."""
    has = node["Resources"] if node["Alive"] else {}
    return min(int(has.get(name, 0) / ask) for name, ask in (("CPU", cpus), ("GPU", gpus)) if ask)


def lost_reason(error: Exception) -> str:
    """What became of a task that returned nothing: its own error, or how its process was lost."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {cause}"
    first = (str(error).strip() or "no reason given").splitlines()[0].rstrip(".")
    return f"The process that trained it was lost ({type(error).__name__}: {first})."


def stage(jobs: Sequence[Job], folder: Path) -> dict[str, str]:
    """Copy what the jobs read, where it is small, into a folder for all nodes; returns the copies by path.

    A list of pictures is not copied, since its pictures are elsewhere.
    """
    names: dict[str, str] = {}
    columns = {path: job.options.columns for job in jobs for path in paths_read_by(job)}
    for path in map(Path, columns):
        listed = path.suffix.lower() in (".csv", ".json", ".jsonl") and not is_table(path, columns[str(path)])
        if not path.exists() or listed or _size_of(path) > MOST_SENT:
            continue
        target = folder / str(len(names)) / path.name
        target.parent.mkdir()
        try:
            shutil.copytree(path, target) if path.is_dir() else shutil.copyfile(path, target)
        except (OSError, shutil.Error) as error:
            raise ClusterError(
                f"{path} cannot be read ({error}), so it cannot be sent to nodes; make it readable."
            ) from error
        names[str(path)] = str(target.relative_to(folder))
    return names


def _size_of(path: Path) -> int:
    """The bytes of a file, or of all files in a folder; counting ends when it is not small."""
    if path.is_file():
        return path.stat().st_size
    size = 0
    for place, _, names in os.walk(path, followlinks=True):
        size += sum(os.stat(os.path.join(place, name)).st_size for name in names)
        if size > MOST_SENT:
            break
    return size
