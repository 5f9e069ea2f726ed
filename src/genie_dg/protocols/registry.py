"""The table of protocols, open to the user's own: as rows of other packages, or as files.

A file starts from a protocol of the table and says what differs::

    name = "short"
    base = "domainbed"
    image_size = 128
    steps = 1001                       # for all sets; a table for single ones, as below
    checkpoint_every = { PACS = 50 }

    [search]
    batch_size = "fixed"               # of all runs: dropout, lr, batch_size, weight_decay
    "adam.lr" = { power = [-5, -3] }   # 10^U(-5, -3); also base = 2, whole = true
    "genie.beta" = { uniform = [0.9, 0.99] }
    "sam.rho" = { choice = [0.01, 0.05] }

    [defaults]
    "adam.lr" = 1e-4
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from genie_dg.check import InputError, did_you_mean, short
from genie_dg.registry import Registry
from genie_dg.search_space import (
    EXPECTED,
    Choice,
    LogUniform,
    SearchRule,
    Setting,
    Uniform,
    kind_of_setting,
    value_from,
)

from ._profile import Profile
from .domainbed import DOMAINBED, DOMAINBED_2024
from .draws import LARGE, Searched
from .genie_paper import GENIE_PAPER
from .toml_file import check_keys, read_toml, typed

PROTOCOLS = Registry("protocol", (DOMAINBED, DOMAINBED_2024, GENIE_PAPER), Profile, "genie_dg.protocols")
"""By name. ``PROTOCOLS.register(Profile(...))`` adds one."""

_KINDS: dict[str, Any] = {name: x for name, x in get_type_hints(Profile).items() if x in (str, int, bool)}
_KINDS |= dict.fromkeys(("steps", "checkpoint_every"), int | dict[str, int])
_KINDS |= {"base": str, "small_images": tuple[str, ...], "search": dict[str, Any], "defaults": dict[str, Any]}
"""What a file may set, and the types."""

_RULES = ("power", "uniform", "choice")


def find_protocol(text: str, folder: Path | None = None) -> Profile:
    """A protocol by its name, or from a file when the text ends in ``.toml``.

    >>> find_protocol("DomainBed").oracle
    'last'
    """
    if text.lower().endswith(".toml"):
        return load_protocol(Path(text) if folder is None else folder / text)
    return PROTOCOLS[text]


def load_protocol(path: str | Path) -> Profile:
    """The user's own protocol, from a file."""
    where = str(path)
    given = read_toml(Path(path))
    check_keys(where, given, _KINDS)
    if missing := {"name", "base"} - given.keys():
        raise InputError(f"{where} has no {min(missing)!r}; a protocol has a name, and a base to start from.")
    values = {key: typed(where, key, value, _KINDS[key]) for key, value in given.items()}
    base = PROTOCOLS[values.pop("base")]
    if (name := values["name"]) in PROTOCOLS:
        raise InputError(f"{where} is named {name!r}, as another protocol is; choose another name.")
    for key in {"steps", "checkpoint_every"} & values.keys():
        number = values[key]
        values[key] = {"default": number} if isinstance(number, int) else {**getattr(base, key), **number}
    rules = {key: _rule(where, key, rule) for key, rule in _flat(values.get("search", {})).items()}
    fixed = _flat(values.get("defaults", {}))
    fixed = {key: typed(where, f"defaults.{key}", x, bool | int | float | str) for key, x in fixed.items()}
    values |= {"search": {**base.search, **rules}, "defaults": {**base.defaults, **fixed}}
    return replace(base, **{"summary": f"{base.name}, changed", **values})


def fit_to_rows(
    profile: Profile, algorithms: Mapping[str, Searched], optimizers: Mapping[str, Searched]
) -> Profile:
    """The protocol with rules and defaults of the kinds that the rows want.

    What is named and in no registry is refused, and so is what its setting cannot be.
    """
    known = dict(LARGE)
    for row in (*algorithms.values(), *optimizers.values()):
        known |= {f"{row.name}.{key}": setting for key, setting in row.space.items()}
    for key in (*profile.search, *profile.defaults):
        if key not in (*known, *DOMAINBED.search, *GENIE_PAPER.search):
            raise InputError(
                f"The protocol {profile.name} names {key!r}, which no algorithm and no optimizer has; write "
                f"<algorithm or optimizer>.<setting>, or one of {', '.join(LARGE)}{did_you_mean(key, known)}"
            )
    where = profile.name
    rules = {k: _fitted_rule(where, k, known[k], r) if k in known else r for k, r in profile.search.items()}
    values = {k: value_from(where, k, known[k], v) if k in known else v for k, v in profile.defaults.items()}
    return replace(profile, search=rules, defaults=values)


def _fitted_rule(where: str, key: str, setting: Setting, rule: SearchRule | None) -> SearchRule | None:
    """A rule whose values are of the setting's kind."""
    if isinstance(rule, Choice):
        return Choice(tuple(value_from(where, key, setting, value) for value in rule.values))
    kind = kind_of_setting(setting)
    if not isinstance(rule, Uniform | LogUniform):
        return rule
    if kind not in ("number", "whole number"):
        raise InputError(
            f"The protocol {where} draws {key!r} as a number, and it is {EXPECTED[kind]}; write 'fixed' or "
            "{ choice = [values] }."
        )
    return replace(rule, whole=True) if kind == "whole number" else rule


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """``adam.lr = ...``, which TOML reads as a table in a table, and ``"adam.lr" = ...`` mean the same."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and not value.keys() & set(_RULES):
            flat.update({f"{key}.{inner}": rule for inner, rule in value.items()})
        else:
            flat[key] = value
    return flat


def _rule(where: str, key: str, given: Any) -> SearchRule | None:
    """A rule as a file writes it."""
    rule: Uniform | LogUniform | None = None
    with suppress(msgspec.ValidationError):
        match given:
            case "fixed":
                return None
            case {"choice": [_, *_] as values, **rest} if not rest:
                return Choice(tuple(values))
            case {"uniform": [low, high], **rest} if not rest:
                rule = msgspec.convert({"low": low, "high": high}, Uniform)
            case {"power": [low, high], **rest} if rest.keys() <= {"base", "whole"}:
                rule = msgspec.convert({"low": low, "high": high, **rest}, LogUniform)
    if rule and -math.inf < rule.low <= rule.high < math.inf and 0 < getattr(rule, "base", 1) < math.inf:
        return rule
    raise InputError(
        f"{where} has search.{key} = {short(given)}; write 'fixed', {{ power = [low, high] }}, "
        "{ uniform = [low, high] } or { choice = [values] }, with finite numbers."
    )
