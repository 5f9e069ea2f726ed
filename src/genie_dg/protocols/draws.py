"""The hyper-parameters of a run: defaults, or random values that come out digit for digit as published.

With ``seed = seed_hash(hparams_seed, trial_seed)`` a protocol draws

- **by name** (DomainBed's present code): the value called ``name`` from ``RandomState(seed_hash(seed, name))``.
  A setting of an algorithm has its published name. An optimizer whose lr or weight_decay is searched as
  DomainBed searches them takes the values called ``lr`` and ``weight_decay`` (for DANN and CDANN: ``lr_g`` and
  ``weight_decay_g``); all other settings of an optimizer are called ``<optimizer>/<setting>``.
- **in order** (its code of 2020, and SWAD's): all values from one ``RandomState(seed)``, first dropout, lr,
  batch size and weight decay, then the algorithm's own in the order of its row (DANN and CDANN draw lr_g,
  lr_d and weight_decay_g before the others), then the optimizer's own.

``hparams_seed = 0`` stands for the defaults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.random import RandomState

from genie_dg.check import whole_number
from genie_dg.facts import seed_hash
from genie_dg.search_space import Choice, LogUniform, Setting, Space, published_name

from ._profile import Profile

LR, _DECAY = LogUniform(-5, -3.5), LogUniform(-6, -2)
"""DomainBed's rules for lr and weight decay: what a row's rules are compared with."""

_DROPOUT = Setting(0.0, Choice((0.0, 0.1, 0.5)))
LARGE: Space = {
    "dropout": _DROPOUT,
    "lr": Setting(5e-5, LR),
    "batch_size": Setting(32, LogUniform(3, 5.5, base=2.0, whole=True)),
    "weight_decay": Setting(0.0, _DECAY),
}
_SMALL: Space = {
    "dropout": _DROPOUT,
    "lr": Setting(1e-3, LogUniform(-4.5, -2.5)),
    "batch_size": Setting(64, LogUniform(3, 9, base=2.0, whole=True)),
    "weight_decay": Setting(0.0),
}
DOMAINNET_BATCH = Setting(32, LogUniform(3, 5, base=2.0, whole=True))


Searched = Any
"""A row of the registry of algorithms or of optimizers, which protocols do not import."""


@dataclass(frozen=True)
class Draw:
    """The hyper-parameters of a run; what is not searched is not named and has its row's default."""

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
    profile: Profile, dataset: str, algorithm: Searched, optimizer: Searched, hparams_seed: int, trial_seed: int
) -> Draw:
    """The hyper-parameters of one run.

    Args:
        profile: the protocol.
        dataset: the name of the data set.
        algorithm: its row.
        optimizer: its row.
        hparams_seed: which draw; 0 for the defaults.
        trial_seed: the trial; the same draw differs from trial to trial.
    """
    whole_number("hparams_seed", hparams_seed, 0)
    whole_number("trial_seed", trial_seed, 0)
    listed = entries(profile, dataset, algorithm, optimizer)
    drawn: dict[str, dict[str, Any]] = {"": {}, "run": {}, "algorithm": {}, "optimizer": {}}
    for entry, value in zip(listed, _values(profile, listed, hparams_seed, trial_seed), strict=True):
        if value is not None:  # None: the row knows the default, which hangs on another setting
            drawn[entry.owner][entry.key] = value
    batch_size = _batch_size(profile, dataset, algorithm, drawn["run"]["batch_size"])
    return Draw(batch_size, drawn["run"].get("dropout", 0.0), drawn["algorithm"], drawn["optimizer"])


def _values(profile: Profile, listed: Sequence[Entry], hparams_seed: int, trial_seed: int) -> list[Any]:
    """A value for each entry."""
    seed = seed_hash(int(hparams_seed), int(trial_seed))
    one, values = RandomState(seed), []
    for entry in listed:
        rule = entry.setting.rule
        if rule is None or hparams_seed == 0:
            values.append(entry.setting.default)
        else:
            own = RandomState(seed_hash(seed, entry.published))
            values.append(rule.draw(own if profile.draws == "by-name" else one))
    return values


def _batch_size(profile: Profile, dataset: str, algorithm: Searched, drawn: int) -> int:
    """What was drawn; an algorithm may have a batch size of its own for large pictures, whatever is drawn."""
    named = "batch_size" in profile.search or "batch_size" in profile.defaults
    own = None if profile.is_small(dataset) or named else algorithm.batch_size
    return drawn if own is None else own


