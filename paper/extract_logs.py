"""The CSV files of ``paper/logged``, made from a clone of the authors' repository.

``python -m paper.extract_logs CLONE`` writes them; ``git diff`` then says whether they are the same. The
repository keeps a folder for each run under ``train_output``, with what the training script printed in
``log.txt``: the arguments, the hyper-parameters, then a line for each evaluation. Long runs have TensorBoard's
event files beside it, some a file of sharpness. Only numbers and names are taken.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from statistics import mean, median

from genie_dg.results.render import csv_text

from .logged import FOLDER, LoggedAverage
from .published import PUBLISHED
from .request import PaperError

REPOSITORY = "00ssum/GENIE"
RATE, BETA, P = 0.015, 0.95, 0.4
"""Of GENIE as an optimizer of other algorithms: the defaults of their class; no run changes or prints them."""
NAMES = {"sgd": "SGD", "adam": "Adam", "genie": "GENIE", "sign_genie": "signed GENIE", "signum": "Signum"}
SWITCHED = {"GENIE_p": "precondition", "GENIE_Noise": "precondition+noise", "GENIE_Mask": "precondition+mask"}
"""Their classes for the ablation; its last row, `ALL_ON`, was run with the same draws."""
ALL_ON = "precondition+noise+mask"
LEVELS = (5000, 10000, 15000)
"""Steps at which the paper's table of times reads a run of `LONG` steps."""
LONG = LEVELS[-1] + 1
WINDOW = 200
"""Steps that the paper's figure of the OSGR averages over."""
ADDED = 1e-7
"""What the authors' formulas add to a denominator."""
RADII = ("0.01", "0.02", "0.03", "0.04", "0.05")
"""Of the balls of input perturbations in a file of sharpness, in the order of its columns."""


@dataclass(frozen=True)
class LoggedRecord:
    """One evaluation: accuracies in percent, mean seconds of a step since the last, and its own seconds."""

    step: int
    validation: float
    test: float
    test_out: float
    step_seconds: float
    evaluation_seconds: float
    time: datetime


@dataclass(frozen=True)
class LoggedRun:
    """What one log says.

    Args:
        folder: below ``train_output``.
        algorithm: the objective; their classes for GENIE and SAM are ERM here.
        optimizer: as the paper calls it.
        variant: of GENIE, what is switched or set beside the draw: ``precondition``, ``p=0.2``.
        domain: the one left out, or the only source, as the paper's tables call it; ``one_source`` says which.
        batch: pictures of each source domain in a step; ``pictures`` those of all.
        lr: the step size that was used; GENIE's is what their code calls convergence rate.
        steps: of the whole run, not all of them done where it was stopped.
    """

    folder: str
    dataset: str
    domain: str
    one_source: bool
    network: str
    algorithm: str
    optimizer: str
    variant: str
    trial: int
    draw: int
    batch: int
    pictures: int
    lr: float
    beta: float | None
    p: float | None
    dropout: float
    steps: int
    records: tuple[LoggedRecord, ...]

    @property
    def finished(self) -> bool:
        """Whether the last evaluation is there."""
        return bool(self.records) and self.records[-1].step == self.steps - 1

    def until(self, step: int) -> list[LoggedRecord]:
        """The evaluations up to a step."""
        return [record for record in self.records if record.step <= step]

    def selected(self, until: int) -> LoggedRecord:
        """What training-domain validation selects: the first of the highest validation accuracies."""
        return max(self.until(until), key=lambda record: record.validation)

    def oracle(self) -> LoggedRecord:
        """What selection on held-back pictures of the test domain selects."""
        return max(self.records, key=lambda record: record.test_out)

    def seconds(self, until: int) -> float:
        """By the clock, from the first evaluation to the one at a step; logs have no year."""
        spent = self.until(until)[-1].time - self.records[0].time
        return (spent + timedelta(days=365) if spent.days < 0 else spent).total_seconds()

    def line(self) -> list[object]:
        """The run as a line of ``runs.csv``; one without two evaluations has no results."""
        cells = [getattr(self, name) for name in RUN_COLUMNS[:17]]
        results: list[object] = [None] * 8
        if len(self.records) > 1:
            chosen, later = self.selected(self.steps), self.records[1:]  # the first step loads the data
            results = [
                chosen.step, chosen.validation, chosen.test, self.oracle().test, self.records[-1].test,
                mean(record.step_seconds for record in later),
                mean(record.evaluation_seconds for record in self.records), self.seconds(self.steps),
            ]  # fmt: skip
        return [_short(cell) for cell in (*cells, self.finished, *results)]


