"""DiWA: the mean of the weights of finished runs, as a run of its own (Rame et al., NeurIPS 2022).

Runs that differ in their draw of hyper-parameters only start from the same weights, which is what lets their
mean be a good model. `average_runs` takes the weights that such runs kept (``model.pt``: by default those of
the record with the best validation), averages all of them (``"uniform"``) or those that help on the validation
parts of the training domains (``"greedy"``, the paper's restricted average), evaluates the mean, and stores it
as a run that tables and reports show as ``ALGORITHM+DiWA``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genie_dg.check import InputError, one_of
from genie_dg.data.domains import DomainSet
from genie_dg.files import FileError, read_whole
from genie_dg.runs.config import RunConfig, canonical, from_mapping
from genie_dg.runs.folder import CONFIG, DONE, MODEL, alone, begin, cut_records, is_done, read_records
from genie_dg.runs.model_file import ModelFile
from genie_dg.runs.read import run_folders
from genie_dg.runs.record import Record
from genie_dg.runs.seal import check_seal, seal
from genie_dg.runs.tensors import DamagedFile
from genie_dg.runtime import same_kernels
from genie_dg.statistics import mean

from .assemble import Parts, assemble
from .evaluate import make_record, score
from .keep import model_file
from .options import RunOptions

CHOICES = ("uniform", "greedy")
"""All runs, or only those that do not lower the validation accuracy of the mean."""


@dataclass(frozen=True)
class Member:
    """A finished run with its records."""

    config: RunConfig
    folder: Path
    records: tuple[Record, ...] = ()


def mean_weights(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of every floating tensor that all states have in the same shape; the rest is the first one's.

    >>> mean = mean_weights([{"w": torch.tensor([1.0]), "n": torch.tensor(3)},
    ...                      {"w": torch.tensor([2.0]), "n": torch.tensor(5)}])
    >>> mean["w"].item(), mean["n"].item()
    (1.5, 3)
    """
    first = dict(states[0])
    for name, tensor in first.items():
        others = [state.get(name) for state in states]
        same = [t for t in others if t is not None and t.shape == tensor.shape]
        if tensor.is_floating_point() and len(same) == len(states):
            first[name] = torch.stack([t.double() for t in same]).mean(0).to(tensor.dtype)
    return first


def _finished_runs(folder: Path, data: DomainSet, problems: list[str]) -> Iterator[Member]:
    """The runs of a folder on a data set that are complete, trained, and still have their weights."""
    for path in map(Path, run_folders(str(folder))):
        if not is_done(path) or not (path / CONFIG).exists():
            if os.path.lexists(path / DONE):
                problems.append(f"In {path}, {DONE} or {CONFIG} is not a regular file; the run is left out.")
            continue
        try:
            config = from_mapping(json.loads(read_whole(path / CONFIG)))
            if config.dataset != data.name or config.average_of:
                continue
            check_seal(path)
            records = read_records(path, len(data.domains))
        except (FileError, ValueError, TypeError, AttributeError, RecursionError, OSError) as error:
            problems.append(f"{path} cannot be read ({str(error).rstrip('.')}); it is left out.")
            continue
        if not (path / MODEL).exists():
            problems.append(f"{path} has no {MODEL}; it is left out.")
            continue
        yield Member(config, path, tuple(records))


def _kept_weights(member: Member) -> tuple[float, Mapping[str, Tensor]]:
    """The weights that a run kept, after their accuracy on the validation parts of the training domains."""
    path, steps = member.folder / MODEL, [record.step for record in member.records]
    model = ModelFile.load(path)
    if model.config != member.config:
        raise DamagedFile(f"{path} is of the run {model.config.run_id}")
    if (step := model.record.get("step")) not in steps:
        raise DamagedFile(f"{path} is of step {step}, which has no record")
    return member.records[steps.index(step)].validation(member.config.test_domains), model.algorithm


def groups_of_draws(members: Sequence[Member]) -> list[list[Member]]:
    """Runs that differ in their draw only."""
    by_kind: dict[str, list[Member]] = {}
    for member in members:
        by_kind.setdefault(canonical(_without_draw(member.config)), []).append(member)
    return [some for some in by_kind.values() if len(some) > 1]


