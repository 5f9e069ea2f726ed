"""The global streams of random numbers: set all at once, or left where they were by `own_randomness`."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def own_randomness(seed: int | None = None) -> Iterator[None]:
    """Inside, random numbers come from ``seed``; afterwards every stream is where it was.

    Covers torch on every device, Python's ``random`` and, where it is loaded, NumPy's global stream.
    """
    streams = _torch_streams()
    states = [stream.get_state() for stream in streams]
    python = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy is not None else None
    try:
        if seed is not None:
            seed_torch(seed)
        yield
    finally:
        for stream, state in zip(streams, states, strict=True):
            stream.set_state(state)
        random.setstate(python)
        if numpy is not None and numpy_state is not None:
            numpy.random.set_state(numpy_state)


def seed_torch(seed: int) -> None:
    """What ``torch.manual_seed`` does to the generators in use, in a hundredth of its time."""
    for stream in _torch_streams():
        stream.manual_seed(seed)


def _torch_streams() -> list[torch.Generator]:
    """The global generators in use; ``torch.manual_seed`` would queue a seed for a CUDA of later, too.

    To queue one, torch writes the stack of calls down as text, which takes longer than a small layer.
    """
    streams = [torch.default_generator]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        streams += list(torch.cuda.default_generators)
    if torch.backends.mps.is_available():
        streams.append(torch.mps._get_default_mps_generator())
    return streams
