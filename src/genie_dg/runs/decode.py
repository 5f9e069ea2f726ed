"""One run folder, decoded: what each of its files says, and a sentence for each that cannot be used.

Only the files that `genie_dg.runs.folder` names are opened, only as JSON; a path inside them is never followed.
What cannot be read loses nothing else: a broken record leaves the other records.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec

from genie_dg.check import InputError, is_number
from genie_dg.files import read_whole

from .config import RunConfig, from_mapping
from .folder import AVERAGE, CONFIG, DONE, LAUNCH, META, RECORDS, TIMINGS, WATCH
from .outcome import OUTCOMES, Ending, read_outcomes
from .record import Record, decode_record
from .seal import differs, other_name, sealed_files

_T = TypeVar("_T")

_BROKEN = (ValueError, RecursionError, TypeError, KeyError, OverflowError, msgspec.MsgspecError)
"""What reading a damaged file raises."""

_hints = get_type_hints(RunConfig)
StoredConfig: Any = msgspec.defstruct(
    "StoredConfig", [(f.name, _hints[f.name]) for f in fields(RunConfig)][:2]
    + [(f.name, _hints[f.name], f.default_factory() if callable(f.default_factory) else f.default)
       for f in fields(RunConfig)[2:]],
    module=__name__, forbid_unknown_fields=True, omit_defaults=True, gc=False,
)  # fmt: skip
"""The fields of `RunConfig` as msgspec decodes them, unchecked: a run's own name is the digest of its text."""


class _Timing(msgspec.Struct, gc=False):
    """A line of ``timings.jsonl``."""

    step: Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
    seconds: float


decode_config = msgspec.json.Decoder(StoredConfig).decode
"""A configuration from its text."""
_decode_timing = msgspec.json.Decoder(_Timing).decode
_decode_watch = msgspec.json.Decoder(dict[str, Any]).decode
_decode = msgspec.json.Decoder().decode

OF_RUN = (
    "run", "folder", "done", "outcome", "reason", "written", "config", "domains", "versions", "command",
    "averaged", "watch",
)  # fmt: skip
"""What is known of each run besides lists of numbers."""
OF_RECORD = ("step", "epoch", "loss", "validation_loss")
"""The numbers of a record that are not accuracies; one that is missing is NaN."""
LISTS = (*OF_RECORD, "in_acc", "out_acc", "timed_step", "seconds")
"""The lists of numbers of a run."""


class LeftOut(Exception):
    """Why a run takes no part, in a few words."""


