"""The engine for a Ray cluster: one Ray task for each run, and every file is sent back to the launcher.

A run whose worker is killed goes on from the last files that were sent back, and its folder is locked while
this launcher has the run. A run whose node is lost goes on elsewhere, and does not count as failed where it had
come to a checkpoint. Nodes need this package and Ray. Plugins and small data are copied to them by Ray's
``runtime_env``; other data must be there under the same path. Embedded sets need nothing.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genie_dg.files import Busy, FileError, remove_parts
from genie_dg.runs.folder import CHECKPOINT, alone
from genie_dg.runs.outcome import Ending, Outcome, note_outcome, outcome_of

from ..options import Job
from ..status import RunState
from ..trackers.tracker import check_trackers
from ._ray_cluster import connection, lost_reason, room_on, stage
from ._ray_task import TO_RESUME, FileRelay, RunFiles, UnexpectedFile, run_files, train_on_node, write_run_files
from .engine import POLL, ClusterError, Engine, EngineOptions, Tell, Update, with_whole_paths

_AHEAD = 2
"""Runs that wait in Ray's own queue, so that a node is not idle until the launcher looks again."""
_CLEANUP = 3.0
"""Seconds that interrupted runs have to clean up before they are killed."""


@dataclass
class _Task:
    """An attempt: its job, its result to come, the lock of its folder, and whether it has sent a checkpoint."""

    job: Job
    result: Any
    lock: ExitStack
    saved: bool = False
    refused: Outcome | None = None


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
        for name, value in (("cpus", self._cpus), ("gpus", self._gpus)):
            if not (0 <= value <= 1 or (value > 1 and float(value).is_integer())):
                raise ClusterError(f"got {name}={value}; expected a fraction from 0 to 1, or a whole number.")
        if self._cpus == self._gpus == 0:
            raise ClusterError("got cpus=0 and gpus=0; a run must hold some of one, or all would run at once.")
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
        place = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="genie-dg-")))
        self._staged = stage([with_whole_paths(job) for job in jobs], place) if self._address else {}
        self._ray = ray = self._stack.enter_context(connection(self._address, place if self._staged else None))
        if not self._address and self._slots() == 0:
            raise ClusterError(
                f"A run asks for {self._cpus:g} CPUs and {self._gpus:g} GPUs, and this machine has fewer; "
                "ask for less, or name the address of a cluster that has them."
            )
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        lasting = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}  # lost news comes with the next
        self._mailbox = ray.remote(**lasting, scheduling_strategy=here)(FileRelay).remote()
        self._train = ray.remote(num_cpus=self._cpus, num_gpus=self._gpus, max_retries=0)(train_on_node)

    def _slots(self) -> int:
        """How many runs the nodes of the cluster hold now."""
        return sum(room_on(node, self._cpus, self._gpus) for node in self._ray.nodes())

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
            result = task.remote(job, run_files(job.folder, TO_RESUME), ticket, self._mailbox, self._staged)
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
                try:
                    write_run_files(task.job.folder, sent)
                except (UnexpectedFile, FileError) as error:
                    task.refused = outcome_of(error)
                    self._ray.cancel(task.result, force=True)
                    continue
                task.saved = task.saved or CHECKPOINT in sent
                tell(Update(task.job.config.run_id, RunState.running, steps))

    def _end(self, task: _Task) -> Update:
        """A task has ended: write its files, or say how it was lost."""
        run = task.job.config.run_id
        with task.lock:
            try:
                update: Update
                update, sent = self._ray.get(task.result)
                if task.refused is None:
                    write_run_files(task.job.folder, sent)
                    return update
            except (UnexpectedFile, FileError) as error:
                task.refused = outcome_of(error)
            except self._ray.exceptions.RayError as error:
                lost = isinstance(error, self._ray.exceptions.NodeDiedError) and task.saved
                if task.refused is None and lost:
                    return Update(run, RunState.stopped, outcome=Outcome(Ending.stopped, lost_reason(error)))
                task.refused = task.refused or Outcome(Ending.failed, lost_reason(error))
        return Update(run, RunState.failed, outcome=task.refused)

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
