"""From a TOML file to jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.check import InputError
from genie_dg.data.domains import DomainSet
from genie_dg.data.registry import open_data, row_of
from genie_dg.models.backbones import BACKBONES, find_backbone
from genie_dg.models.timm_model import PREFIX
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.protocols.registry import find_protocol
from genie_dg.protocols.sweep import Facts, SweepConfig, expand, load_sweep

from .checks import try_out
from .options import Job, RunOptions
from .request import check_here, load_plugin
from .trackers.tracker import check_trackers


@dataclass(frozen=True)
class Plan:
    """A sweep, ready to be run.

    Args:
        sweep: as its file says.
        jobs: its runs.
        data: the sets that they name, opened.
        protocol: the file of the user's own protocol, where the sweep names one.
    """

    sweep: SweepConfig
    jobs: tuple[Job, ...]
    data: dict[str, DomainSet]
    protocol: Path | None = None


def plan(path: Path, options: RunOptions, threads: int | None = None) -> Plan:
    """Everything that can be wrong is found here, before any work starts.

    Args:
        path: the TOML file of the sweep; its plugins are run.
        options: of all its runs.
        threads: of each run, instead of what the file says.
    """
    check_here(options)
    check_trackers(options.tracks)
    sweep = load_sweep(path)
    named = [str((path.parent / name).resolve()) for name in sweep.plugins]
    options = replace(options, group=sweep.name, plugin=tuple(dict.fromkeys((*options.plugin, *named))))
    for file in options.plugin:
        load_plugin(Path(file))
    if threads is not None:
        sweep = replace(sweep, threads=threads)
    profile = find_protocol(sweep.protocol, path.parent)
    for backbone in {profile.backbone, profile.small_backbone}:
        if not backbone.lower().startswith(PREFIX):  # those of timm are looked up where they are used
            find_backbone(backbone)
    of_set = {entry: _with_columns(options, sweep.columns.get(entry, {})) for entry in sweep.datasets}
    opened = {entry: open_data(entry, one.root or None, one.columns) for entry, one in of_set.items()}
    entries = {data.name: entry for entry, data in opened.items()}
    if len(entries) != len(opened):
        raise InputError(f"Two data sets of the sweep have one name ({', '.join(entries)}); rename a folder.")
    sets = {data.name: data for data in opened.values()}
    digests = {name: data.digest() for name, data in sets.items()}
    configs = expand(replace(sweep, datasets=list(sets), columns={}), profile, _facts_of(sets))
    try_out(configs, sets)
    jobs = tuple(
        Job(replace(config, data_digest=digests[config.dataset]), entry, of_set[entry])
        for config in configs
        if (entry := entries[config.dataset])
    )
    own = path.parent / sweep.protocol if sweep.protocol.lower().endswith(".toml") else None
    return Plan(sweep, jobs, sets, own)


def _with_columns(options: RunOptions, said: Mapping[str, Any]) -> RunOptions:
    """The options of the runs on one data set, with what the sweep says of its columns."""
    return replace(
        options,
        domain_column=said.get("domain", ""),
        label_column=said.get("label", ""),
        image_column=said.get("image", ""),
        ignore_column=tuple(said.get("ignore", ())),
    )


def _facts_of(sets: Mapping[str, DomainSet]) -> Facts:
    """What a sweep must know of the registries, and of its data sets."""
    flat = next(name for name, row in BACKBONES.items() if row.flat)
    return Facts(
        {name: [domain.name for domain in data.domains] for name, data in sets.items()},
        ALGORITHMS,
        OPTIMIZERS,
        small_images=tuple(name for name in sets if (row := row_of(name)) is not None and row.small_images),
        without_weights=tuple(name for name, row in BACKBONES.items() if not row.pretrained),
        in_files=tuple(name for name, data in sets.items() if data.in_files),
        tables=dict.fromkeys((name for name, data in sets.items() if data.is_table), flat),
    )
