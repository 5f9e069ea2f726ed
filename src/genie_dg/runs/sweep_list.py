"""The list of a sweep's runs, ``sweeps/<name>.json`` in a folder of runs, by which one knows what is missing.

It has a digest of its contents; lists from before there were digests are read as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from genie_dg.check import InputError
from genie_dg.files import read_whole, write_json

from .config import RunConfig, canonical, from_mapping

FOLDER = "sweeps"


def write_list(out: Path, name: str, configs: Sequence[RunConfig]) -> None:
    """Write the list of a sweep."""
    (out / FOLDER).mkdir(parents=True, exist_ok=True)
    data = {"name": name, "runs": [json.loads(canonical(config)) for config in configs]}
    write_json(out / FOLDER / f"{name}.json", {**data, "digest": _digest(data)})


def read_list(file: Path) -> tuple[dict[str, Any], list[RunConfig]]:
    """A list as it stands in its file, and its runs; one that cannot be read is refused."""
    try:
        data: dict[str, Any] = json.loads(read_whole(file))
        digest = data.pop("digest", None)
        if digest not in (None, _digest(data)):
            raise ValueError("it was changed after it was written")
        if not isinstance(data["name"], str) or not isinstance(data["runs"], list):
            raise ValueError("it has no name or no runs")
        return data, [from_mapping(run) for run in data["runs"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(
            f"{file} is not a list of runs ({why}); start the sweep again to repair it."
        ) from error


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode("utf-8")).hexdigest()
