"""GENIE's options in torch and in JAX: what they may be, with one whole sentence for what they may not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import check

FORMULATIONS = ("released", "algorithm1", "theorem")


@dataclass(frozen=True)
class UpdateRule:
    """Which parts of the update are switched on: everything that changes the code of a step."""

    formulation: str
    precondition: bool
    noise: bool
    mask: bool
    maximize: bool
    l2: bool
    shrink: bool

    @property
    def needs_kappa(self) -> bool:
        return self.formulation == "theorem" or (self.noise and self.formulation == "released")

    @property
    def needs_words(self) -> bool:
        """Random ones."""
        return self.noise or self.mask

    @staticmethod
    def of(options: Mapping[str, Any], mask: bool, decay: bool) -> UpdateRule:
        """The switches of GENIE's options, and whether there is a mask and any weight decay."""
        return UpdateRule(
            formulation=options["formulation"],
            precondition=options["precondition"],
            noise=options["noise"],
            mask=mask,
            maximize=options["maximize"],
            l2=decay and not options["decoupled_weight_decay"],
            shrink=decay and options["decoupled_weight_decay"],
        )


class OptionError(check.InputError, TypeError):
    """An option has a wrong value or type, or is unknown; so it is both a ValueError and a TypeError."""


def check_lr(lr: Any) -> float:
    """A number of at least 0."""
    return check.number("lr", lr, 0, error=OptionError)


def check_numbers(options: Mapping[str, Any]) -> None:
    """Raise for the first of these numbers that cannot be; absent ones are not looked at."""
    for name in ("beta", "dropout"):
        if name in options:
            check.number(name, options[name], 0, 1, excluding=(1,), error=OptionError)
    for name in ("noise_std", "weight_decay"):
        if name in options:
            check.number(name, options[name], 0, error=OptionError)


def check_formulation(formulation: Any, allowed: Sequence[str] = FORMULATIONS) -> str:
    """One of the formulations."""
    return check.one_of("formulation", formulation, allowed, error=OptionError)


def check_seed(seed: Any) -> int:
    """Any whole number, below 0 too."""
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise OptionError(f"got seed={check.short(seed)}; expected a whole number.")
    return seed


def check_switches(options: Mapping[str, Any], names: Sequence[str]) -> None:
    """True or False for each of these."""
    for name in names:
        check.boolean(name, options[name], error=OptionError)
