"""The engine for a Ray cluster: one Ray task for each run, and every file is sent back to the launcher.

A run whose worker is killed goes on from the last files that were sent back, and its folder is locked while
this launcher has the run. A run whose node is lost goes on elsewhere, and does not count as failed where it had
come to a checkpoint. Nodes need this package and Ray; data, weights and plugins must be there under the same
path. Embedded sets need nothing.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from genie_dg.files import Busy, remove_parts
from genie_dg.runs.folder import CHECKPOINT, alone
from genie_dg.runs.outcome import Ending, Outcome, note_outcome
from genie_dg.runtime import cores

from ..options import Job
from ..status import RunState
from ..trackers.tracker import check_trackers
from ._ray_task import TO_RESUME, Mailbox, RunFiles, run_files, train_on_node, write_run_files
from .engine import POLL, ClusterError, Engine, EngineOptions, Tell, Update, with_whole_paths

_CONNECT = 5.0
"""Seconds in which the address of a cluster must answer."""
_AHEAD = 2
"""Runs that wait in Ray's own queue, so that a node is not idle until the launcher looks again."""
_CLEANUP = 3.0
"""Seconds that interrupted runs have to clean up before they are killed."""


@contextmanager
def connection(address: str) -> Iterator[Any]:
    """The module ray, connected; what was started here is stopped at the end, and nothing else.

    Args:
        address: of a running cluster; empty for one of this machine's cores, or the one this process is
            connected to.
    """
    if importlib.util.find_spec("ray") is None:
        raise ClusterError(
            "Launching on a cluster needs ray, not installed here; "
            'run pip install "genie-dg[ray]" and try again.'
        )
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would report its use to its makers
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's own coming default; else it warns
    import ray

    if ray.is_initialized() and not address:
        yield ray
        return
    local: dict[str, Any] = {} if address else {"num_cpus": cores(), "include_dashboard": False}
    try:
        if address not in ("", "auto"):  # where nobody listens Ray itself would try for minutes
            host, _, port = address.removeprefix("ray://").rpartition(":")
            socket.create_connection((host, int(port)), timeout=_CONNECT).close()
        ray.init(address=address or "local", log_to_driver=False, logging_level=logging.ERROR, **local)
    except (OSError, RuntimeError, ValueError) as error:
        what = f"The cluster {address!r} cannot be reached" if address else "Ray cannot start on this machine"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ClusterError(
            f"{what} ({reason}); start it with ray start --head, or give --address HOST:PORT of one that runs."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _lost_reason(error: Exception) -> str:
    """What became of a task that returned nothing: its own error, or how its process was lost."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, Exception):
        return f"{type(cause).__name__}: {cause}"
    first = (str(error).strip() or "no reason given").splitlines()[0].rstrip(".")
    return f"The process that trained it was lost ({type(error).__name__}: {first})."


@dataclass
class _Task:
    """An attempt: its job, its result to come, the lock of its folder, and whether it has sent a checkpoint."""

    job: Job
    result: Any
    lock: ExitStack
    saved: bool = False


class RayEngine(Engine):
    """Trains on the nodes of a Ray cluster.

    Its flags are the ``address`` of a running cluster (``HOST:PORT``, ``auto`` or ``ray://HOST:PORT``), which
    is left running, and the ``cpus`` and ``gpus`` that each run holds, of which a fraction lets runs share one.
    By default a cluster on this machine's cores is started and stopped, or, where this process is connected to
    one already, that one is used.
    """

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        flags = options.flags
        self._address: str = flags.get("address", "")
        self._cpus: float = flags.get("cpus", 1)
        self._gpus: float = flags.get("gpus", 0)
        asked = (self._cpus, self._gpus)
        if not any(asked) or not all(0 <= x <= 1 or (x > 1 and float(x).is_integer()) for x in asked):
            raise ClusterError(
                f"got cpus={self._cpus} and gpus={self._gpus}; expected fractions from 0 to 1 or whole "
                "numbers, and not 0 for both."
            )
        if options.device.startswith("cuda") and self._gpus == 0:
            raise ClusterError(
                f"got device={options.device!r} with gpus=0; give gpus=1, or a fraction to share one."
            )
        self._stack = ExitStack()
        self._tasks: dict[str, _Task] = {}
        self._tickets, self._said_waiting = 0, False

    def start(self, jobs: Sequence[Job]) -> None:
        for row in check_trackers(name for job in jobs for name in job.options.tracks):
            if row.keeps_files():
                raise ClusterError(
                    f"The files of --track {row.name} are not sent back from a cluster; leave it out."
                )
        if "cpus" not in self.options.flags:
            self._cpus = max(job.config.threads for job in jobs)
        self._ray = ray = self._stack.enter_context(connection(self._address))
        if not self._address and self._slots() == 0:
            raise ClusterError(
                f"A run asks for {self._cpus:g} CPUs and {self._gpus:g} GPUs, and this machine has fewer; "
                "ask for less, or name the address of a cluster that has them."
            )
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        lasting = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}  # lost news comes with the next
        self._mailbox = ray.remote(**lasting, scheduling_strategy=here)(Mailbox).remote()
        self._train = ray.remote(num_cpus=self._cpus, num_gpus=self._gpus, max_retries=0)(train_on_node)

    def _slots(self) -> int:
        """How many runs the nodes of the cluster hold now."""
        asked = [(name, ask) for name, ask in (("CPU", self._cpus), ("GPU", self._gpus)) if ask]
        alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return sum(min(int(has.get(name, 0) / ask) for name, ask in asked) for has in alive)

    @property
    def room(self) -> int:
        slots = self._slots()
        if slots == 0 and not self._said_waiting:
            self._said_waiting = True
            self.options.say(
                f"No node of the cluster has {self._cpus:g} CPUs and {self._gpus:g} GPUs now; waiting for one."
            )
        return max(0, slots + _AHEAD - len(self._tasks))

    def submit(self, jobs: Sequence[Job]) -> Sequence[Job]:
        device = self.options.device or ("cuda" if self._gpus else "cpu")
        return [job for job in jobs if not self._submit(with_whole_paths(job).changed(device=device))]

    def _submit(self, job: Job) -> bool:
        """Lock the run's folder, and send what it holds; False where another process has the run."""
        lock = ExitStack()
        try:
            lock.enter_context(alone(job.folder))
        except Busy:
            return False
        with lock:
            if job.done:  # by another launcher, before it was locked here
                return False
            self._tickets += 1
            ticket = f"{job.config.run_id}.{self._tickets}"
            remove_parts(job.folder)
            task = self._train.options(name=job.config.run_id)
            result = task.remote(job, run_files(job.folder, TO_RESUME), ticket, self._mailbox)
            self._tasks[ticket] = _Task(job, result, lock.pop_all())
        return True

    def poll(self, tell: Tell) -> None:
        ended: list[str] = []
        if self._tasks:
            by_result = {task.result: ticket for ticket, task in self._tasks.items()}
            results, _ = self._ray.wait(list(by_result), num_returns=1, timeout=POLL)
            ended = [by_result[result] for result in results]
        else:
            time.sleep(POLL)
        self._fetch(tell)  # a task that has ended has delivered, and its files come before its fate
        for ticket in ended:
            tell(self._end(self._tasks.pop(ticket)))

    def _fetch(self, tell: Tell) -> None:
        """Take what workers sent; news of an attempt that is over is dropped."""
        try:
            news: dict[str, tuple[int, RunFiles]] = self._ray.get(self._mailbox.take.remote())
        except self._ray.exceptions.RayError as error:
            raise ClusterError(
                f"The cluster is lost ({type(error).__name__}); start the same command again: every run goes "
                "on from its last checkpoint."
            ) from error
        for ticket, (steps, sent) in news.items():
            if ticket in self._tasks:
                task = self._tasks[ticket]
                write_run_files(task.job.folder, sent)
                task.saved = task.saved or CHECKPOINT in sent
                tell(Update(task.job.config.run_id, RunState.running, steps))

    def _end(self, task: _Task) -> Update:
        """A task has ended: write its files, or say how it was lost."""
        update: Update
        with task.lock:
            try:
                update, sent = self._ray.get(task.result)
            except self._ray.exceptions.RayError as error:
                lost = isinstance(error, self._ray.exceptions.NodeDiedError) and task.saved
                state, ending = (RunState.stopped, Ending.stopped) if lost else (RunState.failed, Ending.failed)
                return Update(task.job.config.run_id, state, outcome=Outcome(ending, _lost_reason(error)))
            write_run_files(task.job.folder, sent)
            return update

    def cancel(self) -> None:
        """End what still runs and free the folders; each run goes on from its last checkpoint next time."""
        with self._stack, ExitStack() as locks:
            for task in self._tasks.values():
                locks.push(task.lock)
            if self._tasks:
                self._fetch(lambda update: None)
            results = [task.result for task in self._tasks.values()]
            for result in results:
                self._ray.cancel(result, force=False)
            if results:  # a moment in which the nodes remove their temporary folders
                _, results = self._ray.wait(results, num_returns=len(results), timeout=_CLEANUP)
            for result in results:
                self._ray.cancel(result, force=True)
            for task in self._tasks.values():
                note_outcome(task.job.folder, Outcome(Ending.stopped, "The launcher was stopped."))
            if hasattr(self, "_mailbox"):
                self._ray.kill(self._mailbox)
