"""A connection to Ray: to a cluster on this machine that lives as long as it is used, or to a running one."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from genie_dg.runtime import cores

from .queue import ClusterError

CONNECT = 5.0
"""Seconds in which the address of a cluster must answer."""


@contextmanager
def connection(address: str) -> Iterator[Any]:
    """The module ray, connected; what was started here is stopped at the end, and nothing else."""
    if importlib.util.find_spec("ray") is None:
        raise ClusterError(
            "Launching on a cluster needs ray, not installed here; "
            'run pip install "genie-dg[ray]" and try again.'
        )
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report its use to its makers
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's own coming default; else it warns
    import ray

    if address:
        answers(address)
    if ray.is_initialized():
        if address:
            raise ClusterError(
                f"Got address={address!r}, but this process is connected to a cluster already; call "
                "ray.shutdown() first, or leave the address empty to use that cluster."
            )
        yield ray
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if not address:
        quiet.update(num_cpus=cores(), include_dashboard=False)
    try:
        ray.init(address=address or "local", **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        what = f"The cluster {address!r} cannot be reached" if address else "Ray cannot start on this machine"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ClusterError(f"{what} ({reason}); fix that, or launch without Ray.") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def answers(address: str) -> None:
    """Refuse an address where nobody listens; Ray itself would try for minutes.

    >>> answers("localhost")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    genie_dg.bench.engines.queue.ClusterError: 'localhost' is not the address of a cluster; ...
    """
    import socket
    from urllib.parse import urlsplit

    if address == "auto":
        return
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise ClusterError(
            f"{address!r} is not the address of a cluster; write HOST:PORT (Ray's port is 6379 unless chosen "
            "otherwise), auto, or ray://HOST:PORT."
        )
    try:
        socket.create_connection((host, port), timeout=CONNECT).close()
    except OSError as error:
        raise ClusterError(
            f"No cluster answers at {address!r} ({error}); start one there with ray start --head, or correct "
            "the address."
        ) from error


def room_on(node: Mapping[str, Any], cpus: float, gpus: float) -> int:
    """How many runs a node holds, one of ``ray.nodes()``; none when it is lost."""
    has = node["Resources"] if node["Alive"] else {}
    return min(int(has.get(name, 0) / ask) for name, ask in (("CPU", cpus), ("GPU", gpus)) if ask)


def slots_of(ray: Any, cpus: float, gpus: float) -> int:
    """How many runs the nodes of the cluster hold now."""
    return sum(room_on(node, cpus, gpus) for node in ray.nodes())


def why(error: Exception) -> str:
    """What became of a task that returned nothing: its own error, or how its process was lost."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {cause}"
    first = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else "no reason given"
    return f"The process that trained it was lost ({type(error).__name__}: {first})."
