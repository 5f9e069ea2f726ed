"""Runs as one frame: a row for each run, its records as lists in that row.

`load` reads folders of runs into a polars frame; everything after training (selection, tables, comparison,
report) is a function of it. `COLUMNS` says what each column holds, `records` opens the lists into the tidy form
with a row for each record.

Beside many runs ``frame.arrow`` is kept, so that the next read need not open their files: complete runs whose
files have not changed since come from there, all others are read anew. It can be removed at any time.
"""

from __future__ import annotations

import io
import os
import warnings
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from genie_dg.check import InputError
from genie_dg.files import FileWarning, read_whole
from genie_dg.runs import folder as names
from genie_dg.runs.archive import unpacked
from genie_dg.runs.read import PER_RECORD, PER_RUN, Numbers, Runs, in_parallel, read_runs, run_folders

INDEX = "frame.arrow"
"""The consolidated file in a folder of runs."""
CHECK = ".crc32"
"""The ending of the file beside it that holds its checksum."""
MOST = 2**20
"""Bytes of it for each run; a larger one is not an index of these runs."""
INDEXED = 200
"""A folder with fewer runs is read quickly enough without."""

_FLOATS = pl.List(pl.Float64)
COLUMNS: dict[str, tuple[pl.DataType | type[pl.DataType], str]] = {
    "run": (pl.String, "identity of the run"),
    "folder": (pl.String, "where it is"),
    "done": (pl.Boolean, "the run is complete"),
    "failures": (pl.List(pl.String), "why attempts of a run that is not complete ended"),
    "dataset": (pl.String, "name of the data set"),
    "domains": (pl.List(pl.String), "names of its domains"),
    "algorithm": (pl.String, "name; with SWAD it ends in +SWAD"),
    "optimizer": (pl.String, "name"),
    "backbone": (pl.String, "name"),
    "protocol": (pl.String, "the rules that made the run"),
    "oracle": (pl.String, "the record that test-domain validation looks at: last or best"),
    "test_domains": (pl.List(pl.Int64), "indices of the domains that were left out"),
    "trial": (pl.Int64, "seed of splits, initial weights and batches"),
    "draw": (pl.Int64, "which draw of the hyper-parameters, 0 for the defaults"),
    "steps": (pl.Int64, "length of the run"),
    "swad": (pl.Boolean, "weights were averaged; selection then looks at the average alone"),
    "averaged": (pl.Boolean, "the last record is that of SWAD's averaged weights"),
    "config": (pl.String, "the whole configuration, as JSON"),
    "step": (pl.List(pl.Int64), "by record: its step, from 0"),
    "epoch": (_FLOATS, "by record: how often the smallest training domain has been seen"),
    "loss": (_FLOATS, "by record: mean training loss since the record before; NaN where none was measured"),
    "validation_loss": (_FLOATS, "by record: mean loss on the held-back parts of the training domains"),
    "in_acc": (_FLOATS, "record by record and in each domain by domain: accuracy on the 80 % part"),
    "out_acc": (_FLOATS, "record by record and in each domain by domain: accuracy on the held-back 20 %"),
    "validation": (_FLOATS, "by record: mean out_acc of the training domains, for training-domain selection"),
    "test": (_FLOATS, "by record: mean in_acc of the test domains, which tables show"),
    "test_validation": (_FLOATS, "by record: mean out_acc of the test domains, for the oracle"),
    "row": (pl.String, "the row of a table: algorithm + optimizer, and what else tells rows apart"),
}
"""Name, type and meaning of each column."""

PER_RECORD_MEANS = ("validation", "test", "test_validation")


class ResultsError(InputError):
    """Results cannot be shown as asked."""


def load(*folders: str | os.PathLike[str], problems: list[str] | None = None) -> pl.DataFrame:
    """The runs of one or more folders, by folder and name.

    Args:
        folders: each a folder of runs, or that of one run. Of several copies of a run the complete one with the
            most records is kept, at a tie the first.
        problems: sentences about what cannot be read are added here; without a list they are warnings.
    """
    unread: list[str] = []
    frame = pl.concat([_folder(os.fspath(folder), unread) for folder in folders])
    frame = with_rows(_named(_once(frame, unread)))
    if problems is not None:
        problems += unread
    else:
        for problem in unread:
            warnings.warn(problem, FileWarning, stacklevel=2)
    return frame


