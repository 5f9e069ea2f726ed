"""The process from which workers are forked, and a worker: one JSON line in, events as JSON lines out.

``python -m genie_dg.bench.engines.worker FD`` is started by `genie_dg.bench.engines.server`. It imports torch
and all that a run needs, once, and computes nothing, so no thread is there that a fork would lose. For every
number that comes over the socket FD, with a socket of its own, it forks a worker; when one has ended, its
number and exit code go back. When the launcher is gone, so are all workers.

A worker trains jobs until its input ends. Events are ``started``, ``progress`` (steps done), ``done``, ``busy``
(another launcher has the run) and ``failed`` with a reason. What a library prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
import warnings
from typing import IO, Any, NoReturn

from genie_dg.files import Busy, FileWarning

from ..jobs import OpenSets, run_job
from ..options import job_from
from .server import NUMBER, die_with_parent

EVERY = 0.2
"""Seconds between two reports of progress."""


def serve(lines: IO[bytes], events: IO[bytes]) -> None:
    """Train what comes, one job after another."""

    def tell(event: str, run: str, **more: Any) -> None:
        events.write((json.dumps({"event": event, "run": run, **more}) + "\n").encode("utf-8"))
        events.flush()

    opened = OpenSets()
    for line in lines:
        job = job_from(line)
        run = job.config.run_id
        tell("started", run)
        last = [0.0]

        def report(done: int, record: Any, run: str = run, last: list[float] = last) -> None:
            now = time.monotonic()
            if record is not None or now - last[0] > EVERY:
                last[0] = now
                tell("progress", run, done=done)

        try:
            run_job(job, opened, report)
        except Busy:
            tell("busy", run)
        except Exception as error:  # whatever it is, it becomes a line of the sweep's report
            tell("failed", run, reason=f"{type(error).__name__}: {error}")
        else:
            tell("done", run)


def work(channel: socket.socket) -> NoReturn:
    """Be a worker, in a process that was forked for it; nothing of the parent's is run at its end."""
    code = 1
    try:
        with channel, channel.makefile("rb") as lines, channel.makefile("wb") as events:
            serve(lines, events)
        code = 0
    except BrokenPipeError:  # the launcher is gone
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


class _Server:
    """The workers that are alive; `run` is its loop, until the launcher closes its end."""

    def __init__(self, control: socket.socket) -> None:
        self.control, self.numbers = control, dict[int, int]()
        self.selector = selectors.DefaultSelector()
        self.woken, self.waker = socket.socketpair()
        self.woken.setblocking(False)
        self.waker.setblocking(False)
        self.asked_to_stop = False
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a signal without a handler wakes nobody
        signal.signal(signal.SIGTERM, self._stop)
        signal.set_wakeup_fd(self.waker.fileno())
        self.selector.register(control, selectors.EVENT_READ)
        self.selector.register(self.woken, selectors.EVENT_READ)

    def run(self) -> None:
        try:
            while not self.asked_to_stop:
                for key, _ in self.selector.select():
                    if key.fileobj is self.woken:
                        self.woken.recv(4096)
                        self._reap()
                    elif not self._start():
                        return
        except (BrokenPipeError, ConnectionResetError):  # the launcher is gone
            return
        finally:
            for pid in self.numbers:
                os.kill(pid, signal.SIGKILL)
            for pid in self.numbers:
                os.waitpid(pid, 0)

    def _stop(self, *_: object) -> None:
        self.asked_to_stop = True

    def _start(self) -> bool:
        """Fork a worker for the next number; False when there is none any more."""
        data, handles, _, _ = socket.recv_fds(self.control, NUMBER.size, 1)
        if not data:
            return False
        (number,) = NUMBER.unpack(data)
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for one in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(one, signal.SIG_DFL)
            die_with_parent()
            if os.getppid() != server:
                os._exit(1)
            self.selector.close()
            for own in (self.control, self.woken, self.waker):
                own.close()
            work(socket.socket(fileno=handles[0]))
        self.numbers[pid] = number
        for handle in handles:
            os.close(handle)
        return True

    def _reap(self) -> None:
        """Tell of every worker that has ended."""
        for pid in list(self.numbers):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                line = f"{self.numbers.pop(pid)} {os.waitstatus_to_exitcode(status)}\n"
                self.control.sendall(line.encode("ascii"))


def main() -> None:
    """Serve the socket whose number is the only argument; what is printed goes to stderr."""
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", FileWarning)
    warnings.showwarning = lambda message, *_, **__: print(f"genie-dg: {message}", file=sys.stderr, flush=True)
    os.dup2(2, 1)
    _Server(socket.socket(fileno=int(sys.argv[1]))).run()
    os._exit(0)  # without the time that torch takes to be put away


if __name__ == "__main__":
    main()
