"""Files and commands that give exactly the runs they are for: they are tried, and what differs is split off.

Rules change: a protocol may draw today what it did not draw when a run was made. Whoever knows the rules (the
command line does) hands them over as `Rules`; a group of runs whose file would give other runs is split by what
differs, which is then the same in each part and is written down, until the file of every part is right. What no
file can say is left over, with the names of what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from genie_dg.check import GenieError
from genie_dg.runs.config import RunConfig

Domains = Mapping[str, Sequence[str]]
Files = Mapping[str, str]
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Rules:
    """What files and commands stand for today.

    Args:
        expand: the runs of a sweep, from the texts of its files by name, the sweep's first, and the names of
            the domains of each data set. What cannot be is refused with a `GenieError`.
        typed: the run of the words of a command line, in the same way.
    """

    expand: Callable[[Files, Domains], list[RunConfig]]
    typed: Callable[[Sequence[str], Domains], RunConfig]


@dataclass(frozen=True)
class Split:
    """Groups of runs that files give exactly, and what is left over, with why."""

    parts: list[list[RunConfig]]
    lost: list[RunConfig]
    why: list[str]


def split(
    configs: Sequence[RunConfig], files: Callable[[Sequence[RunConfig]], Files], domains: Domains, rules: Rules
) -> Split:
    """Runs in groups whose files give exactly these runs.

    Args:
        configs: the runs.
        files: makes the files of a group.
        domains: the names of the domains of each data set.
        rules: of today.
    """
    pending, parts, lost, why = [list(configs)], list[list[RunConfig]](), list[RunConfig](), dict[str, None]()
    while pending:
        group = pending.pop(0)
        try:
            made = {key_of(config): config for config in rules.expand(files(group), domains)}
        except GenieError as refusal:
            smaller = [[config] for config in group] if len(group) > 1 else []
            made, differs = {}, {key_of(config): [str(refusal).rstrip(".")] for config in group}
        else:
            differs = {key_of(config): differences(config, made.get(key_of(config))) for config in group}
            if not any(differs.values()) and len(made) == len(group):
                parts.append(group)
                continue
            smaller = _split(group, differs)
        if len(smaller) > 1:
            pending += smaller
        elif len(group) > 1 and not any(differs.values()):
            pending += [[config] for config in group]
        else:
            lost += group
            why |= dict.fromkeys(word for words in differs.values() for word in words)
    return Split(parts, lost, list(why))


def key_of(config: RunConfig) -> Key:
    """What names a run in its sweep."""
    seeds = config.hparams_seed, config.trial_seed
    return (config.dataset, config.algorithm, config.optimizer, config.test_domains, *seeds)


def differences(wanted: RunConfig, made: RunConfig | None) -> list[str]:
    """The names of what differs between two runs; data are whatever is there."""
    if made is None:
        return ["runs"]
    if replace(made, data_digest=wanted.data_digest).run_id == wanted.run_id:
        return []
    old, new = _flat(wanted), _flat(made)
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def _flat(config: RunConfig) -> dict[str, Any]:
    """Every value by its name; settings as ``optimizer_settings.lr``."""
    values: dict[str, Any] = {}
    for name, value in asdict(config).items():
        if isinstance(value, dict):
            values |= {f"{name}.{key}": x for key, x in value.items()}
        elif name != "data_digest":
            values[name] = value
    return values


def _split(group: Sequence[RunConfig], differs: Mapping[Key, Sequence[str]]) -> list[list[RunConfig]]:
    """Runs that agree in everything that differs somewhere, as products."""
    names = sorted({name for words in differs.values() for name in words})
    alike: dict[str, list[RunConfig]] = {}
    for config in group:
        values = [_flat(config).get(name) for name in names]
        alike.setdefault(repr([bool(differs[key_of(config)]), values]), []).append(config)
    return [part for some in alike.values() for part in boxes(some)]


def boxes(configs: Sequence[RunConfig]) -> list[list[RunConfig]]:
    """Runs in groups that are each a product of rows, test domains, draws and trials."""
    rows: dict[Key, list[RunConfig]] = {}
    for config in configs:
        rows.setdefault((config.dataset, config.algorithm, config.optimizer), []).append(config)
    by_optimizer: dict[Key, dict[str, list[RunConfig]]] = {}
    for (dataset, algorithm, optimizer), some in rows.items():
        for product in products(some):
            box = tuple(sorted((c.test_domains, c.hparams_seed, c.trial_seed) for c in product))
            by_optimizer.setdefault((dataset, algorithm, box), {})[optimizer] = product
    by_algorithm: dict[Key, list[RunConfig]] = {}
    for (dataset, _, box), members in by_optimizer.items():
        whole = by_algorithm.setdefault((dataset, frozenset(members), box), [])
        whole += [config for product in members.values() for config in product]
    return list(by_algorithm.values())


def products(configs: Sequence[RunConfig]) -> list[list[RunConfig]]:
    """Runs of one row in groups that are each a product of test domains, draws and trials."""
    seeds: dict[tuple[int, ...], set[tuple[int, int]]] = {}
    for config in configs:
        seeds.setdefault(config.test_domains, set()).add((config.hparams_seed, config.trial_seed))
    trials: dict[tuple[frozenset[tuple[int, int]], tuple[int, ...]], list[int]] = {}
    for pairs in {frozenset(some) for some in seeds.values()}:
        for draw in sorted({draw for draw, _ in pairs}):
            of_draw = tuple(sorted(trial for other, trial in pairs if other == draw))
            trials.setdefault((pairs, of_draw), []).append(draw)
    groups = []
    for (pairs, of_draws), draws in trials.items():
        alike = [c for c in configs if frozenset(seeds[c.test_domains]) == pairs]
        groups.append([c for c in alike if c.hparams_seed in draws and c.trial_seed in of_draws])
    return groups
