"""DiWA: the mean of the weights of finished runs, as a run of its own (Rame et al., NeurIPS 2022).

Runs that differ in their draw of hyper-parameters only start from the same weights, which is what lets their
mean be a good model. `average` takes the final weights of such runs, averages all of them (``"uniform"``) or
those that help on the validation parts of the training domains (``"greedy"``, the paper's restricted average),
evaluates the mean, and stores it as a run that tables and reports show as ``ALGORITHM+DiWA``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genie_dg.check import InputError, one_of
from genie_dg.data.domains import DomainSet
from genie_dg.files import FileError, write_whole
from genie_dg.runs import folder as files
from genie_dg.runs.read import run_folders
from genie_dg.runs.record import Record, RunConfig, canonical, from_mapping

from .assemble import Parts, assemble
from .evaluate import score
from .options import RunOptions
from .train import evaluate, same_kernels

CHOICES = ("uniform", "greedy")
"""All runs, or only those that do not lower the validation accuracy of the mean."""

State = dict[str, Tensor]


@dataclass(frozen=True)
class Member:
    """A finished run and the accuracy of its final weights on the validation parts of the training domains."""

    config: RunConfig
    folder: Path
    validation: float


def mean_weights(states: Sequence[Mapping[str, Tensor]]) -> State:
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


def finished(folder: Path, data: DomainSet, problems: list[str]) -> Iterator[Member]:
    """The runs of a folder on a data set that are complete, trained, and still have their weights."""
    for path in map(Path, run_folders(str(folder))):
        if not (path / files.DONE).exists() or not (path / files.CONFIG).exists():
            continue
        try:
            config = from_mapping(json.loads((path / files.CONFIG).read_bytes()))
            if config.dataset != data.name or config.average_of:
                continue
            last = files.read_records(path, len(data.domains))[-1]
        except (FileError, ValueError, TypeError, IndexError, OSError) as error:
            problems.append(f"{path} cannot be read ({str(error).rstrip('.')}); it is left out.")
            continue
        if not (path / files.MODEL).exists():
            problems.append(f"{path} has no {files.MODEL}; it is left out.")
            continue
        yield Member(config, path, last.validation(config.test_domains))


def groups(members: Sequence[Member]) -> list[list[Member]]:
    """Runs that differ in their draw only, the best by validation first; ties to the smaller draw."""
    by_kind: dict[str, list[Member]] = {}
    for member in members:
        by_kind.setdefault(canonical(without_draw(member.config)), []).append(member)
    order = [sorted(some, key=lambda m: (-m.validation, m.config.hparams_seed)) for some in by_kind.values()]
    return [some for some in order if len(some) > 1]


def without_draw(config: RunConfig) -> RunConfig:
    """The configuration without what a draw decides."""
    return replace(
        config, algorithm_settings={}, optimizer_settings={}, batch_size=1, dropout=0.0, hparams_seed=0
    )


def average(
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
    found = groups(list(finished(Path(options.out), data, problems)))
    if not found:
        raise InputError(
            f"{options.out} has no two finished runs on {data.name} that differ in their draw only; run a "
            "sweep with hparams = 2 or more first."
        )
    for members in found:
        with same_kernels(members[0].config.threads):
            report(*_average(members, data, options, choice), len(members))
    return problems


def _average(
    members: Sequence[Member], data: DomainSet, options: RunOptions, choice: str
) -> tuple[RunConfig, Record | None, int]:
    parts = assemble(members[0].config, data, options)
    states = [files.load_tensors(member.folder / files.MODEL)["algorithm"] for member in members]
    kept = list(range(len(members))) if choice == "uniform" else greedy(parts, states)
    best = members[0].config
    config = replace(
        without_draw(best),
        batch_size=best.batch_size,
        average_of=tuple(members[k].config.run_id for k in kept),
    )
    folder = Path(options.out) / config.run_id
    with files.alone(folder):
        if (folder / files.DONE).exists():
            return config, None, len(kept)
        weights = mean_weights([states[k] for k in kept])
        parts.algorithm.load_state_dict(weights)
        record = evaluate(parts, config.steps - 1, [])
        meta = {"domains": list(parts.domains), "torch": torch.__version__, "device": str(parts.device)}
        files.begin(folder, config, {**meta, "choice": choice})
        files.cut_records(folder, [record])
        files.save_tensors(folder / files.MODEL, {"algorithm": weights, "config": asdict(config)})
        write_whole(folder / files.DONE, b"")
    return config, record, len(kept)


def greedy(parts: Parts, states: Sequence[Mapping[str, Any]]) -> list[int]:
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
    scores = [score(parts.algorithm, parts.evaluations[k, "out"], parts.device) for k in parts.sources]
    return sum(one.accuracy for one in scores) / len(scores)
