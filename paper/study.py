"""A finished study's claims: the packed runs of ``studies/<name>``, read into verdicts of the ledger.

A study is a folder with ``sweep.toml``, ``protocol.toml`` and ``runs.tar.xz``. A row counts when it has all the
runs that the sweep plans for it. A number is the difference of two rows in one split (test domains, trial),
each with the draw that training-domain validation chose; the interval is that of `genie_dg.results.compare`,
which resamples trials and draws, so it includes the selection. A run whose loss became infinite or NaN is one
of its row's. Runs of a row ``NAME-wider`` are more draws of NAME from a wider range; no claim uses them, so
that budgets stay equal. A second sweep, ``algorithms.toml``, may have its runs in the same file: optimizers
inside DG algorithms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from genie_dg.protocols.toml_file import read_toml
from genie_dg.results.compare import Comparison, compare
from genie_dg.results.draws import Candidate, Grouped, draws_of
from genie_dg.results.frame import load
from genie_dg.results.select import diverged_runs

from .claim_runs import ClaimNumbers
from .claims import CLAIMS
from .request import PaperError
from .verdict import LEVEL, Interval, Judgement, judge_intervals

FILES = ("sweep.toml", "protocol.toml", "runs.tar.xz")
SECOND = "algorithms.toml"
MORE = "wider.toml"
WIDER = "-wider"
"""The end of the name of a row whose draws come from a wider range than those of the row without it."""
WOULD_CHANGE = "A larger network, more pixels, longer training or more draws; other data."
"""What would change the verdict of a study, which is in the paper's regime but for its size."""


@dataclass(frozen=True)
class Study:
    """What a study is: its folder, its complete runs, and how many each row should have.

    Args:
        folder: of the study.
        frame: its complete runs, and those that diverged.
        names: by the name of a row in the frame that of its optimizer in the sweep, in the sweep's order.
        planned: runs of a row.
        ranges: by optimizer the powers of ten between which its learning rate was searched.
        wider: the complete runs of wider ranges, under the names of the rows whose ranges they widen.
        planned_wider: runs of such a row.
        second: the same of the study's second sweep, where it has one.
    """

    folder: Path
    frame: pl.DataFrame
    names: Mapping[str, str]
    planned: int
    ranges: Mapping[str, tuple[float, float]]
    wider: pl.DataFrame
    planned_wider: int
    second: Study | None = None

    @property
    def complete(self) -> list[str]:
        """The rows that have all their runs, in the order of the sweep."""
        counts = Counter(self.frame["row"])
        return [row for row in self.names if counts[row] == self.planned]

    @property
    def pretrained(self) -> bool:
        """Whether training started from pretrained weights."""
        return all(config.pretrained for config in self.frame["config"])

    @property
    def diverged(self) -> dict[str, int]:
        """How many runs of a row diverged, where any did."""
        counts = Counter(self.frame.filter(diverged_runs())["row"])
        return {row: counts[row] for row in self.names if counts[row]}

    @property
    def partial(self) -> dict[str, int]:
        """The other rows, and how many runs they have."""
        counts = Counter(self.frame["row"])
        return {row: counts[row] for row in self.names if counts[row] < self.planned}


