"""The launcher's side of the process from which workers are forked.

Importing torch and all that a run needs takes seconds. A server does it once, beside what the launcher does,
and every worker, also one that replaces another, is a fork of it that can begin at once. It is an interpreter
of its own: forking the launcher itself would be wrong where it has threads, or has used a GPU.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from types import TracebackType

NUMBER = struct.Struct("<I")
"""How a request for a worker is written; the worker's socket comes with it."""

GRACE = 10.0
"""Seconds that a server has to end its workers."""


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent is gone; elsewhere the end of its input stops it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _begin() -> None:
    """In the new process: live no longer than the launcher, and leave Ctrl-C to it."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


class WorkerServer:
    """A process that forks workers; it is started at once and imports while the launcher does other things."""

    def __init__(self) -> None:
        self._started = 0
        self._codes: dict[int, int] = {}
        self._half_line = b""
        self._control, theirs = socket.socketpair()
        command = [sys.executable, "-m", "genie_dg.bench.engines.worker", str(theirs.fileno())]
        with theirs:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # NumPy's would start threads when imported
                pass_fds=[theirs.fileno()],
                preexec_fn=_begin,
            )

    def __enter__(self) -> WorkerServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> tuple[int, socket.socket]:
        """A new worker: its number, and a socket for jobs and events; an OSError when the server is gone."""
        ours, theirs = socket.socketpair()
        self._started += 1
        with theirs:
            try:
                socket.send_fds(self._control, [NUMBER.pack(self._started)], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return self._started, ours

    def exit_code(self, number: int) -> int | None:
        """Of a worker that has ended; ``None`` when the server has ended, too, and its workers with it."""
        while number not in self._codes:
            try:
                block = self._control.recv(4096)
            except OSError:  # reset, or closed here
                block = b""
            if not block:
                return None
            *lines, self._half_line = (self._half_line + block).split(b"\n")
            self._codes.update((int(a), int(b)) for a, b in (line.split() for line in lines))
        return self._codes.pop(number)

    def stop(self) -> None:
        """End the server and all its workers, and wait until they are gone; once more does nothing."""
        self._control.close()
        self.process.terminate()  # at once while it imports; later it ends its workers first
        try:
            self.process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
