"""Read run folders, whatever state they are in, as columns of numbers.

Only the files that `genie_dg.runs.folder` names are opened, only as JSON; a path inside them is never followed.
What cannot be read is told in one sentence each and loses nothing else: a broken record leaves the other
records, a broken ``meta.json`` leaves the numbers, a broken configuration leaves the other runs.
"""

from __future__ import annotations

import gc
import hashlib
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields
from itertools import chain
from multiprocessing import get_context
from operator import attrgetter, lt
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from genie_dg.check import InputError, is_number
from genie_dg.files import FileWarning, read_lines, read_whole
from genie_dg.statistics import total

from . import folder as names
from .config import RunConfig, from_mapping, oracle_rule
from .record import Record, record_from
from .seal import differs, other_name, sealed_files

Numbers = NDArray[np.float64]

CHUNK = 250
"""Folders that are read together."""
PARALLEL = 16 * CHUNK
"""From so many folders on all cores read, where the system can fork."""

_hints = get_type_hints(RunConfig)
Config: Any = msgspec.defstruct(
    "Config", [(f.name, _hints[f.name]) for f in fields(RunConfig)][:2]
    + [(f.name, _hints[f.name], f.default_factory() if callable(f.default_factory) else f.default)
       for f in fields(RunConfig)[2:]],
    forbid_unknown_fields=True, gc=False,
)  # fmt: skip
"""The fields of `RunConfig` as msgspec decodes them."""


Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Line(msgspec.Struct, gc=False):
    """A line of ``records.jsonl`` as msgspec decodes it; `record_from` says what it must be."""

    step: Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
    epoch: float | None
    loss: float | None
    validation_loss: float | None
    in_acc: list[Share | None]
    out_acc: list[Share]


_config = msgspec.json.Decoder(Config)
_line = msgspec.json.Decoder(Line)
_any = msgspec.json.Decoder()
BROKEN = (ValueError, RecursionError, TypeError, KeyError, OverflowError)
"""What reading a damaged file raises."""


PER_RUN = (
    "run", "folder", "done", "failures", "dataset", "domains", "algorithm", "optimizer", "backbone", "protocol",
    "oracle", "test_domains", "trial", "draw", "steps", "swad", "averaged", "config",
)  # fmt: skip
"""What is known of each run besides its records; ``config`` is the text of ``config.json``."""
PER_RECORD = ("step", "epoch", "loss", "validation_loss")
"""The numbers of a record that are not accuracies; one that is missing is NaN."""


@dataclass
class Runs:
    """Some runs as columns.

    Args:
        runs: by name of `PER_RUN` one value a run.
        count: by run, how many records it has, that of SWAD's average, the last one, among them.
        records: by name of `PER_RECORD` one value a record.
        in_acc, out_acc: accuracies, record by record and in each domain by domain.
        averaged: by record, whether it is that of SWAD's averaged weights.
        problems: a sentence for each file or line that cannot be read.
        damaged: the folders that these are about.
    """

    runs: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in PER_RUN})
    count: list[int] = field(default_factory=list)
    records: dict[str, list[Numbers]] = field(default_factory=lambda: {name: [] for name in PER_RECORD})
    in_acc: list[Numbers] = field(default_factory=list)
    out_acc: list[Numbers] = field(default_factory=list)
    averaged: list[bool] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    def extend(self, other: Runs) -> None:
        """Add other runs."""
        for name in PER_RUN:
            self.runs[name] += other.runs[name]
        for name in PER_RECORD:
            self.records[name] += other.records[name]
        for name in ("count", "in_acc", "out_acc", "averaged", "problems", "damaged"):
            getattr(self, name).extend(getattr(other, name))


def run_folders(folder: str) -> list[str]:
    """The folders of runs in a folder, sorted; the folder itself when it is that of a run."""
    try:
        if os.path.exists(os.path.join(folder, names.CONFIG)):
            return [folder]
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir())
    except OSError as error:
        raise InputError(
            f"{folder} cannot be read ({error.strerror}); name a folder that holds the folders of runs."
        ) from error


def read_runs(folders: Sequence[str]) -> Runs:
    """The runs of some folders, in order."""
    runs = Runs()
    for part in in_parallel(_read_chunks, folders):
        runs.extend(part)
    return runs