RUN_COLUMNS = (
    "folder", "dataset", "domain", "one_source", "network", "algorithm", "optimizer", "variant", "trial",
    "draw", "batch", "pictures", "lr", "beta", "p", "dropout", "steps", "finished", "selected_step",
    "validation", "selected", "oracle", "last", "step_seconds", "evaluation_seconds", "seconds",
)  # fmt: skip


def _short(cell: object) -> object:
    """Seven digits are what a log has.

    >>> _short(62.357599999999996), _short(0.00025460000000000004), _short(True), _short(29.0)
    (62.3576, 0.0002546, 1, 29)
    """
    if isinstance(cell, bool):
        return int(cell)
    if not isinstance(cell, float):
        return cell
    short = float(f"{cell:.7g}")
    return int(short) if short.is_integer() else short


def read_log(path: Path, root: Path) -> LoggedRun:
    """A run from its ``log.txt``; ``root`` is the folder ``train_output``."""
    text = re.sub(r"\x1b\[\d+m", "", path.read_text(encoding="utf-8", errors="replace"))
    folder = path.parent.relative_to(root).as_posix()
    given, drawn = _section(text, "Args", path), _section(text, "HParams", path)
    dataset, kind = given["dataset"], given["algorithm"]
    left_out = [int(index) for index in given["test_envs"].strip("[]").split(",")]
    domains = PUBLISHED["optimizers", dataset].columns[:-1]
    sources = [name for index, name in enumerate(domains) if index not in left_out]
    one_source = len(sources) == 1
    counts = re.search(r"Batch sizes for each domain: \[([^\]]*)\]", text)
    batches = [int(count) for count in counts[1].split(",")] if counts else []
    own = kind.startswith("GENIE")
    optimizer = "GENIE" if own else "SAM" if kind == "SAM" else NAMES[drawn["optimizer"].lower()]
    lr, beta, p = _rates(drawn, optimizer)
    variant, swept = _variant(kind, path.parent.name)
    steps = 15001 if dataset == "DomainNet" else 5001
    return LoggedRun(
        folder, dataset, sources[0] if one_source else domains[left_out[0]], one_source, drawn["model"],
        "ERM" if own or kind in ("SAM", "ERM_visual") else kind, optimizer, variant,
        int(given["trial_seed"]), int(given["hparams_seed"]), max(batches, default=0), sum(batches), lr,
        swept.get("beta", beta), swept.get("p", p), float(drawn["resnet_dropout"]),
        steps if given["steps"] == "None" else int(given["steps"]) + 1,
        tuple(_records(text, 2000 + int(path.parent.name[:2]))),
    )  # fmt: skip


def _section(text: str, name: str, path: Path) -> dict[str, str]:
    lines = re.search(rf"^{name}:\n((?:\t.*\n)+)", text, re.MULTILINE)
    if not lines:
        raise PaperError(f"{path} has no section {name!r}, so it is not a log of the authors' training script.")
    pairs = (line.strip().partition(":") for line in lines[1].splitlines())
    return {key: value.strip() for key, _, value in pairs}