class RunFolder:
    """The files of one run folder, and what is wrong with them.

    Args:
        path: of the folder.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.problems: list[str] = []
        self.digests: dict[str, str] = {}
        try:
            self.names = set(os.listdir(path))
        except OSError as error:
            self.names = set()
            self.problems.append(f"{path} cannot be read ({error.strerror}); it counts as missing.")

    def read(self, runs: dict[str, list[Any]], numbers: dict[str, list[list[Any]]]) -> None:
        """Add the run to columns; what is not a run adds nothing, or a sentence."""
        text = self.bytes_of(CONFIG)
        if text is None:
            self._without_config()
            return
        config, run_id = self._config(text)
        mark, meta, lines = self.bytes_of(DONE), self.bytes_of(META), self.bytes_of(RECORDS)
        self._check_seal(mark, run_id, {CONFIG: text, META: meta, RECORDS: lines})
        domains, versions = self._meta(meta)
        if config.test_domains[-1] >= len(domains):
            shown = list(config.test_domains)
            raise LeftOut(f"{self.path} has {len(domains)} domains but test domains {shown}")
        done = mark is not None
        records = self._records(lines or b"", len(domains), config.test_domains)
        average = self._average(len(domains), config.test_domains, done) if config.swad else []
        values = (
            run_id, self.path, done, *self._outcome(done), self._written(), config, domains, versions,
            read_launch(Path(self.path)) if LAUNCH in self.names else (), bool(average), self._watch(),
        )  # fmt: skip
        for name, value in zip(OF_RUN, values, strict=True):
            runs[name].append(value)
        records += average
        for name in OF_RECORD:
            numbers[name].append(list(map(attrgetter(name), records)))
        for name in ("in_acc", "out_acc"):
            numbers[name].append(list(chain.from_iterable(map(attrgetter(name), records))))
        times = self.times()
        numbers["timed_step"].append(list(times))
        numbers["seconds"].append(list(times.values()))

    def bytes_of(self, name: str) -> bytes | None:
        """A whole file; ``None`` when there is none or it cannot be read."""
        if name not in self.names:
            return None
        try:
            return read_whole(f"{self.path}/{name}")
        except OSError as error:
            self.problems.append(f"{self.path}/{name} cannot be read ({error.strerror}); it counts as missing.")
            return None

    def unchanged(self, name: str, otherwise: str = "what it holds is not used") -> bytes | None:
        """The same of a file beside the records; ``None``, and a sentence, where it changed since the end."""
        data = self.bytes_of(name)
        if changed := differs(self.path, name, data, self.digests):
            self.problems.append(f"{changed}; {otherwise}.")
            return None
        return data

    def times(self) -> dict[int, float]:
        """Seconds that each record took, with the steps before it, by step; the last time counts."""
        return {line.step: line.seconds for line in _each_line(_decode_timing, self.unchanged(TIMINGS))}

    def _without_config(self) -> None:
        if "results.jsonl" in self.names:
            self.problems.append(f"{self.path} is a run of DomainBed; read it with genie-dg import first.")
        elif RECORDS in self.names:
            raise LeftOut(f"{self.path} has records but no {CONFIG}")

    def _config(self, text: bytes) -> tuple[Any, str]:
        """The configuration and its identity; what no run can have is refused."""
        try:
            config = decode_config(text)
            run_id = hashlib.sha256(text.strip()).hexdigest()[:16]
            if not self.path.endswith(run_id):  # else it was checked when it was written
                run_id = from_mapping(_decode(text)).run_id
            if min(config.test_domains, default=-1) < 0 or config.steps >= 2**63:
                raise InputError("its test_domains or steps are out of range")
            config.test_domains = tuple(sorted(set(config.test_domains)))
            return config, run_id
        except _BROKEN as error:
            raise self._unreadable(CONFIG, error) from error

    def _unreadable(self, name: str, error: Exception) -> LeftOut:
        return LeftOut(f"{self.path}/{name} cannot be read ({_words(error)})")

    def _check_seal(self, mark: bytes | None, run_id: str, needed: dict[str, bytes | None]) -> None:
        """Refuse a finished run that is not what it was when it was finished."""
        if not mark:
            return
        try:
            self.digests = sealed_files(mark)
        except _BROKEN as error:
            raise self._unreadable(DONE, error) from error
        broken = [differs(self.path, name, data, self.digests) for name, data in needed.items()]
        broken.append(other_name(self.path, run_id, self.digests))
        if any(broken):
            raise LeftOut(next(filter(None, broken)))

    def _meta(self, text: bytes | None) -> tuple[tuple[str, ...], Versions]:
        """The domains by name, and what else the run ran on."""
        if text not in _known_meta:
            try:
                _known_meta[text] = _named(_decode(text or b""))
            except _BROKEN as error:
                raise self._unreadable(META, error) from error
        return _known_meta[text]

    def _records(self, text: bytes, domains: int, tested: Sequence[int]) -> list[Record]:
        """The records, and a sentence for each line that is none."""
        records, before = list[Record](), -1
        for number, line in enumerate(text.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                record = decode_record(line)
                fault = _fault(record, domains, tested)
                if not fault and record.step <= before:
                    fault = f"step {record.step} comes after step {before}"
            except _BROKEN as error:
                fault = _words(error)
            if fault:
                line_of = f"Line {number} of {self.path}/{RECORDS}"
                self.problems.append(f"{line_of} is not a record ({fault}); it is left out.")
            else:
                before = record.step
                records.append(record)
        return records

    def _average(self, domains: int, tested: Sequence[int], done: bool) -> list[Record]:
        """The record of SWAD's averaged weights, when it is there."""
        text = self.unchanged(AVERAGE, "the run is not used")
        if text is None and (not done or AVERAGE in self.digests):
            return []
        try:
            record = decode_record(text or b"")
            fault = _fault(record, domains, tested)
        except _BROKEN as error:
            fault = _words(error)
        if fault:
            self.problems.append(f"{self.path}/{AVERAGE} is not a record ({fault}); the run is not used.")
        return [] if fault else [record]

    def _outcome(self, done: bool) -> tuple[str | None, str]:
        """How the last attempt ended, and why; nothing where the run is under way or was killed."""
        if done:
            return Ending.finished.value, ""
        attempts = read_outcomes(Path(self.path), self.problems) if OUTCOMES in self.names else []
        if not attempts or attempts[-1].ending == Ending.finished:
            return None, ""
        return attempts[-1].ending.value, str(attempts[-1])

    def _written(self) -> int | None:
        """When the run was finished, or its last record written, in seconds since 1970."""
        for name in (DONE, RECORDS):
            if name in self.names:
                return int(os.stat(f"{self.path}/{name}").st_mtime)
        return None

    def _watch(self) -> list[dict[str, Any]]:
        """What was watched, by step and name; a step that was done twice counts once."""
        lines = _each_line(_decode_watch, self.unchanged(WATCH))
        by_step = {line["step"]: line for line in lines if type(line.get("step")) is int}
        listed = []
        for step, line in by_step.items():
            for name, value in line.items():
                values = value if isinstance(value, list) else [value]
                if name != "step" and values and all(map(is_number, values)):
                    listed.append({"step": step, "name": name, "values": values})
        return listed