T = TypeVar("T")


def in_parallel(work: Callable[[Sequence[str]], list[T]], folders: Sequence[str]) -> list[T]:
    """Some work on many folders, on all cores: most of its time goes to files, found side by side.

    Few folders, or a system that cannot fork, are worked on here.
    """
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    if cores == 1 or len(folders) < PARALLEL:
        return work(folders)
    size = -(-len(folders) // (4 * cores) // CHUNK) * CHUNK or CHUNK
    chunks = [folders[at : at + size] for at in range(0, len(folders), size)]
    with ProcessPoolExecutor(cores, mp_context=get_context("fork")) as pool:
        return list(chain.from_iterable(pool.map(work, chunks)))


def _read_chunks(folders: Sequence[str]) -> list[Runs]:
    return [_read_chunk(folders[at : at + CHUNK]) for at in range(0, len(folders), CHUNK)]


def _read_chunk(folders: Sequence[str]) -> Runs:
    """The runs of some folders, and their records column by column."""
    collecting = gc.isenabled()
    gc.disable()  # nothing here is a cycle; the collector would look at all records again and again
    try:
        runs, lines = Runs(), list[Line]()
        for path in folders:
            before = len(runs.problems)
            lines += _read_run(path, runs)
            runs.damaged += [path] * (len(runs.problems) > before)
        _add_columns(runs, lines)
        return runs
    finally:
        if collecting:
            gc.enable()


def _read_run(folder: str, runs: Runs) -> list[Line]:
    """Add one run and return its records; what is not a run adds nothing, or a sentence."""
    text = _bytes(f"{folder}/{names.CONFIG}", runs.problems)
    if text is None:
        _without_config(folder, runs.problems)
        return []
    try:
        config, run_id = _identified(folder, text)
    except BROKEN as error:
        runs.problems.append(f"{folder}/{names.CONFIG} cannot be read ({reason(error)}); the run is left out.")
        return []
    mark = _bytes(f"{folder}/{names.DONE}", runs.problems)
    records = _bytes(f"{folder}/{names.RECORDS}", runs.problems)
    done, files = mark is not None, dict[str, str]()
    if mark:
        try:
            files = sealed_files(mark)
        except BROKEN as error:
            runs.problems.append(
                f"{folder}/{names.DONE} cannot be read ({reason(error)}); the run is left out."
            )
            return []
        broken = (
            differs(folder, names.CONFIG, text, files)
            or other_name(folder, run_id, files)
            or differs(folder, names.RECORDS, records, files)
        )
        if broken:
            runs.problems.append(f"{broken}; the run is left out.")
            return []
    records = records or b""
    domains = _domains(folder, records, files, runs.problems)
    if domains is None or not all(k < len(domains) for k in config.test_domains):
        known = "no domains" if domains is None else f"{len(domains)} domains"
        runs.problems.append(
            f"{folder} has {known} but test domains {list(config.test_domains)}; the run is left out."
        )
        return []
    tested = config.test_domains
    own = _lines(f"{folder}/{names.RECORDS}", records, len(domains), tested, runs.problems)
    average = _average(folder, len(domains), tested, done, files, runs.problems) if config.swad else []
    runs.count.append(len(own) + len(average))
    runs.averaged += [False] * len(own) + [True] * len(average)
    values = (
        run_id,
        folder,
        done,
        () if done else _failures(folder, runs.problems),
        sys.intern(config.dataset),
        domains,
        sys.intern(f"{config.algorithm}{'+SWAD' * config.swad}{'+DiWA' * bool(config.average_of)}"),
        sys.intern(config.optimizer),
        sys.intern(config.backbone),
        sys.intern(config.protocol),
        oracle_rule(config.protocol, config.oracle),
        tuple(sorted(set(config.test_domains))),
        config.trial_seed,
        config.hparams_seed,
        config.steps,
        config.swad,
        bool(average),
        text.strip().decode("utf-8"),
    )
    for name, value in zip(PER_RUN, values, strict=True):
        runs.runs[name].append(value)
    return own + average


def _identified(folder: str, text: bytes) -> tuple[Any, str]:
    """A configuration and its identity; what no run can have is refused."""
    config = _config.decode(text)
    if not config.test_domains:
        raise InputError("its test_domains are none: it was trained on all domains")
    if min(config.test_domains) < 0:
        raise InputError("test_domains is not a list of indices")
    whole = config.trial_seed, config.hparams_seed, config.steps
    if max(map(abs, whole)) >= 2**63:
        raise InputError("a seed or the number of steps has more than 64 bits")
    digest = hashlib.sha256(text.strip()).hexdigest()[:16]
    if folder.endswith(digest):  # named by the digest of its configuration, so it was checked when written
        return config, digest
    return config, from_mapping(_any.decode(text)).run_id


def _add_columns(runs: Runs, lines: Sequence[Line]) -> None:
    """Each column is filled in one pass without a Python loop."""
    for name in PER_RECORD:
        runs.records[name].append(np.array(list(map(attrgetter(name), lines)), dtype=np.float64))
    for name in ("in_acc", "out_acc"):
        values = chain.from_iterable(map(attrgetter(name), lines))
        getattr(runs, name).append(np.array(list(values), dtype=np.float64))  # None, not measured, becomes NaN


def _bytes(path: str, problems: list[str]) -> bytes | None:
    """A whole file; ``None`` when there is none or it cannot be read."""
    try:
        return read_whole(path)
    except (FileNotFoundError, NotADirectoryError):
        if os.path.islink(path):
            problems.append(f"{path} is a link to nothing; it counts as missing.")
    except OSError as error:
        problems.append(f"{path} cannot be read ({error.strerror}); it counts as missing.")
    return None


def _without_config(folder: str, problems: list[str]) -> None:
    if os.path.exists(f"{folder}/results.jsonl"):
        problems.append(f"{folder} is a run of DomainBed; read it with genie-dg import first.")
    elif os.path.exists(f"{folder}/{names.RECORDS}"):
        problems.append(f"{folder} has records but no {names.CONFIG}; the run is left out.")


_known_domains: dict[bytes, tuple[str, ...]] = {}
"""What the text of a ``meta.json`` says; runs of one sweep share it."""


def _domains(folder: str, records: bytes, files: dict[str, str], problems: list[str]) -> tuple[str, ...] | None:
    """The domains by name, or numbered, as many as the first whole record has."""
    meta = _bytes(f"{folder}/{names.META}", problems)
    if changed := differs(folder, names.META, meta, files):
        problems.append(f"{changed}; its domains are numbered.")
        return _numbered(records)
    text = meta or b""
    if text in _known_domains:
        return _known_domains[text]
    try:
        listed = _any.decode(text)["domains"]
        if not isinstance(listed, list) or not listed or not all(isinstance(name, str) for name in listed):
            raise InputError("its domains are not a list of names")
    except BROKEN as error:
        problems.append(f"{folder}/{names.META} cannot be read ({reason(error)}); its domains are numbered.")
        return _numbered(records)
    return _known_domains.setdefault(text, tuple(sys.intern(name) for name in listed))


def _numbered(records: bytes) -> tuple[str, ...] | None:
    for line in records.split(b"\n"):
        try:
            return tuple(f"domain {k}" for k in range(len(_any.decode(line)["in_acc"])))
        except BROKEN:
            continue
    return None


def _lines(path: str, text: bytes, domains: int, tested: Sequence[int], problems: list[str]) -> list[Line]:
    """The records of a run: in one go where all is in order, otherwise line by line."""
    try:
        lines: list[Line] = _line.decode_lines(text)
    except BROKEN:
        return _checked_lines(path, text, domains, tested, problems)
    steps = [line.step for line in lines]
    sizes = {len(line.in_acc) for line in lines} | {len(line.out_acc) for line in lines}
    one_each = len(lines) == text.strip().count(b"\n") + bool(text)  # the decoder would take two in one line
    if one_each and sizes <= {domains} and all(map(lt, steps, steps[1:])) and _measured(lines, tested):
        return lines
    return _checked_lines(path, text, domains, tested, problems)


def _measured(lines: Sequence[Line], tested: Sequence[int]) -> bool:
    """Whether the test domains were evaluated in every record."""
    return all(line.in_acc[k] is not None for line in lines for k in tested)


def _checked_lines(
    path: str, text: bytes, domains: int, tested: Sequence[int], problems: list[str]
) -> list[Line]:
    """The records of a run one by one, and a sentence for each line that is none."""
    lines, before = list[Line](), -1
    for number, line in enumerate(text.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            record = record_from(_object(line), domains, test_domains=tested)
            if record.step <= before:
                raise InputError(f"step {record.step} comes after step {before}")
        except BROKEN as error:
            problems.append(f"Line {number} of {path} is not a record ({reason(error)}); it is left out.")
        else:
            before = record.step
            lines.append(_as_line(record))
    return lines


def _as_line(record: Record) -> Line:
    scalars = record.step, record.epoch, record.loss, record.validation_loss
    return Line(*scalars, list(record.in_acc), list(record.out_acc))


def _object(text: bytes) -> Mapping[str, Any]:
    data = _any.decode(text)
    if not isinstance(data, dict):
        raise InputError("not an object")
    return data


def _average(
    folder: str,
    domains: int,
    tested: Sequence[int],
    done: bool,
    files: dict[str, str],
    problems: list[str],
) -> list[Line]:
    """The record of SWAD's averaged weights, when it is there."""
    text = _bytes(f"{folder}/{names.AVERAGE}", problems)
    if text is not None and (changed := differs(folder, names.AVERAGE, text, files)):
        problems.append(f"{changed}; the run is not used.")
        return []
    if text is None:
        if done:
            problems.append(f"{folder} is a complete run with SWAD but has no {names.AVERAGE}; it is not used.")
        return []
    try:
        return [_as_line(record_from(_object(text), domains, test_domains=tested))]
    except BROKEN as error:
        problems.append(f"{folder}/{names.AVERAGE} is not a record ({reason(error)}); the run is not used.")
        return []


def _failures(folder: str, problems: list[str]) -> tuple[str, ...]:
    lines, unread = read_lines(f"{folder}/{names.FAILURES}")
    problems += unread
    return tuple(str(line.get("reason", "no reason given")) for line in lines)


def _sealed_lines(folder: str, name: str) -> list[dict[str, Any]]:
    """The lines of a file beside the records; of a finished run none, and a warning, if they changed."""
    try:
        files = sealed_files(_bytes(f"{folder}/{names.DONE}", []) or b"")
    except BROKEN:
        files = {}  # the run is left out for it
    data = _bytes(f"{folder}/{name}", [])
    if changed := differs(folder, name, data, files):
        warnings.warn(f"{changed}; what it holds is not used.", FileWarning, stacklevel=3)
        return []
    return read_lines(f"{folder}/{name}")[0]


def watched(folder: str) -> list[dict[str, Any]]:
    """What a run was watched for, one entry a record, by step; a step that was done twice counts once."""
    lines = _sealed_lines(folder, names.WATCH)
    return list({line["step"]: line for line in lines if type(line.get("step")) is int}.values())


def seconds(folder: str) -> dict[int, float]:
    """Seconds that each record took, with the steps before it, by step; the last time counts."""
    lines = _sealed_lines(folder, names.TIMINGS)
    timed: list[tuple[Any, Any]] = [(line.get("step"), line.get("seconds")) for line in lines]
    return {step: float(spent) for step, spent in timed if type(step) is int and step >= 0 and is_number(spent)}


def seconds_per_step(folder: str) -> float | None:
    """Seconds of a step, with its part of the evaluations; ``None`` where nothing was timed."""
    times = seconds(folder)
    return total(times.values()) / (max(times) + 1) if times else None


def versions(folders: Iterable[str]) -> Iterator[dict[str, Any]]:
    """What each ``meta.json`` says besides the domains; one that cannot be read says nothing."""
    for path in folders:
        try:
            text = _bytes(f"{path}/{names.META}", []) or b""
            if differs(path, names.META, text, sealed_files(_bytes(f"{path}/{names.DONE}", []) or b"")):
                continue
            data = _object(text)
        except BROKEN:
            continue
        yield {key: value for key, value in data.items() if key != "domains"}


def reason(error: BaseException) -> str:
    """Why a file cannot be read, in few words."""
    if isinstance(error, KeyError):
        return f"it has no {error}"
    return (str(error).rstrip(".") or type(error).__name__)[:160]