def records(frame: pl.DataFrame) -> pl.DataFrame:
    """The tidy form: a row for each record, with all that is known of its run.

    ``in_acc`` and ``out_acc`` are then lists with one accuracy for each domain. ``averaged`` marks the record
    of SWAD's averaged weights. A run without records has no row.
    """
    count = pl.col("step").list.len()
    some = frame.filter(count > 0)
    lengths = np.repeat(
        some["domains"].list.len().to_numpy().astype(np.int64), some["step"].list.len().to_numpy()
    )
    flat = {name: some[name].explode(empty_as_null=False).to_numpy() for name in ("in_acc", "out_acc")}
    split = {name: _lists(values, lengths) for name, values in flat.items()}
    tidy = some.drop("in_acc", "out_acc").with_columns(at=pl.int_ranges(count), last=count - 1)
    tidy = tidy.explode(*PER_RECORD, *PER_RECORD_MEANS, "at", empty_as_null=False).with_columns(**split)
    tidy = tidy.with_columns(averaged=pl.col("averaged") & (pl.col("at") == pl.col("last")))
    return tidy.select(list(COLUMNS))


def from_runs(runs: Runs) -> pl.DataFrame:
    """The frame of runs that were read."""
    counts = np.array(runs.count, dtype=np.int64)
    sizes = np.array([len(domains) for domains in runs.runs["domains"]], dtype=np.int64)
    flat = {name: _joined(getattr(runs, name)) for name in ("in_acc", "out_acc")}
    columns: dict[str, Any] = {name: runs.runs[name] for name in PER_RUN}
    for name in ("domains", "test_domains", "failures"):
        columns[name] = _repeated(columns[name], COLUMNS[name][0])
    columns |= {name: _lists(_joined(runs.records[name]), counts) for name in PER_RECORD}
    columns["step"] = columns["step"].cast(pl.List(pl.Int64))
    columns |= {name: _lists(values, counts * sizes) for name, values in flat.items()}
    columns |= {name: _lists(x, counts) for name, x in _means(runs, counts, sizes, flat).items()}
    columns["row"] = [""] * len(counts)
    return pl.DataFrame(columns, schema={name: dtype for name, (dtype, _) in COLUMNS.items()})


def _repeated(values: Sequence[tuple[Any, ...]], dtype: Any) -> pl.Series:
    """Lists of which there are few different ones: each is made once."""
    places = {value: at for at, value in enumerate(dict.fromkeys(values))}
    return pl.Series([list(value) for value in places], dtype=dtype)[[places[value] for value in values]]


def _joined(parts: Sequence[Numbers]) -> Numbers:
    return np.concatenate(parts) if parts else np.zeros(0)


def _means(
    runs: Runs, counts: NDArray[np.int64], sizes: NDArray[np.int64], flat: Mapping[str, Numbers]
) -> dict[str, Numbers]:
    """The columns that are means over domains; NaN where there is no such domain."""
    owner = np.repeat(np.arange(len(counts)), counts)
    starts = np.cumsum(sizes[owner]) - sizes[owner]
    means = {name: np.full(len(owner), np.nan) for name in PER_RECORD_MEANS}
    kinds: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for at, kind in enumerate(zip(sizes.tolist(), runs.runs["test_domains"], strict=True)):
        kinds.setdefault(kind, []).append(at)
    for (size, test), members in kinds.items():
        inside = np.zeros(len(counts), dtype=bool)
        inside[members] = True
        rows = np.flatnonzero(inside[owner])
        sources = [k for k in range(size) if k not in test]
        for name, part, which in (
            ("validation", "out_acc", sources),
            ("test", "in_acc", test),
            ("test_validation", "out_acc", test),
        ):
            if which:
                means[name][rows] = mean_of(flat[part], starts[rows], which)
    return means


