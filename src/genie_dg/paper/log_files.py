"""One log of the authors' training script, as numbers.

Their repository keeps a folder for each run under ``train_output``, with what the script printed in
``log.txt``: the arguments, the hyper-parameters, then a line for each evaluation. Only numbers and names are
read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from .published import PUBLISHED
from .request import PaperError

COLOUR = re.compile(r"\x1b\[\d+m")
RATE, BETA, P = 0.015, 0.95, 0.4
"""Of GENIE as an optimizer of other algorithms: the defaults of their class; no run changes or prints them."""
NAMES = {"sgd": "SGD", "adam": "Adam", "genie": "GENIE", "sign_genie": "signed GENIE", "signum": "Signum"}
SWEPT = re.compile(r"_(ma|p)0(\d*)$")
"""The end of a folder's name, where a run of the grid says its value: ``ma0995`` is beta 0.995."""
STEPS = {"DomainNet": 15001}
"""Of a run without an own number of steps; 5,001 elsewhere."""


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
        printed: accuracy that the log itself gives for training-domain selection.
    """

    folder: str
    dataset: str
    network: str
    algorithm: str
    optimizer: str
    variant: str
    domain: str
    one_source: bool
    trial: int
    draw: int
    batch: int
    pictures: int
    lr: float
    beta: float | None
    p: float | None
    dropout: float
    steps: int
    printed: float | None
    records: tuple[LoggedRecord, ...]

    @property
    def finished(self) -> bool:
        """Whether the last evaluation is there."""
        return bool(self.records) and self.records[-1].step == self.steps - 1

    def until(self, step: int) -> tuple[LoggedRecord, ...]:
        """The evaluations up to a step."""
        return tuple(record for record in self.records if record.step <= step)

    def selected(self, until: int = 10**9) -> LoggedRecord:
        """What training-domain validation selects: the first of the highest validation accuracies."""
        return max(self.until(until), key=lambda record: record.validation)

    def oracle(self) -> LoggedRecord:
        """What selection on held-back pictures of the test domain selects."""
        return max(self.records, key=lambda record: record.test_out)

    def seconds(self, until: int) -> float:
        """By the clock, from the first evaluation to the one at a step."""
        spent = self.until(until)[-1].time - self.records[0].time
        return (spent + timedelta(days=365) if spent.days < 0 else spent).total_seconds()


def read_log(path: Path, root: Path) -> LoggedRun:
    """A run from its ``log.txt``; ``root`` is the folder ``train_output``."""
    text = COLOUR.sub("", path.read_text(encoding="utf-8", errors="replace"))
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
    variant, swept = _variant(kind, Path(folder).name)
    printed = re.search(r"training-domain validation\(iid\) = ([\d.]+)%", text)
    return LoggedRun(
        folder, dataset, drawn["model"], "ERM" if own or kind in ("SAM", "ERM_visual") else kind, optimizer,
        variant, sources[0] if one_source else domains[left_out[0]], one_source,
        int(given["trial_seed"]), int(given["hparams_seed"]), max(batches, default=0), sum(batches), lr,
        swept.get("beta", beta), swept.get("p", p), float(drawn["resnet_dropout"]),
        STEPS.get(dataset, 5001) if given["steps"] == "None" else int(given["steps"]) + 1,
        float(printed[1]) if printed else None, _records(text, int(Path(folder).name[:2])),
    )  # fmt: skip


def _section(text: str, name: str, path: Path) -> dict[str, str]:
    found = re.search(rf"^{name}:\n((?:\t.*\n)+)", text, re.MULTILINE)
    if not found:
        raise PaperError(f"{path} has no section {name!r}, so it is not a log of the authors' training script.")
    pairs = (line.strip().partition(":") for line in found[1].splitlines())
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
    """What a class of theirs switches or sets, and the value that the folder's name tells.

    >>> _variant("GENIE_hp", "250329_18-38-30_resnet50_sgd_ma099"), _variant("GENIE_hp_p", "1_sgd_p0")
    (('beta=0.99', {'beta': 0.99}), ('p=0.0', {'p': 0.0}))
    """
    switched = {
        "GENIE_p": "precondition",
        "GENIE_Noise": "precondition+noise",
        "GENIE_Mask": "precondition+mask",
    }
    found = SWEPT.search(folder)
    if kind in ("GENIE_hp", "GENIE_hp_p") and found:
        name, value = "beta" if found[1] == "ma" else "p", float(f"0.{found[2] or 0}")
        return f"{name}={value}", {name: value}
    return switched.get(kind, ""), {} if "Mask" in kind or kind not in switched else {"p": 0.0}


def _records(text: str, year: int) -> tuple[LoggedRecord, ...]:
    """The lines of numbers under the head that starts with ``test_in``."""
    records: list[LoggedRecord] = []
    head: list[str] = []
    for line in text.splitlines():
        before, _, after = line.partition(" | ")
        words = after.split()
        if words[:1] == ["test_in"]:
            head = words
        elif head and len(words) == len(head) and words[0][0].isdigit():
            numbers = dict(zip(head, map(float, words), strict=True))
            stamp = datetime.strptime(f"{2000 + year} {before.split(maxsplit=1)[1]}", "%Y %m/%d %H:%M:%S")
            validation, test, test_out = (100 * numbers[part] for part in ("train_out", "test_in", "test_out"))
            seconds = numbers["step_time"], numbers["eval_time"]
            records.append(LoggedRecord(int(numbers["step"]), validation, test, test_out, *seconds, stamp))
    return tuple(records)
