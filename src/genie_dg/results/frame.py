"""Runs as one frame: a row for each run, its records as lists in that row.

`load` reads folders of runs into a polars frame; everything after training (selection, tables, comparison,
report) is a function of it, and nothing opens the folder of a run after it. `COLUMNS` says what each column
holds, `records` opens the lists into the tidy form with a row for each record.

Beside many runs ``frame.arrow`` is kept, so that the next read need not open their files: complete runs whose
files have not changed since come from there, all others are read anew. It can be removed at any time.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from genie_dg.check import InputError
from genie_dg.files import FileWarning, read_whole
from genie_dg.runs.archive import ARCHIVE, unpacked
from genie_dg.runs.config import oracle_rule
from genie_dg.runs.decode import OF_RECORD, OF_RUN
from genie_dg.runs.outcome import Ending
from genie_dg.runs.read import FloatArray, RunColumns, in_parallel, read_runs, run_folders
from genie_dg.runs.sweep_list import FOLDER as SWEEPS
from genie_dg.statistics import total

from .index import INDEX, read_index, stamps_of, write_index

_INDEXED = 200
"""A folder with fewer runs is read quickly enough without."""

_FLOATS = pl.List(pl.Float64)
_TEXTS = pl.List(pl.String)
_VERSIONS = pl.List(pl.Struct({"name": pl.String, "value": pl.String}))
_WATCH = pl.List(pl.Struct({"step": pl.Int64, "name": pl.String, "values": _FLOATS}))
_SWEEPS = pl.List(pl.Struct({"name": pl.String, "toml": pl.String, "protocol": pl.String}))
COLUMNS: dict[str, tuple[Any, str]] = {
    "run": (pl.String, "identity of the run"),
    "folder": (pl.String, "where it is"),
    "done": (pl.Boolean, "the run is complete"),
    "outcome": (
        pl.Enum([ending.value for ending in Ending]),
        "how its last attempt ended: finished, diverged, failed or stopped; nothing where it was interrupted",
    ),
    "reason": (pl.String, "why, in words; empty for a run that finished"),
    "written": (pl.Int64, "when it was finished, or its last record written, in seconds since 1970"),
    "dataset": (pl.String, "name of the data set"),
    "domains": (_TEXTS, "names of its domains"),
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
    "config": (pl.Object, "the whole configuration: an object with the fields of RunConfig"),
    "versions": (_VERSIONS, "what it ran on, by meta.json"),
    "command": (_TEXTS, "the words of the command that trained it; none for a run of a sweep"),
    "sweeps": (_SWEEPS, "the sweeps that were started into its folder, with their files as they were"),
    "averaged": (pl.Boolean, "the last record is that of SWAD's averaged weights"),
    "step": (pl.List(pl.Int64), "by record: its step, from 0"),
    "epoch": (_FLOATS, "by record: how often the smallest training domain has been seen"),
    "loss": (_FLOATS, "by record: mean training loss since the record before; NaN where none was measured"),
    "validation_loss": (_FLOATS, "by record: mean loss on the held-back parts of the training domains"),
    "in_acc": (_FLOATS, "record by record and in each domain by domain: accuracy on the 80 % part"),
    "out_acc": (_FLOATS, "record by record and in each domain by domain: accuracy on the held-back 20 %"),
    "validation": (_FLOATS, "by record: mean out_acc of the training domains, for training-domain selection"),
    "test": (_FLOATS, "by record: mean in_acc of the test domains, which tables show"),
    "test_validation": (_FLOATS, "by record: mean out_acc of the test domains, for the oracle"),
    "timed_step": (pl.List(pl.Int64), "the steps of which the time was taken"),
    "seconds": (_FLOATS, "by timed step: seconds since the one before, evaluations included"),
    "watch": (_WATCH, "by step and name: what the run was watched for"),
    "row": (pl.String, "the row of a table: algorithm + optimizer, and what else tells rows apart"),
}
"""Name, type and meaning of each column."""

PER_RECORD_MEANS = ("validation", "test", "test_validation")
_SCHEMA = pl.Schema({name: dtype for name, (dtype, _) in COLUMNS.items()})
_INDEXED_SCHEMA = pl.Schema({name: dtype for name, dtype in _SCHEMA.items() if name not in ("sweeps", "row")})
"""What the index holds: the other columns say something about all files of a folder."""


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
    frame = with_rows(_once(frame, unread))
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
    tidy = tidy.explode(*OF_RECORD, *PER_RECORD_MEANS, "at", empty_as_null=False).with_columns(**split)
    tidy = tidy.with_columns(averaged=pl.col("averaged") & (pl.col("at") == pl.col("last")))
    return tidy.select(list(COLUMNS))


def seconds_per_step(timed_step: Sequence[int], seconds: Sequence[float]) -> float | None:
    """Seconds of a step, with its part of the evaluations; ``None`` where nothing was timed.

    >>> seconds_per_step([0, 9], [2.0, 3.0])
    0.5
    """
    return total(seconds) / (max(timed_step) + 1) if len(seconds) else None


def from_runs(columns: RunColumns) -> pl.DataFrame:
    """The frame of runs that were read."""
    configs = columns.runs["config"]
    values: dict[str, Any] = {name: columns.runs[name] for name in OF_RUN} | _of_configs(configs)
    sizes = np.array([len(domains) for domains in values["domains"]], dtype=np.int64)
    flat = {name: np.concatenate(parts) if parts else np.zeros(0) for name, parts in columns.lists.items()}
    lengths = {name: np.array(counts, dtype=np.int64) for name, counts in columns.lengths.items()}
    means = _means(values["test_domains"], lengths["step"], sizes, flat)
    for name in ("domains", "test_domains", "command"):
        values[name] = _repeated(values[name], COLUMNS[name][0])
    values["versions"] = _repeated(values["versions"], _VERSIONS)
    values["watch"] = _sparse(values["watch"], _WATCH)
    values["config"] = pl.Series(configs, dtype=pl.Object)
    values |= {name: _lists(flat[name], lengths[name]) for name in flat}
    values |= {name: values[name].cast(pl.List(pl.Int64)) for name in ("step", "timed_step")}
    values |= {name: _lists(x, lengths["step"]) for name, x in means.items()}
    values |= {"sweeps": _same([], len(configs), _SWEEPS), "row": [""] * len(configs)}
    return pl.DataFrame({name: values[name] for name in COLUMNS}, schema=_SCHEMA)


def _of_configs(configs: Sequence[Any]) -> dict[str, list[Any]]:
    """The columns that say what runs are."""
    names = ("dataset", "optimizer", "backbone", "protocol", "test_domains", "steps", "swad")
    values = {name: [getattr(c, name) for c in configs] for name in names}
    values["algorithm"] = [f"{c.algorithm}{'+SWAD' * c.swad}{'+DiWA' * bool(c.average_of)}" for c in configs]
    values["oracle"] = [oracle_rule(c.protocol, c.oracle) for c in configs]
    return values | {"trial": [c.trial_seed for c in configs], "draw": [c.hparams_seed for c in configs]}


def _same(value: list[Any], count: int, dtype: Any) -> pl.Series:
    """One list so many times."""
    return pl.Series([value], dtype=dtype)[np.zeros(count, dtype=np.int64)]


def _repeated(values: Sequence[tuple[Any, ...]], dtype: Any) -> pl.Series:
    """Lists of which there are few different ones: each is made once."""
    places = {value: at for at, value in enumerate(dict.fromkeys(values))}
    lists = pl.Series(
        [
            [{"name": a, "value": b} for a, b in value] if dtype == _VERSIONS else list(value)
            for value in places
        ],
        dtype=dtype,
    )
    return lists[np.array([places[value] for value in values], dtype=np.int64)]


def _sparse(values: Sequence[list[Any]], dtype: Any) -> pl.Series:
    """Lists of which most are empty."""
    listed = [[], *(value for value in values if value)]
    places = np.cumsum([bool(value) for value in values]) * [bool(value) for value in values]
    return pl.Series(listed, dtype=dtype)[places.astype(np.int64)]


def _means(
    tested: Sequence[tuple[int, ...]],
    counts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    flat: Mapping[str, FloatArray],
) -> dict[str, FloatArray]:
    """The columns that are means over domains; NaN where there is no such domain."""
    owner = np.repeat(np.arange(len(counts)), counts)
    starts = np.cumsum(sizes[owner]) - sizes[owner]
    means = {name: np.full(len(owner), np.nan) for name in PER_RECORD_MEANS}
    kinds: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for at, kind in enumerate(zip(sizes.tolist(), tested, strict=True)):
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
                means[name][rows] = _mean_of(flat[part], starts[rows], which)
    return means


def _mean_of(values: FloatArray, starts: NDArray[np.int64], which: Sequence[int]) -> FloatArray:
    """For each record that starts at a place of ``values`` the mean of some domains, added from left to right.

    >>> _mean_of(np.array([0.5, 0.0, 1.0]), np.array([0]), [0, 2]).tolist()
    [0.75]
    """
    added = values[starts + which[0]]
    for k in which[1:]:
        added = added + values[starts + k]
    mean: FloatArray = added / len(which)
    return mean


def _lists(flat: FloatArray, lengths: NDArray[np.int64]) -> pl.Series:
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
    archive = os.path.abspath(os.path.join(folder, ARCHIVE))
    folder = unpacked(archive) if os.path.isfile(archive) else folder
    paths = run_folders(folder)
    index, stale = None, paths
    if len(paths) >= _INDEXED and os.path.isfile(os.path.join(folder, INDEX)):
        with ThreadPoolExecutor(1) as reader:  # the index is read while the files are looked at
            reading = reader.submit(read_index, folder, len(paths), _INDEXED_SCHEMA)
            stamps = in_parallel(stamps_of, paths)
            index = reading.result()
        known = {} if index is None else dict(zip(index["folder"], index["stamp"], strict=True))
        stale = [p for p, s in zip(paths, stamps, strict=True) if not s or known.get(p) != s]
    columns = read_runs(stale)
    problems += columns.problems
    frame = fresh = from_runs(columns)
    lasting = fresh.filter(pl.col("done"), ~pl.col("folder").is_in(columns.damaged))
    gone = False
    if index is not None:
        no_sweeps = _same([], len(index), _SWEEPS)
        kept = index.with_columns(sweeps=no_sweeps, row=pl.lit("")).select(list(COLUMNS))
        gone = len(paths) - len(stale) < len(index)
        kept = kept.filter(pl.col("folder").is_in(list(set(paths) - set(stale)))) if gone else kept
        frame = pl.concat([kept, fresh]).sort("folder") if len(fresh) else kept
    if len(paths) >= _INDEXED and (index is None or gone or len(lasting)):
        undamaged = frame.filter(~pl.col("folder").is_in(columns.damaged))
        write_index(folder, undamaged.select(list(_INDEXED_SCHEMA)))
    home = os.path.dirname(os.path.abspath(folder)) if paths == [folder] else folder
    return frame.with_columns(sweeps=_same(_sweeps(home, problems), len(frame), _SWEEPS))


def _sweeps(home: str, problems: list[str]) -> list[dict[str, str]]:
    """The sweeps that were started into a folder; a file that was not kept is empty."""
    sweeps = []
    for file in sorted(Path(home, SWEEPS).glob("*.json")):
        toml, protocol = file.with_suffix(".toml"), file.with_suffix(".protocol.toml")
        sweeps.append({"name": file.stem, "toml": _text(toml, problems), "protocol": _text(protocol, problems)})
    return sweeps


def _text(path: Path, problems: list[str]) -> str:
    try:
        return read_whole(path).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        problems.append(f"{path} cannot be read ({error.strerror}); it counts as missing.")
        return ""