def mean_of(values: Numbers, starts: NDArray[np.int64], which: Sequence[int]) -> Numbers:
    """For each record that starts at a place of ``values`` the mean of some domains, added from left to right.

    >>> mean_of(np.array([0.5, 0.0, 1.0]), np.array([0]), [0, 2]).tolist()
    [0.75]
    """
    total = values[starts + which[0]]
    for k in which[1:]:
        total = total + values[starts + k]
    mean: Numbers = total / len(which)
    return mean


def _lists(flat: Numbers, lengths: NDArray[np.int64]) -> pl.Series:
    """Numbers cut into lists of some lengths; lists of one length are cut in one go."""
    starts = np.cumsum(lengths) - lengths
    blocks, order = [], []
    for size in np.unique(lengths):
        members = np.flatnonzero(lengths == size)
        rows = flat[starts[members][:, None] + np.arange(size)]
        block = pl.Series(rows).cast(_FLOATS) if size else pl.Series([[]] * len(members), dtype=_FLOATS)
        blocks.append(block)
        order.append(members)
    if not blocks:
        return pl.Series([], dtype=_FLOATS)
    return blocks[0] if len(blocks) == 1 else pl.concat(blocks)[np.argsort(np.concatenate(order))]


def _once(frame: pl.DataFrame, problems: list[str]) -> pl.DataFrame:
    """Of several copies of a run the complete one with the most records."""
    if frame["run"].n_unique() == len(frame):
        return frame
    kept: dict[str, tuple[tuple[bool, int], int, str]] = {}  # in the order in which runs first appear
    columns = frame.select("run", "done", pl.col("step").list.len(), "averaged", "folder")
    for at, (run, done, count, averaged, folder) in enumerate(columns.iter_rows()):
        worth = (done, count - averaged)
        if run in kept:
            problems.append(f"{folder} and {kept[run][2]} hold the same run; it counts once.")
            if worth <= kept[run][0]:
                continue
        kept[run] = (worth, at, folder)
    return frame[[at for _, at, _ in kept.values()]]


def _named(frame: pl.DataFrame) -> pl.DataFrame:
    """Runs whose domains are only numbered take the names that all others of their data agree on."""
    kinds = frame.select("dataset", "domains").unique().rows()
    known: dict[tuple[str, int], set[tuple[str, ...]]] = {}
    for dataset, domains in kinds:
        if domains[0] != "domain 0":
            known.setdefault((dataset, len(domains)), set()).add(tuple(domains))
    agreed = {key: next(iter(some)) for key, some in known.items() if len(some) == 1}
    if not any(domains[0] == "domain 0" and (dataset, len(domains)) in agreed for dataset, domains in kinds):
        return frame
    named = [
        list(agreed.get((dataset, len(domains)), domains)) if domains[0] == "domain 0" else domains
        for dataset, domains in frame.select("dataset", "domains").iter_rows()
    ]
    return frame.with_columns(domains=pl.Series(named, dtype=pl.List(pl.String)))


def with_rows(frame: pl.DataFrame) -> pl.DataFrame:
    """Name the row of each run: ``algorithm + optimizer``, and in brackets what else tells rows apart.

    That is the backbone where there are several, and the protocol where the same row has several.
    """
    kind = ["algorithm", "optimizer", "backbone"]
    several = pl.col("protocol").n_unique().over(kind) > 1
    marks = [pl.col("backbone")] if frame["backbone"].n_unique() > 1 else []
    marks.append(pl.when(several).then(pl.col("protocol")))
    text = pl.concat_str(marks, separator=", ", ignore_nulls=True)
    brackets = pl.when(text != "").then(pl.format(" ({})", text)).otherwise(pl.lit(""))
    return frame.with_columns(row=pl.format("{} + {}{}", "algorithm", "optimizer", brackets))


