"""Threads that work on pictures, each with one thread of torch's own.

Torch splits every operation over all cores by default. For pictures that is the wrong grain: an operation takes
microseconds, and when another process holds one of the cores each of them waits for it, milliseconds at times.
Here each thread does whole pictures by itself; decoding, resizing and arithmetic release Python's lock.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, local
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from genie_dg.runtime import cores, keep_memory

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """A pool of threads; ``mine(owner, make)`` gives each thread an object of its own for each owner."""

    def __init__(self, count: int | None = None) -> None:
        import torch

        self.count = cores() if count is None else count
        self._own = local()
        self._pool = ThreadPoolExecutor(self.count)
        usual = torch.get_num_threads()
        barrier = Barrier(self.count)

        def use_one_thread(_: int) -> None:
            barrier.wait()  # every thread takes part once
            torch.get_num_threads()  # a thread's first look sets the usual number; after it ours stays
            torch.set_num_threads(1)

        list(self._pool.map(use_one_thread, range(self.count)))
        # The number belongs to the calling thread, but new threads (autograd's too) start with the last one.
        torch.set_num_threads(usual)

    def map(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """The results in order; the first error is raised."""
        return list(self._pool.map(work, items))

    def mine(self, owner: object, make: Callable[[], Any]) -> Any:
        """This thread's own object for an owner, made at its first call and dropped with the owner."""
        if not hasattr(self._own, "objects"):
            self._own.objects = WeakKeyDictionary()
        if owner not in self._own.objects:
            self._own.objects[owner] = make()
        return self._own.objects[owner]


@functools.cache
def shared_workers() -> Workers:
    """The pool that all loaders use: a small number of threads, whose memory stays warm."""
    keep_memory()
    return Workers()