Versions = tuple[tuple[str, str], ...]
"""What a run ran on: names and values."""

_known_meta: dict[bytes | None, tuple[tuple[str, ...], Versions]] = {}
"""What the text of a ``meta.json`` says; runs of one sweep share it."""


def _named(meta: Any) -> tuple[tuple[str, ...], Versions]:
    """The names of the domains, and all else that is text or a number; a mapping inside is opened once."""
    domains = meta["domains"]
    if not isinstance(domains, list) or not domains or not all(isinstance(name, str) for name in domains):
        raise InputError("its domains are not a list of names")
    values: dict[str, Any] = {}
    for key, value in meta.items():
        values |= {f"{key}.{k}": x for k, x in value.items()} if isinstance(value, dict) else {key: value}
    versions = [(name, str(value)) for name, value in values.items() if isinstance(value, (str, int, float))]
    return tuple(domains), tuple(versions)


def _each_line(decode: Callable[[bytes], _T], text: bytes | None) -> Iterator[_T]:
    """The lines that can be decoded: what was timed and watched is for showing."""
    for line in (text or b"").split(b"\n"):
        if line.strip():
            with suppress(*_BROKEN):
                yield decode(line)


def _fault(record: Record, domains: int, tested: Sequence[int]) -> str:
    """Why a record cannot be one of a run, in few words; empty when it can."""
    if len(record.in_acc) != domains or len(record.out_acc) != domains:
        return f"expected {domains} accuracies of each part"
    if any(record.in_acc[k] is None for k in tested):
        return "an accuracy of a test domain is missing"
    return ""


def _words(error: BaseException) -> str:
    """Why a file cannot be read, in few words."""
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return (str(error).rstrip(".") or type(error).__name__)[:160]


def read_launch(folder: Path) -> tuple[str, ...]:
    """The words of the command that started a run, or none where they are not known."""
    try:
        text = read_whole(folder / LAUNCH)
        return tuple(msgspec.json.decode(text, type=dict[str, list[str]])["command"])
    except (OSError, KeyError, ValueError, msgspec.MsgspecError):  # it is for showing only
        return ()