def _rates(drawn: dict[str, str], optimizer: str) -> tuple[float, float | None, float | None]:
    """Step size, beta and p; none of the latter two where there is no GENIE."""
    if "GENIE" not in optimizer:
        return float(drawn["lr"]), None, None
    if "convergence_rate" not in drawn:
        return RATE, BETA, P
    beta, p = drawn.get("moving_avg"), drawn.get("p")
    return float(drawn["convergence_rate"]), float(beta) if beta else None, float(p) if p else None


def _variant(kind: str, folder: str) -> tuple[str, dict[str, float]]:
    """What a class of theirs switches or sets, and the value that the end of the folder's name tells.

    >>> _variant("GENIE_hp", "250329_18-38-30_resnet50_sgd_ma099"), _variant("GENIE_hp_p", "1_sgd_p0")
    (('beta=0.99', {'beta': 0.99}), ('p=0.0', {'p': 0.0}))
    """
    end = re.search(r"_(ma|p)0(\d*)$", folder)
    if kind in ("GENIE_hp", "GENIE_hp_p") and end:
        name, value = "beta" if end[1] == "ma" else "p", float(f"0.{end[2] or 0}")
        return f"{name}={value}", {name: value}
    return SWITCHED.get(kind, ""), {"p": 0.0} if kind in ("GENIE_p", "GENIE_Noise") else {}


def _records(text: str, year: int) -> Iterator[LoggedRecord]:
    """The lines of numbers under the head that starts with ``test_in``."""
    head: list[str] = []
    for line in text.splitlines():
        before, _, after = line.partition(" | ")
        words = after.split()
        if words[:1] == ["test_in"]:
            head = words
        elif head and len(words) == len(head) and words[0][0].isdigit():
            numbers = dict(zip(head, map(float, words), strict=True))
            time = datetime.strptime(f"{year} {before.split(maxsplit=1)[1]}", "%Y %m/%d %H:%M:%S")
            validation, test, test_out = (100 * numbers[part] for part in ("train_out", "test_in", "test_out"))
            seconds = numbers["step_time"], numbers["eval_time"]
            yield LoggedRecord(int(numbers["step"]), validation, test, test_out, *seconds, time)


@dataclass(frozen=True)
class Cell:
    """A place in a table, and a run that is behind it, read up to a step."""

    experiment: str
    row: str
    run: LoggedRun
    until: int


def _cells(run: LoggedRun) -> Iterator[Cell]:
    """Every place that a finished run has; the experiment ``other`` is in no table of the paper."""
    defaults = run.trial == run.draw == 0
    drawn = "defaults" if defaults else "drawn"
    long = run.network == "resnet50" and not run.one_source and run.steps == LONG and run.dataset != "DomainNet"
    if long:
        for level in LEVELS:
            yield Cell("iterations", f"{run.optimizer}@{level}", run, level)
        if defaults:  # the first third is a run of the other tables' length
            yield Cell("optimizers", f"{run.optimizer}, defaults", run, LEVELS[0])
        elif run.dataset == "PACS":
            yield Cell("ablation", ALL_ON, run, LEVELS[0])
        return
    inside = f"{run.algorithm}+{run.optimizer}"
    if run.network != "resnet50" or run.optimizer in ("signed GENIE", "Signum"):
        domains = "one source" if run.one_source else "one left out"
        place = "other", f"{inside}, {run.network}, {drawn}, {domains}"
    elif run.variant:
        place = ("sensitivity", f"GENIE {run.variant}") if "=" in run.variant else ("ablation", run.variant)
    elif run.one_source or run.algorithm != "ERM":
        place = "single-source" if run.one_source else "integration", inside
    else:
        place = "optimizers", f"{run.optimizer}, defaults" if defaults else run.optimizer
    yield Cell(*place, run, run.steps)


