"""What was launched, in ``sweeps/`` of a folder of runs: the list of a sweep's runs, and the files behind it.

``<name>.json`` lists the runs, so that one knows what is missing; it has a digest of its contents.
``<name>.toml`` and, where the sweep names a protocol of the user's own, ``<name>.protocol.toml`` are copies of
the files that were launched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from genie_dg.check import InputError
from genie_dg.files import read_whole, write_json, write_whole

from .config import RunConfig, canonical, from_mapping

FOLDER = "sweeps"


def write_list(
    out: Path, name: str, configs: Sequence[RunConfig], sweep: Path | None = None, protocol: Path | None = None
) -> None:
    """Write the list of a sweep, and copies of the files that were launched.

    Args:
        out: the folder of runs.
        name: of the sweep.
        configs: its runs.
        sweep: its file.
        protocol: the user's own protocol, where it names one.
    """
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for file, suffix in ((sweep, ".toml"), (protocol, ".protocol.toml")):
        if file is not None:
            write_whole(folder / f"{name}{suffix}", read_whole(file))
    data = {"name": name, "runs": [json.loads(canonical(config)) for config in configs]}
    write_json(folder / f"{name}.json", {**data, "digest": _digest(data)})


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
