"""How right a model is on pictures with labels: by domain and class, calibrated or not, and where it errs.

`evaluate_as_table` takes exactly what a table's number was computed on: the test domains of the run, the 80 %
part of its split, in the order and batches of the training side; the accuracy is then equal to the table's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from genie_dg.bench.assemble import EVALUATION_BATCH
from genie_dg.check import InputError
from genie_dg.data.columns import Columns
from genie_dg.data.domains import Advance, DataError, Domain, DomainSet, FileDomain, Labels, TableDomain, silent
from genie_dg.data.image_folders import OneDomainWarning, folders_in, pictures_in
from genie_dg.data.registry import is_table, open_data, refuse_columns, row_of
from genie_dg.data.splits import splits
from genie_dg.data.tables import open_table
from genie_dg.statistics import mean

from . import metrics
from .model import Model
from .pictures import Picture


@dataclass(frozen=True)
class Answers:
    """What a model said about the samples of one domain.

    Args:
        domain: where they come from.
        positions: of the samples in it; without those that cannot be read.
        labels, predicted: classes of the model, by number.
        confidence: the probability of the predicted class.
    """

    domain: Domain
    positions: Labels
    labels: Labels
    predicted: Labels
    confidence: metrics.Floats


@dataclass(frozen=True)
class Evaluated:
    """A model's answers on some domains, with a sentence for whatever was left out.

    Args:
        model, data: of which and on what.
        answers: one for each domain that has a sample.
        part: which samples: ``"all"``, or ``"table"`` for those of a table's number.
        notes: what a reader should know.
        problems: one sentence for each picture that cannot be read.
    """

    model: Model
    data: DomainSet
    answers: tuple[Answers, ...]
    part: str = "all"
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = field(default=(), repr=False)

    def to_json(self) -> dict[str, Any]:
        """All numbers as plain data; accuracies are from 0 to 1."""
        model, domains = self.model, [self._domain(one) for one in self.answers]
        labels, predicted = (
            np.concatenate([getattr(a, x) for a in self.answers]) for x in ("labels", "predicted")
        )
        confidence = np.concatenate([one.confidence for one in self.answers])
        table = metrics.confusion_counts(labels, predicted, len(model.classes))
        bins = metrics.confidence_bins(confidence, labels == predicted)
        names = ("name", "pictures", "accuracy", "precision", "f1")
        columns = model.classes, table.sum(1).tolist(), metrics.recalls(table), metrics.precisions(table)
        by_class = zip(*columns, metrics.f1_scores(table), strict=True)
        return {
            "model": {"file": str(model.path), "run": model.config.run_id, "step": model.record.step},
            "data": self.data.name,
            "part": self.part,
            "pictures": len(labels),
            "accuracy": metrics.share_right(labels, predicted),
            "mean_over_domains": mean(one["accuracy"] for one in domains),
            "macro_f1": metrics.macro_f1(table),
            "calibration_error": metrics.calibration_error(bins),
            "worst_domain": min(domains, key=lambda one: one["accuracy"])["name"],
            "domains": domains,
            "classes": [dict(zip(names, row, strict=True)) for row in by_class],
            "confusion": table.tolist(),
            "reliability": [asdict(one) for one in bins],
            "notes": list(self.notes),
            "problems": list(self.problems),
        }

    def _domain(self, one: Answers) -> dict[str, Any]:
        model, name = self.model, one.domain.name
        known = model.stored.domains if self.data.name == model.config.dataset else ()
        trained = known.index(name) in model.stored.sources if name in known else None
        table = metrics.confusion_counts(one.labels, one.predicted, len(model.classes))
        return {
            "name": name,
            "trained_on": trained,
            "pictures": len(one.labels),
            "accuracy": metrics.share_right(one.labels, one.predicted),
            "macro_f1": metrics.macro_f1(table),
            "by_class": metrics.recalls(table),
        }

    def mistakes(self, most: int) -> list[tuple[Answers, int]]:
        """The wrong answers of which the model was surest: (answers of the domain, place in them)."""
        wrong = [(one, int(at)) for one in self.answers for at in np.flatnonzero(one.labels != one.predicted)]
        return sorted(wrong, key=lambda pair: -pair[0].confidence[pair[1]])[:most]


def open_labelled(
    what: str,
    model: Model,
    root: str | Path | None = None,
    columns: Columns = Columns(),  # noqa: B008  # frozen
) -> DomainSet:
    """What a model is evaluated on: anything that can be trained on, or a folder ``<class>/<picture>``.

    A folder whose sub-folders are named as classes of the model, and theirs are not, is one domain. A model of
    a table knows its columns; ``columns`` are for those that have other names now.
    """
    path = Path(what)
    if model.encoding is not None:
        domain, label = columns.domain or model.encoding.domain, columns.label or model.encoding.label
        return open_table(path, Columns(domain, label), like=model.encoding.columns)
    if row_of(what) is not None or not path.is_dir() or is_table(path, columns):
        data = open_data(what, root, columns)
        if data.is_table:
            raise DataError(f"{what} is a table of numbers, and the model was trained on pictures; give these.")
        return data
    refuse_columns(path, columns)
    first = folders_in(path)
    second = {name for one in first for name in folders_in(path / one)}
    if not set(first) & set(model.classes) or second & set(model.classes):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OneDomainWarning)  # nothing is left out here
            return open_data(path)
    pictures = {name: list(pictures_in(path / name)) for name in first}
    classes = [name for name in first if pictures[name]]
    if not classes:
        raise DataError(f"{path} holds no picture below a class folder; sort them as <class>/<picture>.")
    labels = np.repeat(np.arange(len(classes)), [len(pictures[name]) for name in classes]).astype(np.int64)
    only = FileDomain(path.resolve().name, path, [p for name in classes for p in pictures[name]], labels)
    return DomainSet(path.resolve().name, tuple(classes), (only,))


def evaluate(
    model: Model, data: DomainSet, batch_size: int = EVALUATION_BATCH, progress: Advance = silent
) -> Evaluated:
    """The answers of a model on all samples of a set; classes are matched by their names."""
    numbers, notes = _matched(model, data)
    rows = [np.flatnonzero(numbers[domain.labels] >= 0) for domain in data.domains]
    answers, problems = _answers(model, zip(data.domains, rows, strict=True), batch_size, progress)
    if not answers:
        raise DataError(f"No picture of {data.name} can be used ({problems[0] if problems else 'it is empty'})")
    answers = [replace(one, labels=numbers[one.labels]) for one in answers]
    return Evaluated(model, data, tuple(answers), "all", notes, tuple(problems))


def evaluate_as_table(model: Model, data: DomainSet, progress: Advance = silent) -> Evaluated:
    """The answers that the table's number counts: the 80 % parts of the run's test domains, in its batches."""
    config = model.config
    if not config.test_domains:
        raise InputError("The model was trained on all domains, so no table has its number; drop --as-table.")
    names = tuple(domain.name for domain in data.domains)
    same = names == model.stored.domains and data.classes == model.classes
    if not same or (config.data_digest and data.digest() != config.data_digest):
        wanted = f"The run was trained on {config.dataset} ({', '.join(model.stored.domains)})"
        raise InputError(
            f"{wanted}; got {data.name} ({', '.join(names)}), and a table needs the data of the run."
        )
    parts = splits(data, config.trial_seed)
    chosen = [(data.domains[k], parts[k].inside) for k in config.test_domains]
    answers, problems = _answers(model, chosen, EVALUATION_BATCH, progress)
    if problems:
        raise DataError(problems[0])
    return Evaluated(model, data, tuple(answers), "table")


def _matched(model: Model, data: DomainSet) -> tuple[Labels, tuple[str, ...]]:
    """For each class of the data its number in the model, -1 where the model does not know it."""
    known = {name: k for k, name in enumerate(model.classes)}
    numbers = np.array([known.get(name, -1) for name in data.classes], dtype=np.int64)
    strange = [name for name in data.classes if name not in known]
    if len(strange) == len(data.classes):
        names = (
            f"The model knows {_first_names(model.classes)}, and {data.name} has {_first_names(data.classes)}"
        )
        raise InputError(f"{names}; classes are matched by name, so rename the folders.")
    if not strange:
        return numbers, ()
    left = sum(int((numbers[domain.labels] < 0).sum()) for domain in data.domains)
    return numbers, (f"The model does not know {_first_names(strange)}; {left} pictures are left out.",)


def _first_names(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _answers(
    model: Model, chosen: Iterable[tuple[Domain, Labels]], batch_size: int, progress: Advance
) -> tuple[list[Answers], list[str]]:
    """The answers on some samples of each domain, where there are any, and what cannot be read."""
    answers, problems = [], []
    for domain, positions in chosen:
        one, unread = answer(model, domain, positions, batch_size, progress)
        problems += unread
        if len(one.positions):
            answers.append(one)
    return answers, problems


def answer(
    model: Model, domain: Domain, positions: Labels, batch_size: int, progress: Callable[[int], object] = silent
) -> tuple[Answers, list[str]]:
    """The answers on some samples of a domain, whose own labels they keep, and what cannot be read."""
    read: Callable[[int], Picture] = domain.read
    if model.encoding is not None and isinstance(domain, TableDomain):
        read = model.encoding.inputs(domain).__getitem__
    kept: list[int] = []
    predicted, confidence, problems = [np.zeros(0, dtype=np.int64)], [np.zeros(0)], []
    for batch in model.batches(positions.tolist(), read, batch_size):
        kept += batch.items
        predicted.append(batch.logits.argmax(1).numpy())
        confidence.append(torch.softmax(batch.logits.double(), 1).amax(1).numpy())
        problems += [sentence for _, sentence in batch.problems]
        progress(len(batch.items) + len(batch.problems))
    places, guessed = np.array(kept, dtype=np.int64), np.concatenate(predicted)
    return Answers(domain, places, domain.labels[places], guessed, np.concatenate(confidence)), problems