def read_study(folder: Path) -> Study:
    """The study in a folder."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if missing:
        raise PaperError(f"Got {folder}, which has no {missing[0]}; a study has {', '.join(FILES)}.")
    frame = load(folder).filter(pl.col("done") | diverged_runs())
    second = _of_sweep(folder, SECOND, frame) if (folder / SECOND).is_file() else None
    return replace(_of_sweep(folder, FILES[0], frame), second=second)


def _of_sweep(folder: Path, file: str, frame: pl.DataFrame) -> Study:
    """What one sweep of a study planned, and what there is of it."""
    sweep, protocol = (read_toml(folder / name, PaperError) for name in (file, FILES[1]))
    more = read_toml(folder / MORE, PaperError) if (folder / MORE).is_file() else sweep
    several = len(sweep["algorithms"]) > 1
    names = {
        f"{a} + {o}": f"{a} {o}" if several else o for a in sweep["algorithms"] for o in sweep["optimizers"]
    }
    domains = len(frame["domains"][0]) if len(frame) else 0
    ranges = {key: rule["power"] for key, rule in protocol["search"].items() if key.endswith(".lr")}
    plain = pl.col("row").str.strip_suffix(WIDER)
    return Study(
        folder,
        frame.filter(pl.col("row").is_in(list(names))),
        names,
        domains * _draws(sweep) * sweep["trials"],
        {key.removesuffix(".lr"): (low, high) for key, (low, high) in ranges.items()},
        frame.filter(pl.col("row").str.ends_with(WIDER), plain.is_in(list(names))).with_columns(plain),
        domains * _draws(more) * more["trials"],
    )


def _draws(sweep: Mapping[str, Any]) -> int:
    """How many draws a sweep makes, which names their number or lists them."""
    draws: int | list[int] = sweep["hparams"]
    return len(draws) if isinstance(draws, list) else draws


def grouped_draws(study: Study) -> Grouped:
    """By complete row and split the draws, the chosen one last."""
    return draws_of(study.frame.filter(pl.col("row").is_in(study.complete)))


def chosen_draws(study: Study) -> dict[str, list[Candidate]]:
    """By complete row the draw that validation chose in each split."""
    grouped = grouped_draws(study)
    return {row: [draws[-1] for draws in grouped[row].values()] for row in study.complete}


OTHERS = {"SGD": "sgd", "Adam": "adam", "SAM around SGD": "sam-sgd", "SAM around Adam": "sam-adam"}

FROM_STUDY: dict[str, dict[str, tuple[str, str]]] = {
    "accuracy": {label: ("ERM + genie", f"ERM + {name}") for label, name in OTHERS.items()},
    "preconditioning": {"Adam": ("ERM + genie-precondition", "ERM + adam")},
    "noise-and-mask": {"preconditioning alone": ("ERM + genie", "ERM + genie-precondition")},
    "algorithms": {f"{a} against Adam": (f"{a} + genie", f"{a} + adam") for a in ("CORAL", "RSC")},
}
"""By claim and part of it our row and theirs; a part of which a row is not complete is left out."""


def study_judgements(study: Study) -> dict[str, tuple[ClaimNumbers, Judgement]]:
    """By claim its numbers in points and its verdict; with k parts each interval has level 1 - 0.05/k."""
    rows, grouped = study.complete, grouped_draws(study)
    found = {}
    for claim in CLAIMS:
        listed = FROM_STUDY.get(claim.name, {})
        parts = {part: pair for part, pair in listed.items() if set(pair) <= set(rows)}
        if not parts:
            continue
        level = 1 - (1 - LEVEL) / len(parts)
        compared = {part: compare(grouped, *pair, level=level) for part, pair in parts.items()}
        numbers = {part: [100 * p.difference for p in c.pairs] for part, c in compared.items()}
        intervals = {part: in_points(c) for part, c in compared.items() if c.interval is not None}
        if intervals:
            found[claim.name] = numbers, judge_intervals(intervals, claim.side, claim.threshold)
    return found if study.second is None else found | study_judgements(study.second)


def in_points(compared: Comparison) -> Interval:
    """The interval of a comparison, as the ledger has it."""
    if compared.interval is None:
        raise PaperError(f"{compared.row} has one trial and one draw, and so no interval; run more of either.")
    ends = 100 * compared.interval.low, 100 * compared.interval.high
    return Interval(100 * compared.mean, *ends, len(compared.pairs), compared.interval.level)


def runs_of_study(study: Study) -> dict[str, dict[str, Any]]:
    """What identifies the runs of the complete rows."""
    own = study.frame.filter(pl.col("row").is_in(study.complete))
    wanted = ("dataset", "test_domains", "trial", "algorithm", "optimizer")
    rows = own.select("run", *wanted).iter_rows(named=True)
    runs = {values["run"]: {name: values[name] for name in wanted} for values in rows}
    return runs if study.second is None else runs | runs_of_study(study.second)


def study_note(study: Study) -> str:
    """What was trained, in a sentence."""
    first = study.frame.row(0, named=True)
    trials, draws = study.frame["trial"].n_unique(), study.frame["draw"].n_unique()
    return (
        f"{first['dataset']}, {first['backbone']}, {first['steps']} steps; {len(study.complete)} of "
        f"{len(study.names)} rows complete, each with {draws} draws for each of {trials} trials; every domain "
        "was left out in turn; draws chosen by validation on the training domains, intervals from a bootstrap "
        "over trials and draws."
    )
