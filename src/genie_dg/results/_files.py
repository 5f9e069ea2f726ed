"""Single files of a run as bytes, as a configuration, as numbers; nothing in them is trusted."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib import import_module
from operator import itemgetter
from typing import Any

import numpy as np

from genie_dg.runs.record import RunConfig, from_mapping

from .schema import LEADING, Numbers, ResultsError


def _fast_reader() -> Callable[[bytes], Any] | None:
    try:
        reader: Callable[[bytes], Any] = import_module("orjson").loads
    except ModuleNotFoundError:
        return None
    return reader


def _refuse(name: str) -> None:
    raise ResultsError(f"{name} is no JSON")


_orjson = _fast_reader()
_DECODER = json.JSONDecoder(parse_constant=_refuse)
_FIELDS = itemgetter("step", "epoch", "loss", "validation_loss", "in_acc", "out_acc")
_KEYS = {field.name for field in fields(RunConfig)}
_NAN = float("nan")

BROKEN = (ValueError, RecursionError)
"""What `loads` raises on a file that is no JSON."""

_MOST_BYTES = 2**26


def loads(text: bytes) -> Any:
    """JSON without NaN and infinity; orjson reads it where it is installed, seven times as fast."""
    return _DECODER.decode(text.decode("utf-8")) if _orjson is None else _orjson(text)


def read_bytes(path: str) -> bytes | None:
    """A whole file in one read; ``None`` when there is none."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        text = os.read(handle, 2**16)
        if len(text) < 2**16:
            return text
        parts = [text]
        while parts[-1]:
            parts.append(os.read(handle, 2**24))
            if sum(map(len, parts)) > _MOST_BYTES:
                raise OSError(0, f"it has more than {_MOST_BYTES >> 20} MB")
        return b"".join(parts)
    finally:
        os.close(handle)


def config_of(text: bytes) -> RunConfig:
    """The configuration in a file; names that many runs share are kept once."""
    data = loads(text)
    if not isinstance(data, dict):
        raise ResultsError("it is no object")
    for name in ("dataset", "algorithm", "optimizer", "backbone", "protocol", "data_digest"):
        if name in data:
            if not isinstance(data[name], str):
                raise ResultsError(f"{name} is no text")
            data[name] = sys.intern(data[name])
    for name in ("trial_seed", "hparams_seed"):
        if type(data.get(name, 0)) is not int:
            raise ResultsError(f"{name} is no whole number")
    domains = data.get("test_domains")
    if not isinstance(domains, list) or not all(type(k) is int and k >= 0 for k in domains):
        raise ResultsError("test_domains is no list of indices")
    if type(data.get("swad", False)) is not bool:
        raise ResultsError("swad is neither true nor false")
    if not data.keys() <= _KEYS:
        return from_mapping(data)  # refuses the strange keys, in words
    return RunConfig(**{**data, "test_domains": tuple(domains)})


def quick_numbers(text: bytes, domains: int) -> Numbers | None:
    """Records that are all in order, in one go; ``None`` when the lines must be looked at one by one."""
    flat: list[float] = []
    before = -1
    try:
        records = loads(b"[%b]" % text.strip().replace(b"\n", b","))
        for step, epoch, loss, validation, inside, outside in map(_FIELDS, records):
            if type(step) is not int or step <= before or len(inside) != domains or len(outside) != domains:
                return None
            before = step
            flat += (step, epoch, _NAN if loss is None else loss, _NAN if validation is None else validation)
            flat += inside
            flat += outside
        numbers: Numbers = np.array(flat)
    except (*BROKEN, TypeError, KeyError, OverflowError):
        return None
    if numbers.dtype != np.float64 or numbers.ndim != 1 or not flat or before >= 2**53:
        return None  # text, null, lists in lists
    numbers = numbers.reshape(len(records), len(LEADING) + 2 * domains)
    accuracies = numbers[:, len(LEADING) :]
    fine = accuracies.min() >= 0 and accuracies.max() <= 1 and not np.isinf(numbers[:, 1:4]).any()
    return numbers if fine else None  # a NaN is not fine


def why(error: BaseException) -> str:
    if isinstance(error, OSError):
        return str(error.strerror)
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return (str(error).rstrip(".") or type(error).__name__)[:160]
