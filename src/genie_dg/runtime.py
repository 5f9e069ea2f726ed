"""What a process does to itself before it trains: cores, threads, kept memory, deterministic kernels.

One owner, so that no two modules set the same thing to different values. Settings that the user's environment
makes are left alone.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager

USERS = {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES", "LD_PRELOAD"}
"""Variables of the environment by which a user chooses the settings, or another allocator."""
MALLOC = {-1: 2**29, -2: 2**26, -4: 0, -8: 1}
"""For glibc's ``mallopt``, by the numbers in ``malloc.h``: trim threshold, top pad, mapped blocks, heaps."""


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def keep_memory() -> bool:
    """Let the C library keep up to 512 MB of freed memory for the next step, once and for the whole process.

    glibc gives every large block back to the system, which hands it out again page by page, each filled with
    zeros: an eighth to a fifth of a training step on CPU (`benchmarks/memory.py`). All threads share one heap,
    because only the first one keeps what is freed.

    Returns:
        Whether it was done; other C libraries have no such setting, and the user's own settings stay.
    """
    if os.environ.keys() & USERS:
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return False
    done = [mallopt(setting, value) for setting, value in MALLOC.items()]
    return all(result == 1 for result in done)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Processes that are started inside have one thread of OpenBLAS; NumPy's starts more when imported."""
    usual = os.environ.get("OPENBLAS_NUM_THREADS")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        del os.environ["OPENBLAS_NUM_THREADS"]
        if usual is not None:
            os.environ["OPENBLAS_NUM_THREADS"] = usual


@contextmanager
def same_kernels(threads: int) -> Iterator[None]:
    """The same arithmetic every time: so many threads, and CuDNN's deterministic kernels, as DomainBed asks."""
    import torch

    usual, tf32 = torch.get_num_threads(), torch.backends.cudnn.allow_tf32
    torch.set_num_threads(threads)
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32):
            yield
    finally:
        torch.set_num_threads(usual)
