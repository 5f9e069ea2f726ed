"""Read the runs of a folder, whatever state they are in.

``RUNS/<run_id>/`` holds ``config.json``, ``meta.json``, ``records.jsonl``, ``done``, perhaps ``swad.json`` and,
until it is complete, ``failures.jsonl``. Only these are opened, only as JSON; a path inside them is never
followed. What cannot be read is told in one sentence each and loses nothing else: a broken record leaves the
other records, a broken ``meta.json`` leaves the numbers, a broken configuration leaves the other runs.
"""

from __future__ import annotations

import gc
import hashlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from genie_dg.runs.record import RunConfig

from ._files import BROKEN, config_of, loads, quick_numbers, read_bytes, why
from .schema import LEADING, Numbers, ResultsError, Run, row_of


def load(*folders: str | os.PathLike[str]) -> tuple[list[Run], list[str]]:
    """All runs of one or more folders, by folder and name, and a sentence for each problem.

    A folder is one of runs, or that of one run. Of several copies of a run the complete one with the most
    records is kept, at a tie the first.
    """
    collecting = gc.isenabled()
    gc.disable()  # nothing here is a cycle; the collector would walk over all runs again and again
    try:
        return _load(folders)
    finally:
        if collecting:
            gc.enable()


def _load(folders: Sequence[str | os.PathLike[str]]) -> tuple[list[Run], list[str]]:
    problems: list[str] = []
    found: dict[str, Run] = {}
    reader = _Reader(problems)
    for folder in folders:
        for path in run_folders(os.fspath(folder)):
            run = reader.run(path)
            if run is None:
                continue
            other = found.get(run.run_id)
            if other is not None:
                problems.append(f"{run.folder} and {other.folder} hold the same run; it counts once.")
                if _worth(run) <= _worth(other):
                    continue
            found[run.run_id] = run
    return _named(list(found.values())), problems


def run_folders(folder: str) -> list[str]:
    """The folders of runs in a folder, sorted; the folder itself when it is that of a run."""
    try:
        if os.path.exists(os.path.join(folder, "config.json")):
            return [folder]
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir())
    except OSError as error:
        raise ResultsError(
            f"{folder} cannot be read ({error.strerror}); name a folder that holds the folders of runs."
        ) from error


def _worth(run: Run) -> tuple[bool, int]:
    return run.done, len(run.numbers)


class _Reader:
    """Reads run after run; remembers what most of them share."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        self._domains: dict[bytes, tuple[str, ...]] = {}

    def run(self, folder: str) -> Run | None:
        try:
            text = read_bytes(f"{folder}/config.json")
            if text is None:
                self._no_config(folder)
                return None
            config = config_of(text)
        except (*BROKEN, TypeError, OSError) as error:
            self.problems.append(f"{folder}/config.json cannot be read ({why(error)}); the run is left out.")
            return None
        records = self._file(f"{folder}/records.jsonl") or b""
        domains = self._names(folder, records)
        if domains is None or not all(k < len(domains) for k in config.test_domains):
            known = "no domains" if domains is None else f"{len(domains)} domains"
            self.problems.append(
                f"{folder} has {known} but test domains {list(config.test_domains)}; the run is left out."
            )
            return None
        done = os.path.exists(f"{folder}/done")
        return Run(
            _run_id(text, config, folder),
            config,
            domains,
            self._records(f"{folder}/records.jsonl", records, len(domains)),
            done,
            () if done else self._failures(folder),
            folder,
            self._averaged(folder, len(domains), done) if config.swad else None,
        )

    def _no_config(self, folder: str) -> None:
        if os.path.exists(f"{folder}/results.jsonl"):
            self.problems.append(f"{folder} is a run of DomainBed; read it with genie-dg import first.")
        elif os.path.exists(f"{folder}/records.jsonl"):
            self.problems.append(f"{folder} has records but no config.json; the run is left out.")

    def _file(self, path: str) -> bytes | None:
        """The bytes of a file, or ``None`` where there is none or it cannot be read."""
        try:
            return read_bytes(path)
        except OSError as error:
            self.problems.append(f"{path} cannot be read ({why(error)}); it counts as missing.")
            return None

    def _names(self, folder: str, records: bytes) -> tuple[str, ...] | None:
        """The domains by name, or numbered as many as the first whole record has."""
        text = self._file(f"{folder}/meta.json")
        if text is not None and text in self._domains:
            return self._domains[text]
        try:
            names = loads(text or b"")["domains"]
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or not names:
                raise ValueError("its domains are no list of names")
        except (*BROKEN, TypeError, KeyError) as error:
            self.problems.append(f"{folder}/meta.json cannot be read ({why(error)}); its domains are numbered.")
            return _numbered(records)
        found = tuple(sys.intern(name) for name in names)
        self._domains[text or b""] = found
        return found

    def _records(self, path: str, text: bytes, domains: int) -> Numbers:
        numbers = quick_numbers(text, domains)
        if numbers is not None:
            return numbers
        rows: list[list[float]] = []
        for number, line in enumerate(text.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                row = row_of(loads(line), domains)
                if rows and row[0] <= rows[-1][0]:
                    raise ResultsError(f"step={row[0]:.0f} comes after step {rows[-1][0]:.0f}.")
            except BROKEN as error:
                self.problems.append(f"Line {number} of {path} is no record ({why(error)}); it is left out.")
            else:
                rows.append(row)
        return np.array(rows, dtype=np.float64).reshape(len(rows), len(LEADING) + 2 * domains)

    def _averaged(self, folder: str, domains: int, done: bool) -> Numbers | None:
        text = self._file(f"{folder}/swad.json")
        if text is None:
            if done:
                self.problems.append(
                    f"{folder} is a complete run with SWAD but has no swad.json; it is not used."
                )
            return None
        try:
            return np.array([row_of(loads(text), domains)], dtype=np.float64)
        except BROKEN as error:
            self.problems.append(f"{folder}/swad.json is no record ({why(error)}); the run is not used.")
            return None

    def _failures(self, folder: str) -> tuple[str, ...]:
        found: list[str] = []
        for line in (self._file(f"{folder}/failures.jsonl") or b"").split(b"\n"):
            if line.strip():
                try:
                    found.append(str(loads(line)["reason"]))
                except (*BROKEN, TypeError, KeyError) as error:
                    self.problems.append(
                        f"{folder}/failures.jsonl has a line that is no failure ({why(error)})."
                    )
        return tuple(found)


def _run_id(text: bytes, config: RunConfig, folder: str) -> str:
    """The identity of a run; a folder that is named by the digest of its configuration need not be asked."""
    digest = hashlib.sha256(text.strip()).hexdigest()[:16]
    return digest if folder.endswith(digest) else config.run_id


def _numbered(records: bytes) -> tuple[str, ...] | None:
    for line in records.split(b"\n"):
        try:
            count = len(loads(line)["in_acc"])
        except (*BROKEN, TypeError, KeyError):
            continue
        return tuple(f"domain {k}" for k in range(count))
    return None


def _named(runs: list[Run]) -> list[Run]:
    """Runs whose domains are only numbered take the names that all others of their data agree on."""
    known: dict[tuple[str, int], set[tuple[str, ...]]] = {}
    for run in runs:
        if run.domains[0] != "domain 0":
            known.setdefault((run.config.dataset, len(run.domains)), set()).add(run.domains)
    return [_with_names(run, known.get((run.config.dataset, len(run.domains)), set())) for run in runs]


def _with_names(run: Run, names: set[tuple[str, ...]]) -> Run:
    return replace(run, domains=next(iter(names))) if run.domains[0] == "domain 0" and len(names) == 1 else run