def averages(runs: Iterable[LoggedRun]) -> list[LoggedAverage]:
    """All numbers in the order of their places; a row's "Avg" is there where every domain is."""
    groups: dict[tuple[str, str, str], dict[str, list[Cell]]] = {}
    for cell in (cell for run in runs if run.finished for cell in _cells(run)):
        columns = groups.setdefault((cell.experiment, cell.run.dataset, cell.row), {})
        columns.setdefault(cell.run.domain, []).append(cell)
    numbers: list[LoggedAverage] = []
    for place in sorted(groups):
        row = [_average((*place, column), groups[place][column]) for column in sorted(groups[place])]
        numbers += row
        if len(row) == (6 if place[1] == "DomainNet" else 4):
            numbers.append(_over_domains((*place, "Avg"), row))
    return numbers


def _average(place: tuple[str, str, str, str], cells: Sequence[Cell]) -> LoggedAverage:
    """The mean over trials, each with the draw that its validation selects; repeats of a draw are averaged."""
    trials: dict[int, dict[int, list[Cell]]] = {}
    for cell in cells:
        trials.setdefault(cell.run.trial, {}).setdefault(cell.run.draw, []).append(cell)

    def validation(repeats: Sequence[Cell]) -> float:
        return mean(cell.run.selected(cell.until).validation for cell in repeats)

    chosen = [max(draws.values(), key=validation) for draws in trials.values()]
    used = [cell for repeats in chosen for cell in repeats]
    whole = all(cell.until >= cell.run.steps - 1 for cell in used)
    oracle = mean(mean(cell.run.oracle().test for cell in repeats) for repeats in chosen)
    last = mean(mean(cell.run.records[-1].test for cell in repeats) for repeats in chosen)
    return LoggedAverage(
        *place, mean(mean(cell.run.selected(cell.until).test for cell in repeats) for repeats in chosen),
        oracle if whole else None, last if whole else None,
        len(used), len(trials), sum(map(len, trials.values())),
        _joined(cell.run.batch for cell in used), _joined(cell.run.lr for cell in used),
        mean(cell.run.seconds(cell.until) for cell in used),
        mean(mean(r.step_seconds for r in cell.run.until(cell.until)[1:]) for cell in used),
    )  # fmt: skip


def _joined(numbers: Iterable[float]) -> str:
    return " ".join(f"{number:.4g}" for number in sorted(set(numbers)))


def _over_domains(place: tuple[str, str, str, str], row: Sequence[LoggedAverage]) -> LoggedAverage:
    """The mean over domains; a part that a domain does not have has none."""

    def mean_of(name: str) -> float | None:
        values = [getattr(one, name) for one in row]
        return None if None in values else mean(values)

    return LoggedAverage(
        *place, mean(one.value for one in row), mean_of("oracle"), mean_of("last"),
        sum(one.runs for one in row), max(one.trials for one in row), max(one.draws for one in row),
        _joined(float(batch) for one in row for batch in one.batch.split()),
        _joined(float(rate) for one in row for rate in one.lr.split()),
        mean(one.seconds for one in row), mean(one.step_seconds for one in row),
    )  # fmt: skip


OSGR_COLUMNS = ("dataset", "domain", "optimizer", "batch", "pictures", "step", "osgr", "gradient")


def osgr_lines(run: LoggedRun, root: Path) -> Iterator[list[object]]:
    """What a long run on VLCS, the figure's set, logged as OSGR, and the size of its gradients.

    A line is of `WINDOW` steps: the mean of what was logged, and the median of the root mean square over the
    parameters of one step's gradient; the latter is empty where it is too large for the logged digits to tell.
    """
    files = sorted((root / run.folder).glob("events.out.tfevents.*"))
    if run.dataset != "VLCS" or run.steps != LONG or run.network != "resnet50" or not files:
        return
    from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
        EventAccumulator,
    )

    events = EventAccumulator(str(files[-1]), size_guidance={"scalars": 0}).Reload()
    tags = {tag.rpartition("/")[2]: tag for tag in events.Tags()["scalars"]}
    ratios = {one.step: one.value for one in events.Scalars(tags["GSNR"])}
    values = [(one.step, one.value) for one in events.Scalars(tags["OSGR"])]
    for start in range(0, len(values) - len(values) % WINDOW, WINDOW):
        window = values[start : start + WINDOW]
        size = median(gradient_size(value, ratios[step], run.pictures) for step, value in window)
        middle, average = mean(step for step, _ in window), round(mean(value for _, value in window), 7)
        shown = f"{size:.3g}" if math.isfinite(size) else None
        yield [run.dataset, run.domain, run.optimizer, run.batch, run.pictures, middle, average, shown]


