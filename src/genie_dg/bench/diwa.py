"""DiWA: the mean of the weights of finished runs, as a run of its own (Rame et al., NeurIPS 2022).

Runs that differ in their draw of hyper-parameters only start from the same weights, which is what lets their
mean be a good model. `average_runs` takes the weights that such runs kept (``model.pt``: by default those of
the record with the best validation), averages all of them (``"uniform"``) or those that help on the validation
parts of the training domains (``"greedy"``, the paper's restricted average), evaluates the mean, and stores it
as a run that tables and reports show as ``ALGORITHM+DiWA``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from genie_dg.check import InputError, one_of
from genie_dg.data.domains import DomainSet
from genie_dg.files import FileError, read_whole
from genie_dg.runs.config import RunConfig, canonical, from_mapping
from genie_dg.runs.folder import CONFIG, MODEL, alone, begin, cut_records, is_done
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

_Report = Callable[[RunConfig, Record | None, int, int], None]


def mean_weights(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of every floating tensor that all states have in the same shape; the rest is the first one's.

    >>> mean = mean_weights([{"w": torch.tensor([1.0]), "n": torch.tensor(3)},
    ...                      {"w": torch.tensor([2.0]), "n": torch.tensor(5)}])
    >>> mean["w"].item(), mean["n"].item()
    (1.5, 3)
    """
    averaged = dict(states[0])
    for name, first in averaged.items():
        same = [s[name].double() for s in states if name in s and s[name].shape == first.shape]
        if first.is_floating_point() and len(same) == len(states):
            averaged[name] = torch.stack(same).mean(0).to(first.dtype)
    return averaged


def _finished_models(folder: Path, data: DomainSet, problems: list[str]) -> Iterator[ModelFile]:
    """The models of the runs of a folder on a data set that are complete, trained, and kept their weights."""
    for path in map(Path, run_folders(str(folder))):
        if not is_done(path):
            continue
        try:
            config = from_mapping(json.loads(read_whole(path / CONFIG)))
            if config.dataset != data.name or config.average_of:
                continue
            check_seal(path)
            model = ModelFile.load(path / MODEL)
            model.evaluation()
            if model.config != config:
                raise DamagedFile(f"{path / MODEL} is of the run {model.config.run_id}")
        except (FileError, ValueError, TypeError, AttributeError, RecursionError, OSError) as error:
            problems.append(f"{path} cannot be used ({str(error).rstrip('.')}); it is left out.")
        else:
            yield model


def groups_of_draws(models: Iterable[ModelFile]) -> list[list[ModelFile]]:
    """Runs that differ in their draw only; the best by validation first, ties to the smaller draw."""
    by_kind: dict[str, list[ModelFile]] = {}
    for model in sorted(models, key=_rank):
        by_kind.setdefault(canonical(_without_draw(model.config)), []).append(model)
    return [group for group in by_kind.values() if len(group) > 1]


def _rank(model: ModelFile) -> tuple[float, int]:
    return -model.evaluation().validation(model.config.test_domains), model.config.hparams_seed


def _without_draw(config: RunConfig) -> RunConfig:
    """The configuration without what a draw decides."""
    plain = replace(config, algorithm_settings={}, optimizer_settings={}, batch_size=1)
    return replace(plain, dropout=0.0, hparams_seed=0)


def average_runs(
    data: DomainSet, options: RunOptions, choice: str = "uniform", report: _Report = lambda *_: None
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
    groups = groups_of_draws(_finished_models(Path(options.out), data, problems))
    for models in groups:
        with same_kernels(models[0].config.threads):
            report(*_average(models, data, options, choice), len(models))
    if not groups:
        why = f"{options.out} has no two finished runs on {data.name} that differ in their draw only"
        raise InputError(" ".join([f"{why}; run a sweep with hparams = 2 or more first.", *problems[:1]]))
    return problems


def _average(
    models: Sequence[ModelFile], data: DomainSet, options: RunOptions, choice: str
) -> tuple[RunConfig, Record | None, int]:
    """Average, evaluate and store; the configuration, the record, and how many runs are in the mean."""
    best, states = models[0].config, [model.algorithm for model in models]
    parts = assemble(best, data, options)
    kept = list(range(len(models))) if choice == "uniform" else _greedy(parts, states)
    average_of = tuple(models[k].config.run_id for k in kept)
    config = replace(_without_draw(best), batch_size=best.batch_size, average_of=average_of)
    folder = Path(options.out) / config.run_id
    with alone(folder):
        if is_done(folder):
            return config, None, len(kept)
        weights = mean_weights([states[k] for k in kept])
        parts.algorithm.load_state_dict(weights)
        record = make_record(parts, config.steps - 1, [])
        begin(folder, config, {**parts.meta(), "choice": choice})
        cut_records(folder, [record])
        replace(model_file(parts, record), algorithm=weights, config=config, averaged=True).save(folder / MODEL)
        seal(folder)
    return config, record, len(kept)


def _greedy(parts: Parts, states: Sequence[Mapping[str, Tensor]]) -> list[int]:
    """Positions of the runs that are kept: each, best first, if the mean with it is no worse on validation."""
    kept: list[int] = []
    best = float("-inf")
    for k in range(len(states)):
        parts.algorithm.load_state_dict(mean_weights([states[i] for i in (*kept, k)]))
        scores = [score(parts.algorithm, parts.evaluations[i, "out"]) for i in parts.sources]
        if (reached := mean(one.accuracy for one in scores)) >= best:
            kept, best = [*kept, k], reached
    return kept