def _folder(folder: str, problems: list[str]) -> pl.DataFrame:
    """The frame of one folder, or of the archive in it, from its index as far as that is still true."""
    folder = unpacked(folder)
    paths = run_folders(folder)
    index, stale = None, paths
    if len(paths) >= INDEXED and os.path.isfile(os.path.join(folder, INDEX)):
        with ThreadPoolExecutor(1) as reader:  # the index is read while the files are looked at
            reading = reader.submit(_read_index, folder, MOST * (len(paths) + 64))
            stamps = in_parallel(_stamps, paths)
            index = reading.result()
        named = [] if index is None else _at(index, folder)["folder"].to_list()
        known = {} if index is None else dict(zip(named, index["stamp"].to_list(), strict=True))
        stale = [p for p, s in zip(paths, stamps, strict=True) if not s or known.get(p) != s]
    runs = read_runs(stale)
    problems += runs.problems
    fresh = from_runs(runs)
    frame, lasting = fresh, fresh.filter(pl.col("done"), ~pl.col("folder").is_in(runs.damaged))
    gone = False
    if index is not None:
        kept = _at(index, folder)
        gone = len(paths) - len(stale) < len(index)
        kept = kept.filter(pl.col("folder").is_in(list(set(paths) - set(stale)))) if gone else kept
        frame = pl.concat([kept, fresh]).sort("folder") if len(fresh) else kept
    if len(paths) >= INDEXED and (index is None or gone or len(lasting)):
        _write_index(folder, frame.filter(~pl.col("folder").is_in(runs.damaged)))
    return frame


def _at(index: pl.DataFrame, folder: str) -> pl.DataFrame:
    """The runs of an index, whose folders are named as in their folder of runs."""
    return index.drop("stamp").with_columns(
        folder=pl.format("{}{}", pl.lit(os.path.join(folder, "")), "folder")
    )


def _stamps(paths: Sequence[str]) -> list[int]:
    """For each run a number that changes when its numbers or its configuration are written, or a file of it is
    replaced, added or removed; 0 where there are none.
    """
    stamps = []
    for path in paths:
        try:
            folder = os.stat(path)
            config, lines = os.stat(f"{path}/{names.CONFIG}"), os.stat(f"{path}/{names.RECORDS}")
        except OSError:
            stamps.append(0)
        else:
            sizes = config.st_size, lines.st_size
            stamps.append(hash((folder.st_mtime_ns, config.st_mtime_ns, lines.st_mtime_ns, *sizes)))
    return stamps


def _read_index(folder: str, most: int) -> pl.DataFrame | None:
    """The index of a folder; one that is damaged, or of another version, is one that is not there."""
    path = Path(folder) / INDEX
    try:
        data = read_whole(path, most)
        if read_whole(path.with_suffix(CHECK)) != f"{zlib.crc32(data):08x}".encode("ascii"):
            return None
        index = pl.read_ipc(data)
    except (pl.exceptions.PolarsError, OSError, ValueError):
        return None
    wanted = {**{name: dtype for name, (dtype, _) in COLUMNS.items()}, "stamp": pl.Int64}
    return index if index.schema == pl.Schema(wanted) else None


def _write_index(folder: str, frame: pl.DataFrame) -> None:
    """Keep the complete runs, with a checksum; a folder that cannot be written is read in full every time."""
    done = frame.filter(pl.col("done"))
    stamps = pl.Series(in_parallel(_stamps, done["folder"].to_list()), dtype=pl.Int64)
    done = done.with_columns(folder=pl.col("folder").str.split(os.sep).list.last(), stamp=stamps)
    data, path = io.BytesIO(), Path(folder) / INDEX
    done.write_ipc(data, compression="uncompressed")
    check = f"{zlib.crc32(data.getbuffer()):08x}".encode("ascii")
    for name, contents in ((path, data.getbuffer()), (path.with_suffix(CHECK), check)):
        part = name.with_name(f"{name.name}.{os.getpid()}.part")
        try:  # not synced: an index that is lost or torn is made again
            part.write_bytes(contents)
            part.replace(name)
        except OSError:
            with suppress(OSError):
                part.unlink()
            return