def gradient_size(osgr: float, gsnr: float, n: int) -> float:
    r"""The root mean square of a gradient's entries, from what the authors log about it.

    With the mean square :math:`s = v + m^2` of :math:`d \gg 1` entries, variance :math:`v` and mean
    :math:`m`, they log :math:`o = 1 - v / (n s + 10^{-7})` and :math:`q = m^2 / (v + 10^{-7})`, so
    :math:`v = 10^{-7} (1 + n q) / (1 / (1 - o) - n (1 + q))`. Infinite where the difference below is lost in
    the digits of a float32, which is so for gradients above about 0.01.

    Args:
        osgr: o.
        gsnr: q.
        n: pictures in the step.

    Example:
        >>> v, m, n = 3e-8, 1e-6, 96
        >>> osgr, gsnr = 1 - v / (n * (v + m * m) + 1e-7), m * m / (v + 1e-7)
        >>> round(gradient_size(osgr, gsnr, n) ** 2 / (v + m * m), 6)
        1.0
    """
    below = 1 / (1 - osgr) - n * (1 + gsnr)
    if below <= n * n * 1e-7:  # float32 near 1 has steps of 6e-8
        return math.inf
    variance = ADDED * (1 + n * gsnr) / below
    return math.sqrt(variance + gsnr * (variance + ADDED))


SHARPNESS_COLUMNS = ("dataset", "domain", "optimizer", "started", "step", *(f"rho={rho}" for rho in RADII))


def sharpness_lines(run: LoggedRun, root: Path) -> Iterator[list[object]]:
    """The rise of the loss on one batch of the domain left out, by radius of the input's perturbation."""
    path = root / run.folder / "sharpness_progress" / "sharpness_over_time.csv"
    started = "_".join(Path(run.folder).name.split("_")[:2])  # tells repeats apart
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        step, *rises = line.split(",")
        shown = [f"{float(rise):.5g}" for rise in rises]
        yield [run.dataset, run.domain, run.optimizer, started, int(step), *shown]


def extract(clone: Path) -> dict[str, str]:
    """By name, the text of each file that a clone gives."""
    root = clone / "train_output"
    runs = [read_log(path, root) for path in sorted(root.rglob("log.txt"))]
    if not runs:
        raise PaperError(f"{clone} has no logs under {root.name}; give a clone of github.com/{REPOSITORY}.")
    asked = ["git", "-C", str(clone), "rev-parse", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    source = [REPOSITORY, commit, len(runs), sum(run.finished for run in runs)]
    cells = ([_short(cell) for cell in astuple(number)] for number in averages(runs))
    return {
        "source.csv": csv_text(["repository", "commit", "logs", "finished"], [source]),
        "runs.csv": csv_text(RUN_COLUMNS, (run.line() for run in runs)),
        "averages.csv": csv_text([field.name for field in fields(LoggedAverage)], cells),
        "osgr.csv": csv_text(OSGR_COLUMNS, (line for run in runs for line in osgr_lines(run, root))),
        "sharpness.csv": csv_text(
            SHARPNESS_COLUMNS, (line for run in runs for line in sharpness_lines(run, root))
        ),
    }


if __name__ == "__main__":
    for name, text in extract(Path(sys.argv[1])).items():
        (FOLDER / name).write_text(text, encoding="utf-8")
