"""The hyper-parameters of a run: defaults, or random values that come out digit for digit as published.

With ``seed = seed_hash(hparams_seed, trial_seed)`` a protocol draws

- **by name** (DomainBed's present code): the value called ``name`` from ``RandomState(seed_hash(seed, name))``.
  A setting of an algorithm has its published name. An optimizer whose lr or weight_decay is searched as
  DomainBed searches them takes the values called ``lr`` and ``weight_decay`` (for DANN and CDANN: ``lr_g`` and
  ``weight_decay_g``); all other settings of an optimizer are called ``<optimizer>/<setting>``.
- **in order** (its code of 2020, and SWAD's): all values from one ``RandomState(seed)``, first dropout, lr,
  batch size and weight decay, then the algorithm's own in the order of its table row (DANN and CDANN draw lr_g,
  lr_d and weight_decay_g before the others), then the optimizer's own.

``hparams_seed = 0`` stands for the defaults.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.random import RandomState

from genie_dg.check import InputError
from genie_dg.search_space import Choice, LogUniform, Setting, Space

from ._profile import Profile

LR, DECAY = LogUniform(-5, -3.5), LogUniform(-6, -2)
"""DomainBed's rules for lr and weight decay: what a row's rules are compared with."""

_DROPOUT = Setting(0.0, Choice((0.0, 0.1, 0.5)))
LARGE: Space = {
    "dropout": _DROPOUT,
    "lr": Setting(5e-5, LR),
    "batch_size": Setting(32, LogUniform(3, 5.5, base=2.0, whole=True)),
    "weight_decay": Setting(0.0, DECAY),
}
SMALL: Space = {
    "dropout": _DROPOUT,
    "lr": Setting(1e-3, LogUniform(-4.5, -2.5)),
    "batch_size": Setting(64, LogUniform(3, 9, base=2.0, whole=True)),
    "weight_decay": Setting(0.0),
}
DOMAINNET_BATCH = Setting(32, LogUniform(3, 5, base=2.0, whole=True))
ARM_BATCH = 8
ADVERSARIAL = ("DANN", "CDANN")


def seed_hash(*parts: object) -> int:
    """A seed made of several things: the md5 of the printed tuple, modulo 2^31.

    >>> seed_hash(0, 0), seed_hash(9, 2)
    (894182419, 704807380)
    """
    return int(hashlib.md5(str(parts).encode("utf-8"), usedforsecurity=False).hexdigest(), 16) % 2**31


@dataclass(frozen=True)
class Draw:
    """The hyper-parameters of a run; what is not searched is not named and has its table's default."""

    batch_size: int
    dropout: float
    algorithm_settings: Mapping[str, Any]
    optimizer_settings: Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """One value to draw: its published name, its rule, and where it goes (``owner`` empty: nowhere)."""

    published: str
    setting: Setting
    owner: str = ""
    key: str = ""


def draw(
    profile: Profile,
    dataset: str,
    algorithm: str,
    optimizer: str,
    hparams_seed: int,
    trial_seed: int,
    algorithm_space: Space,
    optimizer_space: Space,
) -> Draw:
    """The hyper-parameters of one run.

    Args:
        profile: the protocol.
        dataset: the name of the data set.
        algorithm: its name, as the table spells it.
        optimizer: likewise.
        hparams_seed: which draw; 0 for the defaults.
        trial_seed: the trial; the same draw differs from trial to trial.
        algorithm_space: the settings of the algorithm's row.
        optimizer_space: the settings of the optimizer's row.

    >>> from .domainbed import DOMAINBED
    >>> adam = {"lr": Setting(5e-5, LR), "weight_decay": Setting(0.0, DECAY)}
    >>> found = draw(DOMAINBED, "PACS", "ERM", "adam", 1, 0, {}, adam)
    >>> found.batch_size, found.dropout, f"{found.optimizer_settings['lr']:.4e}"
    (39, 0.5, '2.7029e-05')
    """
    listed = entries(profile, dataset, algorithm, optimizer, algorithm_space, optimizer_space)
    found: dict[str, dict[str, Any]] = {"": {}, "run": {}, "algorithm": {}, "optimizer": {}}
    for entry, value in zip(listed, _values(profile, listed, hparams_seed, trial_seed), strict=True):
        if value is not None:  # None: the table knows the default, which hangs on another setting
            found[entry.owner][entry.key] = value
    return Draw(
        batch_size=_batch_size(profile, dataset, algorithm, found["run"]["batch_size"]),
        dropout=found["run"]["dropout"],
        algorithm_settings=found["algorithm"],
        optimizer_settings=found["optimizer"],
    )


