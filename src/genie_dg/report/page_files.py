"""What a page tells beyond the numbers of `results`: versions of ``meta.json``, curves of ``records.jsonl``.

`genie_dg.results.store.load` has already told what in these files cannot be read; here it is passed over.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

from genie_dg.results.schema import LEADING, Run

KNOWN = {*LEADING, "in_acc", "out_acc"}
"""The keys of a record that every run has."""


def versions(runs: Sequence[Run]) -> dict[tuple[str, str], int]:
    """(key, value) of ``meta.json`` except the domains, and how many runs have it, sorted."""
    found: Counter[tuple[str, str]] = Counter()
    for run in runs:
        for record in _objects(os.path.join(run.folder, "meta.json"), whole=True):
            found.update(_flat(record))
    return dict(sorted(found.items()))


def more_curves(run: Run) -> dict[str, dict[int, float]]:
    """Step to value for each further number in the records and in ``watch.jsonl``, such as ``osgr``.

    The ends of intervals (``osgr_low``, ``osgr_high``) and what is the same all the time are no curves.
    """
    curves: dict[str, dict[int, float]] = {}
    for record in [*_objects(os.path.join(run.folder, "records.jsonl")), *watched(run)]:
        step = record.get("step")
        if not isinstance(step, int):
            continue
        for key, value in record.items():
            if key not in KNOWN and not key.endswith(("_low", "_high", "_n")) and _is_number(value):
                curves.setdefault(key, {})[step] = float(value)
    return curves


def watched(run: Run) -> list[dict[str, Any]]:
    """The lines of ``watch.jsonl``: what a run was watched for."""
    return _objects(os.path.join(run.folder, "watch.jsonl"))


def heat(run: Run) -> dict[int, list[float]]:
    """Step to the mean movement of each group of parameters since the record before."""
    return {
        line["step"]: line["heat"]
        for line in watched(run)
        if isinstance(line.get("step"), int)
        and isinstance(line.get("heat"), list)
        and all(_is_number(value) for value in line["heat"])
    }


def _objects(path: str, whole: bool = False) -> list[dict[str, Any]]:
    """The JSON objects of a file: one in each line, or one over all lines."""
    if not os.path.isfile(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as file:
        texts = [file.read()] if whole else file.read().split("\n")
    found = []
    for text in texts:
        try:
            found.append(json.loads(text) if text.strip() else None)
        except (ValueError, RecursionError):  # `load` has told it
            continue
    return [data for data in found if isinstance(data, dict)]


def _flat(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Keys and values as text; a mapping inside is opened once, other containers are left out.

    >>> _flat({"domains": ["a"], "torch": "2.6", "cuda": {"version": "12"}})
    [('torch', '2.6'), ('cuda.version', '12')]
    """
    told = []
    for key, value in record.items():
        inner = {f"{key}.{name}": x for name, x in value.items()} if isinstance(value, dict) else {key: value}
        told += [(name, str(x)) for name, x in inner.items() if isinstance(x, (str, int, float))]
    return [(name, text) for name, text in told if name != "domains"]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
