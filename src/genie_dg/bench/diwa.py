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


def _finished_runs(folder: Path, data: DomainSet, problems: list[str]) -> Iterator[tuple[RunConfig, Path]]:
    """The runs of a folder on a data set that are complete, trained, and still have their weights."""
    for path in map(Path, run_folders(str(folder))):
        if not is_done(path):
            continue
        try:
            config = from_mapping(json.loads(read_whole(path / CONFIG)))
            if config.dataset != data.name or config.average_of:
                continue
            check_seal(path)
        except (FileError, ValueError, TypeError, AttributeError, RecursionError, OSError) as error:
            problems.append(f"{path} cannot be read ({str(error).rstrip('.')}); it is left out.")
            continue
        if not (path / MODEL).exists():
            problems.append(f"{path} has no {MODEL}; it is left out.")
            continue
        yield config, path


def groups_of_draws(runs: Iterable[tuple[RunConfig, Path]]) -> list[dict[Path, RunConfig]]:
    """Runs that differ in their draw only."""
    by_kind: dict[str, dict[Path, RunConfig]] = {}
    for config, path in runs:
        by_kind.setdefault(canonical(_without_draw(config)), {})[path] = config
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
    for runs in groups_of_draws(_finished_runs(Path(options.out), data, problems)):
        models = _models(runs, problems)
        if len(models) > 1:
            with same_kernels(models[0].config.threads):
                report(*_average(models, data, options, choice), len(models))
            averaged += 1
    if not averaged:
        raise InputError(
            f"{options.out} has no two finished runs on {data.name} that differ in their draw only; run a "
            f"sweep with hparams = 2 or more first.{' '.join(['', *problems[:1]])}"
        )
    return problems


def _models(runs: Mapping[Path, RunConfig], problems: list[str]) -> list[ModelFile]:
    """What runs kept, the best by validation first, ties to the smaller draw, without damaged files."""
    models = []
    for path, config in runs.items():
        try:
            model = ModelFile.load(path / MODEL)
            if model.config != config:
                raise DamagedFile(f"{path / MODEL} is of the run {model.config.run_id}")
            validation = model.evaluation().validation(config.test_domains)
        except (DamagedFile, InputError) as error:
            problems.append(f"{str(error).rstrip('.')}; the run is left out.")
        else:
            models.append((-validation, config.hparams_seed, model))
    return [model for _, _, model in sorted(models, key=lambda one: one[:2])]


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
        meta = {"domains": list(parts.domains), "torch": torch.__version__, "device": str(parts.device)}
        begin(folder, config, {**meta, "choice": choice})
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
