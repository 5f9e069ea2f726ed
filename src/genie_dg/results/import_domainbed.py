"""DomainBed's result folders as run folders of ours, so that both fill the same tables.

A folder of DomainBed holds ``results.jsonl``, one line for each checkpoint with ``args``, ``hparams``,
``step``, ``epoch``, ``loss``, ``env<i>_in_acc``, ``env<i>_out_acc``, and at the end ``done``. It becomes a
folder ``<run_id>`` with ``config.json``, ``meta.json``, ``records.jsonl`` and ``done``. Hyper-parameters that
our configuration has a place for go there; ``meta.json`` keeps all arguments and hyper-parameters as they were.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from genie_dg.runs.record import canonical

from ._domainbed import DOMAINS, accuracies, checked, clean, config_of, record_of
from ._files import BROKEN, read_bytes
from .schema import ResultsError, row_of


@dataclass(frozen=True)
class Imported:
    """What an import did: folders written, folders that were there already, and a sentence for each problem."""

    written: int
    present: int
    problems: tuple[str, ...]


def import_domainbed(source: str | os.PathLike[str], out: str | os.PathLike[str]) -> Imported:
    """Import every folder at or below ``source`` that holds ``results.jsonl``.

    The same import again changes nothing, except that records of a run that has gone on since are added. A
    folder that holds anything else under the run's name is left as it is, and told.
    """
    if not os.path.isdir(source):
        raise ResultsError(f"{os.fspath(source)} is no folder; name one that holds DomainBed's result folders.")
    problems: list[str] = []
    seen: dict[str, str] = {}
    written = present = 0
    for folder, children, files in os.walk(source):
        children.sort()
        if "results.jsonl" not in files:
            continue
        files_of_run = convert(folder, "done" in files, problems)
        if files_of_run is None:
            continue
        run_id, contents = files_of_run
        if run_id in seen:
            problems.append(
                f"{folder} and {seen[run_id]} are runs of one configuration; the second is left out."
            )
            continue
        seen[run_id] = folder
        try:
            new = write(Path(out) / run_id, contents)
        except ResultsError as error:
            problems.append(str(error))
            continue
        written, present = written + new, present + (not new)
    if not seen and not problems:
        raise ResultsError(
            f"{os.fspath(source)} has no results.jsonl in it or below; name the folder that DomainBed wrote."
        )
    return Imported(written, present, tuple(problems))


def convert(folder: str, done: bool, problems: list[str]) -> tuple[str, dict[str, bytes]] | None:
    """One folder of DomainBed: the run_id, and what our files of it hold; ``None`` when nothing can be read."""
    path = os.path.join(folder, "results.jsonl")
    try:
        lines = (read_bytes(path) or b"").split(b"\n")
    except OSError as error:
        problems.append(f"{path} cannot be read ({error.strerror}); the folder is left out.")
        return None
    parsed: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                parsed.append(checked(json.loads(line)))
            except (*BROKEN, KeyError, TypeError) as error:
                problems.append(f"Line {number} of {path} is no record of DomainBed ({error}); it is left out.")
    if not parsed:
        problems.append(f"{path} has no record; the folder is left out.")
        return None
    start = max((k for k in range(1, len(parsed)) if parsed[k]["step"] <= parsed[k - 1]["step"]), default=0)
    if start:
        problems.append(f"{path} has {start} records of earlier attempts; those of the last one are kept.")
    attempt = parsed[start:]
    args, hparams = attempt[-1]["args"], attempt[-1]["hparams"]
    count = len(accuracies(attempt[0], "in"))
    records = []
    for line_of_file in attempt:
        record = record_of(line_of_file)
        try:
            row_of(record, count)
        except ResultsError as error:
            problems.append(f"Step {record['step']} of {path} is no record ({error}); it is left out.")
        else:
            records.append(record)
    try:
        config = config_of(args, hparams)
    except (ValueError, KeyError, TypeError) as error:
        problems.append(f"{path} is of no run that can be read ({error!r}); the folder is left out.")
        return None
    known = DOMAINS.get(config.dataset, ())
    names = known if len(known) == count else tuple(f"domain {k}" for k in range(count))
    meta = {
        "domains": list(names),
        "imported_from": "DomainBed",
        "args": clean(args),
        "hparams": clean(hparams),
    }
    contents = {
        "config.json": canonical(config) + "\n",
        "meta.json": json.dumps(meta, indent=1, sort_keys=True, allow_nan=False) + "\n",
        "records.jsonl": "".join(
            json.dumps(record, sort_keys=True, allow_nan=False) + "\n" for record in records
        ),
    }
    if done:
        contents["done"] = ""
    return config.run_id, {name: text.encode("utf-8") for name, text in contents.items()}


def write(folder: Path, contents: Mapping[str, bytes]) -> bool:
    """Write a run's folder; ``False`` when it is there already. Nothing else is ever overwritten.

    A folder may grow: records that begin with those that are there replace them.
    """
    there = {
        name: read_bytes(str(folder / name)) for name in ("config.json", "meta.json", "records.jsonl", "done")
    }
    if any(there[name] not in (None, contents[name]) for name in ("config.json", "meta.json")):
        raise ResultsError(
            f"{folder} holds another run of this name; it is left as it is, so move it away first."
        )
    before, now = there["records.jsonl"] or b"", contents["records.jsonl"]
    complete = there["done"] is not None
    if before != now and (complete or not now.startswith(before)):
        raise ResultsError(f"{folder} holds other records; it is left as it is, so move it away first.")
    missing = {name: data for name, data in contents.items() if there[name] != data}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in missing.items():  # in this order: `done` comes last
            beside = folder / f"{name}.part"
            beside.write_bytes(data)
            beside.replace(folder / name)
    except OSError as error:
        raise ResultsError(f"{folder} cannot be written ({error.strerror}); choose another --out.") from error
    return bool(missing)