def _without_draw(config: RunConfig) -> RunConfig:
    """The configuration without what a draw decides."""
    return replace(
        config, algorithm_settings={}, optimizer_settings={}, batch_size=1, dropout=0.0, hparams_seed=0
    )


def average_runs(
    data: DomainSet,
    options: RunOptions,
    choice: str = "uniform",
    report: Callable[[RunConfig, Record | None, int, int], None] = lambda *_: None,
) -> list[str]:
    """Average every group of runs of a data set; returns a sentence for each run that could not be used.

    Args:
        data: the set, opened.
        options: where the runs are, and how the mean is evaluated. The means go to the same folder.
        choice: ``"uniform"`` or ``"greedy"``.
        report: called with a mean's configuration, its record (``None`` when it was there already), how many
            runs are in it and how many could have been.
    """
    one_of("choice", choice, CHOICES)
    problems: list[str] = []
    averaged = 0
    for members in groups_of_draws(list(_finished_runs(Path(options.out), data, problems))):
        chosen = _in_order(members, problems)
        if len(chosen) > 1:
            with same_kernels(chosen[0][0].config.threads):
                report(*_average(chosen, data, options, choice), len(chosen))
            averaged += 1
    if not averaged:
        raise InputError(
            f"{options.out} has no two finished runs on {data.name} that differ in their draw only; run a "
            f"sweep with hparams = 2 or more first.{' '.join(['', *problems[:1]])}"
        )
    return problems


def _in_order(members: Sequence[Member], problems: list[str]) -> list[tuple[Member, Mapping[str, Tensor]]]:
    """Runs with their weights, the best by validation first, ties to the smaller draw, without damaged ones."""
    usable = []
    for member in members:
        try:
            validation, weights = _kept_weights(member)
        except DamagedFile as error:
            problems.append(f"{error}; the run is left out.")
        else:
            usable.append((-validation, member.config.hparams_seed, member, weights))
    usable.sort(key=lambda one: one[:2])
    return [(member, weights) for _, _, member, weights in usable]


def _average(
    chosen: Sequence[tuple[Member, Mapping[str, Tensor]]], data: DomainSet, options: RunOptions, choice: str
) -> tuple[RunConfig, Record | None, int]:
    members, states = [member for member, _ in chosen], [weights for _, weights in chosen]
    parts = assemble(members[0].config, data, options)
    kept = list(range(len(members))) if choice == "uniform" else _greedy(parts, states)
    best = members[0].config
    config = replace(
        _without_draw(best),
        batch_size=best.batch_size,
        average_of=tuple(members[k].config.run_id for k in kept),
    )
    folder = Path(options.out) / config.run_id
    with alone(folder):
        if is_done(folder):
            return config, None, len(kept)
        weights = mean_weights([states[k] for k in kept])
        parts.algorithm.load_state_dict(weights)
        record = make_record(parts, config.steps - 1, [])
        meta = {"domains": list(parts.domains), "torch": torch.__version__, "device": str(parts.device)}
        begin(folder, config, {**meta, "choice": choice})
        cut_records(folder, [record])
        model_file(parts, record, weights, config, averaged=True).save(folder / MODEL)
        seal(folder)
    return config, record, len(kept)


def _greedy(parts: Parts, states: Sequence[Mapping[str, Any]]) -> list[int]:
    """Positions of the runs that are kept: each, best first, if the mean with it is no worse on validation."""
    kept: list[int] = []
    best = float("-inf")
    for k in range(len(states)):
        parts.algorithm.load_state_dict(mean_weights([states[i] for i in (*kept, k)]))
        reached = _validation(parts)
        if reached >= best:
            kept, best = [*kept, k], reached
    return kept


def _validation(parts: Parts) -> float:
    scores = [score(parts.algorithm, parts.evaluations[k, "out"]) for k in parts.sources]
    return mean(one.accuracy for one in scores)