def entries(profile: Profile, dataset: str, algorithm: Searched, optimizer: Searched) -> list[Entry]:
    """Everything that is drawn for a run, in order."""
    special = _special(profile, dataset, algorithm)
    shared = _shared(profile, dataset, special)
    rules = {"lr": LR, "weight_decay": _DECAY}
    taken = [key for key, rule in rules.items() if _follows(profile, optimizer, key, rule)]

    def steps(published: str, key: str, used: bool) -> Entry:
        """A value that is the optimizer's lr or weight decay where it takes DomainBed's."""
        if not used or key not in taken:
            return Entry(published, shared[key])
        shares = profile.is_small(dataset) or key in special
        default = shared[key].default if shares else optimizer.space[key].default
        default = profile.defaults.get(key, default)
        default = profile.defaults.get(f"{optimizer.name}.{key}", default)
        return Entry(published, replace(shared[key], default=default), "optimizer", key)

    listed = [
        Entry("resnet_dropout", shared["dropout"], "run" if _has_dropout(profile, dataset) else "", "dropout"),
        steps("lr", "lr", not algorithm.adversarial),
        Entry("batch_size", shared["batch_size"], "run", "batch_size"),
        steps("weight_decay", "weight_decay", not algorithm.adversarial),
    ]
    own = {key: special.get(key, setting) for key, setting in algorithm.space.items()}
    if algorithm.adversarial:
        rival = {"lr_d": shared["lr"]} if own.pop("lr_d", None) is not None else {}
        listed.append(steps("lr_g", "lr", True))
        listed += _searched(profile, algorithm.name, rival, "algorithm")
        listed.append(steps("weight_decay_g", "weight_decay", True))
    listed += _unused(profile, algorithm.name)
    listed += _searched(profile, algorithm.name, own, "algorithm")
    listed += _unused(profile, optimizer.name)
    rest = {key: setting for key, setting in optimizer.space.items() if key not in taken}
    return listed + _searched(profile, optimizer.name, rest, "optimizer")


def _has_dropout(profile: Profile, dataset: str) -> bool:
    """Dropout is drawn for every set; the published network for small images has none."""
    named = "dropout" in profile.search or "dropout" in profile.defaults
    return named or not profile.is_small(dataset)


def _special(profile: Profile, dataset: str, algorithm: Searched) -> Space:
    """What an algorithm has for this set only."""
    size = "small" if profile.is_small(dataset) else "large"
    return {**algorithm.by_set.get(size, {}), **algorithm.by_set.get(dataset, {})}


def _shared(profile: Profile, dataset: str, special: Space) -> dict[str, Setting]:
    """The rows of dropout, lr, batch size and weight decay for a set."""
    rows = dict(_SMALL if profile.is_small(dataset) else LARGE)
    if dataset == "DomainNet":
        rows["batch_size"] = DOMAINNET_BATCH
    rows |= {key: special[key] for key in rows if key in special}
    return {
        key: Setting(profile.defaults.get(key, row.default), profile.search.get(key, row.rule))
        for key, row in rows.items()
    }


def _follows(profile: Profile, optimizer: Searched, key: str, rule: LogUniform) -> bool:
    """Whether an optimizer searches this setting as DomainBed does, and the protocol does not say otherwise."""
    space = optimizer.space
    return key in space and space[key].rule == rule and f"{optimizer.name}.{key}" not in profile.search


def _unused(profile: Profile, owner: str) -> list[Entry]:
    """What is drawn for an algorithm or optimizer and thrown away."""
    return [Entry(name, Setting(None, rule)) for name, rule in profile.unused.get(owner, {}).items()]


def _searched(profile: Profile, owner: str, space: Space, kind: str) -> list[Entry]:
    """What an algorithm or optimizer draws for itself, and what the protocol fixes for it."""
    listed = []
    for key, setting in space.items():
        full = f"{owner}.{key}"
        rule = profile.search.get(full, setting.rule)
        if rule is None and full not in profile.defaults:
            continue
        published = published_name(key) if kind == "algorithm" else f"{owner}/{key}"
        listed.append(Entry(published, Setting(profile.defaults.get(full, setting.default), rule), kind, key))
    return listed
