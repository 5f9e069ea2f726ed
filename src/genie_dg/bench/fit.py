"""From a folder of pictures to a model: candidates are trained without each domain in turn, the best on all.

``runs`` in the output folder holds the trainings of the candidates, ``final`` that of the winner; both go on
where they were stopped. How the winner is chosen, and what to expect of it: `genie_dg.results.forecast`.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from genie_dg.check import InputError
from genie_dg.data.domains import DataError, DomainSet, PictureDomain
from genie_dg.runs.config import RunConfig, from_mapping

from .checks import try_out
from .options import Job, RunOptions
from .request import full_names, sort_settings

CANDIDATES = ("adam:lr=0.0005", "genie:lr=0.0015", "genie:scale_free=true")
"""What is tried when nothing is named: Adam and GENIE at rates that suit short fine-tunings."""
PICTURE_SIZES = (32, 48, 64, 96, 128, 160, 224)
"""Sizes in pixels that pictures are resized to by themselves."""
_LOOKED_AT = 40
"""Pictures whose size is looked at for that."""


@dataclass(frozen=True)
class Fit:
    """What `fit` is going to do.

    Args:
        data: the set.
        source: what `open_data` was given.
        configs: by candidate, one run for each domain left out.
        options: of all runs.
    """

    data: DomainSet
    source: str
    configs: tuple[tuple[RunConfig, ...], ...]
    options: RunOptions

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Domain by domain, so that an early look compares candidates on the same ground."""
        runs = replace(self.options, out=str(Path(self.options.out) / "runs"), keep="none")
        by_domain = zip(*self.configs, strict=True)
        return tuple(Job(config, self.source, runs) for same in by_domain for config in same)

    def final(self, config: Any) -> Job:
        """The winner, trained on all domains.

        Args:
            config: of a run of the winner, as the frame holds it.
        """
        whole = from_mapping({**structs.asdict(config), "test_domains": ()})
        return Job(whole, self.source, replace(self.options, out=str(Path(self.options.out) / "final")))


def plan_fit(
    data: DomainSet, source: str, candidates: Sequence[str], options: RunOptions, **settings: Any
) -> Fit:
    """Everything that can be wrong is found here, before any work starts.

    Args:
        data: the set.
        source: what `open_data` was given.
        candidates: each ``optimizer`` or ``optimizer:NAME=VALUE,NAME=VALUE``.
        options: of all runs.
        settings: fields of `RunConfig` that the candidates share.
    """
    if len(data.domains) < 2:
        raise InputError(f"{data.name} has one domain, fit needs two or more; use genie-dg train.")
    rows: list[tuple[RunConfig, ...]] = []
    digest = data.digest()
    for text in candidates:
        fields = {**settings, **candidate(text, settings), "data_digest": digest}
        rows.append(tuple(RunConfig(data.name, (k,), **fields) for k in range(len(data.domains))))
    if len({row[0].run_id for row in rows}) < len(rows):
        raise InputError(f"Two of the candidates are the same ({', '.join(candidates)}); name each once.")
    try_out([row[0] for row in rows], {data.name: data})
    return Fit(data, source, tuple(rows), options)


def candidate(text: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Optimizer and settings out of ``optimizer:NAME=VALUE,...``.

    >>> candidate("Adam:lr=1e-3", {})
    {'optimizer': 'adam', 'optimizer_settings': {'lr': 0.001}}
    """
    name, _, rest = text.partition(":")
    algorithm = settings.get("algorithm", "ERM")
    _, optimizer, _ = full_names(algorithm, name, settings.get("backbone", "cnn"))
    words = [f"optimizer.{word.strip()}" for word in rest.split(",") if word.strip()]
    return {"optimizer": optimizer, "optimizer_settings": sort_settings(words, algorithm, optimizer)[1]}


def suiting_size(data: DomainSet, most: int = PICTURE_SIZES[-1]) -> int:
    """The largest usual size that half of the pictures reach with their shorter side.

    Samples in memory keep their size, so for them the number means nothing.
    """
    sides = []
    for domain in data.domains:
        if not isinstance(domain, PictureDomain):
            return PICTURE_SIZES[-1]
        for k in np.linspace(0, len(domain) - 1, _LOOKED_AT // len(data.domains) + 1).astype(int):
            try:
                sides.append(min(domain.read(int(k)).size))
            except DataError:  # it is reported when the picture is needed
                continue
    side = statistics.median(sides) if sides else PICTURE_SIZES[-1]
    return max((size for size in PICTURE_SIZES if size <= min(side, most)), default=PICTURE_SIZES[0])