def _values(profile: Profile, listed: Sequence[Entry], hparams_seed: int, trial_seed: int) -> list[Any]:
    """A value for each entry."""
    for name, value in (("hparams_seed", hparams_seed), ("trial_seed", trial_seed)):
        if value < 0:
            raise InputError(f"{name}={value} came; seeds count from 0.")
    if hparams_seed == 0:
        return [entry.setting.default for entry in listed]
    seed = seed_hash(int(hparams_seed), int(trial_seed))
    one = RandomState(seed)
    found = []
    for entry in listed:
        rule = entry.setting.rule
        if rule is None:
            found.append(entry.setting.default)
        elif profile.draws == "by-name":
            found.append(rule.draw(RandomState(seed_hash(seed, entry.published))))
        else:
            found.append(rule.draw(one))
    return found


def _batch_size(profile: Profile, dataset: str, algorithm: str, drawn: int) -> int:
    """What was drawn; ARM has a batch size of its own for large pictures, in order after a draw as well."""
    own = algorithm == "ARM" and not profile.is_small(dataset)
    named = "batch_size" in profile.search or "batch_size" in profile.defaults
    return ARM_BATCH if own and not named else drawn


def entries(
    profile: Profile,
    dataset: str,
    algorithm: str,
    optimizer: str,
    algorithm_space: Space,
    optimizer_space: Space,
) -> list[Entry]:
    """Everything that is drawn for a run, in order."""
    shared = _shared(profile, dataset)
    rules = {"lr": LR, "weight_decay": DECAY}
    taken = [key for key, rule in rules.items() if _follows(profile, optimizer, optimizer_space, key, rule)]
    adversarial = algorithm in ADVERSARIAL

    def steps(published: str, key: str, used: bool) -> Entry:
        """A value that is the optimizer's lr or weight decay where it takes DomainBed's."""
        if not used or key not in taken:
            return Entry(published, shared[key])
        default = shared[key].default if profile.is_small(dataset) else optimizer_space[key].default
        default = profile.defaults.get(key, default)
        default = profile.defaults.get(f"{optimizer}.{key}", default)
        return Entry(published, replace(shared[key], default=default), "optimizer", key)

    found = [
        Entry("resnet_dropout", shared["dropout"], "run", "dropout"),
        steps("lr", "lr", not adversarial),
        Entry("batch_size", shared["batch_size"], "run", "batch_size"),
        steps("weight_decay", "weight_decay", not adversarial),
    ]
    own = dict(algorithm_space)
    if adversarial:
        rival = {"lr_d": shared["lr"]} if own.pop("lr_d", None) is not None else {}
        found.append(steps("lr_g", "lr", True))
        found += _searched(profile, algorithm, rival, "algorithm")
        found.append(steps("weight_decay_g", "weight_decay", True))
    found += _unused(profile, algorithm)
    found += _searched(profile, algorithm, own, "algorithm")
    found += _unused(profile, optimizer)
    rest = {key: setting for key, setting in optimizer_space.items() if key not in taken}
    return found + _searched(profile, optimizer, rest, "optimizer")


def _shared(profile: Profile, dataset: str) -> dict[str, Setting]:
    """The rows of dropout, lr, batch size and weight decay for a set."""
    rows = dict(SMALL if profile.is_small(dataset) else LARGE)
    if dataset == "DomainNet":
        rows["batch_size"] = DOMAINNET_BATCH
    return {
        key: Setting(profile.defaults.get(key, row.default), profile.search.get(key, row.rule))
        for key, row in rows.items()
    }


def _follows(profile: Profile, optimizer: str, space: Space, key: str, rule: LogUniform) -> bool:
    """Whether an optimizer searches this setting as DomainBed does, and the protocol does not say otherwise."""
    return key in space and space[key].rule == rule and f"{optimizer}.{key}" not in profile.search


def _unused(profile: Profile, owner: str) -> list[Entry]:
    """What is drawn for an algorithm or optimizer and thrown away."""
    return [Entry(name, Setting(None, rule)) for name, rule in profile.unused.get(owner, {}).items()]


def _searched(profile: Profile, owner: str, space: Space, kind: str) -> list[Entry]:
    """What an algorithm or optimizer draws for itself, and what the protocol fixes for it."""
    found = []
    for key, setting in space.items():
        full = f"{owner}.{key}"
        rule = profile.search.get(full, setting.rule)
        if rule is None and full not in profile.defaults:
            continue
        published = key.rstrip("_") if kind == "algorithm" else f"{owner}/{key}"
        found.append(Entry(published, Setting(profile.defaults.get(full, setting.default), rule), kind, key))
    return found
