"""Whether every node has the data of the runs, asked before the first run starts.

Each node that has room for a run opens the data as a run would. What a node lacks is sent there when it is
small, and refused in a sentence when it is not; plugins are always sent. Embedded sets need nothing, and
nobody is asked about them. A node that joins later is not asked: where it lacks something, its runs say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from genie_dg.check import GenieError
from genie_dg.data.columns import Columns
from genie_dg.data.registry import is_table, row_of

from ..checks import check_identity
from ..options import Job, job_from
from ._ray_cluster import room_on, why
from ._ray_copies import SMALL, Copies, Copy, copy_of, is_here, job_here, size_of
from ._ray_files import OPENED
from .queue import ClusterError

ANSWER = 120.0
"""Seconds that nodes have to answer; one that does not is not waited for, and its runs speak for themselves."""

Wanted = list[tuple[list[str], str]]
"""Paths that must be there, and a job that uses them, as JSON."""

Answer = tuple[list[str], str]
"""The paths that a node lacks, and why it cannot use data that it has; both empty when all is well."""


def prepare(ray: Any, jobs: Sequence[Job], cpus: float, gpus: float) -> dict[str, Copy]:
    """Copies of what must be sent to nodes, by path; data that is missing and cannot be sent is refused."""
    plugins = dict.fromkeys(path for job in jobs for path in job.options.plugin if Path(path).is_file())
    copies = {path: _copy(ray, path) for path in plugins}
    wanted = wanted_by(jobs)
    lacking: dict[str, list[str]] = {}
    columns = {path: job_from(text).options.columns for paths, text in wanted for path in paths}
    for node, (paths, problem) in _ask(ray, wanted, copies, cpus, gpus) if wanted else ():
        if problem:
            raise ClusterError(f"Node {node} cannot use the data of the sweep ({problem.rstrip('.')}).")
        for path in paths:
            lacking.setdefault(path, []).append(node)
    for path, nodes in lacking.items():
        if words := _unsendable(Path(path), columns[path]):
            raise ClusterError(
                f"{path} is missing on node {_some(nodes)}; mount it there under the same path, or give a "
                f"folder that all nodes see ({words})."
            )
        copies[path] = _copy(ray, path)
    return copies


def wanted_by(jobs: Sequence[Job]) -> Wanted:
    """What the jobs read besides plugins and embedded sets, each data set once."""
    wanted: dict[tuple[str, ...], str] = {}
    for job in jobs:
        row, options = row_of(job.data), job.options
        embedded = row is not None and row.kind == "embedded"
        own = row is None and Path(job.data).exists()
        data = "" if embedded else job.data if own else options.root
        paths = [path for path in (data, options.weights) if path]
        if paths:
            wanted.setdefault((job.data, str(options.columns), *paths), job.to_json())
    return [(list(paths), text) for (_, _, *paths), text in wanted.items()]


def look_here(wanted: Wanted, copies: Copies) -> Answer:
    """On a node: open the data as a run would, and check that it is that of the run."""
    lacking = [path for paths, _ in wanted for path in paths if not is_here(path, copies)]
    for paths, text in wanted:
        if set(paths) & set(lacking):
            continue
        job = job_here(job_from(text), copies)
        try:
            OPENED.load_plugins(job.options)
            check_identity(job.config, OPENED.open(job.data, job.options), job.options)
        except GenieError as error:
            return lacking, str(error)
    return list(dict.fromkeys(lacking)), ""


def _ask(ray: Any, wanted: Wanted, copies: Copies, cpus: float, gpus: float) -> Iterator[tuple[str, Answer]]:
    """The answers of the nodes that have room for a run, each with the node's name."""
    from ray.util.client import ray as client
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = "" if client.is_connected() else ray.get_runtime_context().get_node_id()  # type: ignore[no-untyped-call]
    look = ray.remote(num_cpus=0, max_retries=0)(look_here)
    asked = {}
    for node in ray.nodes():
        if node["NodeID"] != here and room_on(node, cpus, gpus):
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            result = look.options(scheduling_strategy=there).remote(wanted, copies)
            asked[result] = node.get("NodeName") or node["NodeManagerAddress"]
    if not asked:
        return
    ended, _ = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER)
    for result in ended:
        try:
            yield asked[result], ray.get(result)
        except ray.exceptions.RayTaskError as error:
            raise ClusterError(
                f"Node {asked[result]} cannot look for data ({why(error).rstrip('.')}); install the same "
                "version of this package there."
            ) from error
        except ray.exceptions.RayError:  # the node was lost meanwhile, and no run will be there
            continue


def _copy(ray: Any, path: str) -> Copy:
    try:
        return copy_of(ray, path)
    except OSError as error:
        raise ClusterError(
            f"{path} cannot be read ({error.strerror}), so it cannot be sent to nodes; make it readable."
        ) from error


def _unsendable(path: Path, columns: Columns) -> str:
    """Why something is not sent to nodes, in a few words; empty when it can be."""
    if path.is_file() and path.suffix.lower() in (".csv", ".json", ".jsonl") and not is_table(path, columns):
        return "a list of pictures is not sent there, for its pictures are elsewhere"
    if size_of(path) > SMALL:
        return f"only what has at most {SMALL // 10**6} MB is sent there"
    return ""


def _some(nodes: list[str]) -> str:
    return nodes[0] if len(nodes) == 1 else f"{nodes[0]} and {len(nodes) - 1} more"
