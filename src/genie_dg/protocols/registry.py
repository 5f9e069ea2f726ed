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

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from genie_dg.check import InputError, did_you_mean
from genie_dg.registry import Registry
from genie_dg.search_space import (
    EXPECTED,
    Choice,
    LogUniform,
    Rule,
    Setting,
    Uniform,
    kind_of_setting,
    value_from,
)

from ._profile import Profile
from .domainbed import DOMAINBED, DOMAINBED_2024
from .draws import LARGE, Searched
from .genie_paper import GENIE_PAPER
from .toml_file import check_keys, check_kind, read_toml

PROTOCOLS = Registry("protocol", (DOMAINBED, DOMAINBED_2024, GENIE_PAPER), Profile, "genie_dg.protocols")
"""By name. ``PROTOCOLS.register(Profile(...))`` adds one."""

FIELDS = {
    "summary": "text",
    "backbone": "text",
    "small_backbone": "text",
    "pretrained": "true or false",
    "freeze_statistics": "true or false",
    "image_size": "whole number",
    "eval_augment": "text",
    "draws": "text",
    "oracle": "text",
    "hparams": "whole number",
    "trials": "whole number",
}
"""The plain fields a file may set, and their kinds."""

KEYS = ("name", "base", *FIELDS, "small_images", "steps", "checkpoint_every", "search", "defaults")
RULES = ("power", "uniform", "choice")


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
    path = Path(path)
    given = read_toml(path, InputError)
    where = str(path)
    check_keys(where, given, KEYS, InputError)
    for key in ("name", "base"):
        if key not in given:
            raise InputError(f"{where} has no {key!r}; a protocol has a name, and a base to start from.")
        check_kind(where, key, given[key], "text", InputError)
    name, base = given["name"], PROTOCOLS[given["base"]]
    if name in PROTOCOLS:
        raise InputError(f"{where} is named {name!r}, as another protocol is; choose another name.")
    changes: dict[str, Any] = {"name": name, "summary": f"{base.name}, changed"}
    for key in FIELDS.keys() & given.keys():
        check_kind(where, key, given[key], FIELDS[key], InputError)
        changes[key] = given[key]
    if "small_images" in given:
        changes["small_images"] = _names(where, given["small_images"])
    for key in {"steps", "checkpoint_every"} & given.keys():
        changes[key] = _by_set(where, key, given[key], getattr(base, key))
    for key in {"search", "defaults"} & given.keys():
        check_kind(where, key, given[key], "table", InputError)
    rules = {key: _rule(where, key, value) for key, value in _flat(given.get("search", {})).items()}
    changes["search"] = {**base.search, **rules}
    changes["defaults"] = {**base.defaults, **_defaults(where, _flat(given.get("defaults", {})))}
    return replace(base, **changes)


def fitted(profile: Profile, algorithms: Mapping[str, Searched], optimizers: Mapping[str, Searched]) -> Profile:
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


def _fitted_rule(where: str, key: str, setting: Setting, rule: Rule | None) -> Rule | None:
    """A rule whose values are of the setting's kind."""
    if isinstance(rule, Choice):
        return Choice(tuple(value_from(where, key, setting, value) for value in rule.values))
    kind = kind_of_setting(setting)
    if isinstance(rule, Uniform | LogUniform):
        if kind not in ("number", "whole number"):
            raise InputError(
                f"The protocol {where} draws {key!r} as a number, and it is {EXPECTED[kind]}; write 'fixed' or "
                "{ choice = [values] }."
            )
        return replace(rule, whole=True) if kind == "whole number" else rule
    return rule


def _names(where: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise InputError(f"{where} has small_images = {value!r}; it must be a list of names of data sets.")
    return tuple(value)


def _by_set(where: str, key: str, value: Any, base: Mapping[str, int]) -> dict[str, int]:
    """One number for all sets, or a table that is put over the base's."""
    if not isinstance(value, Mapping):
        check_kind(where, key, value, "whole number", InputError)
        return {"default": value}
    for name, number in value.items():
        check_kind(where, f"{key}.{name}", number, "whole number", InputError)
    return {**base, **value}


def _flat(table: Mapping[str, Any]) -> dict[str, Any]:
    """``adam.lr = ...``, which TOML reads as a table in a table, and ``"adam.lr" = ...`` mean the same."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and not value.keys() & set(RULES):
            found.update({f"{key}.{inner}": rule for inner, rule in value.items()})
        else:
            found[key] = value
    return found


def _defaults(where: str, given: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in given.items():
        if isinstance(value, (list, Mapping)):
            raise InputError(f"{where} has defaults.{key} = {value!r}; it must be a single value.")
        if isinstance(value, float):
            check_kind(where, f"defaults.{key}", value, "number", InputError)
    return dict(given)


def _rule(where: str, key: str, value: Any) -> Rule | None:
    """A rule as a file writes it."""
    if value == "fixed":
        return None
    form = (
        f"{where} has search.{key} = {value!r}; write 'fixed', {{ power = [low, high] }}, "
        "{ uniform = [low, high] } or { choice = [values] }."
    )
    if not isinstance(value, Mapping):
        raise InputError(form)
    words = [word for word in RULES if word in value]
    extra = set(value) - set(words) - ({"base", "whole"} if words == ["power"] else set())
    if len(words) != 1 or extra or not isinstance(value[words[0]], list):
        raise InputError(form)
    numbers: list[Any] = value[words[0]]
    if words == ["choice"]:
        if not numbers:
            raise InputError(form)
        return Choice(tuple(numbers))
    for number in [*numbers, value.get("base", 10.0)]:
        check_kind(where, f"search.{key}", number, "number", InputError)
    check_kind(where, f"search.{key}.whole", value.get("whole", False), "true or false", InputError)
    if len(numbers) != 2 or numbers[0] > numbers[1] or value.get("base", 10.0) <= 0:
        raise InputError(form)
    low, high = numbers
    if words == ["uniform"]:
        return Uniform(low, high)
    return LogUniform(low, high, base=float(value.get("base", 10.0)), whole=value.get("whole", False))
