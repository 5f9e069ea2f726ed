"""GENIE's options in torch and in JAX: what they may be, with one whole sentence for what they may not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import check


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
        decoupled = options["decoupled_weight_decay"]
        formulation, precondition, noise = (options[name] for name in ("formulation", "precondition", "noise"))
        l2, shrink = decay and not decoupled, decay and decoupled
        return UpdateRule(formulation, precondition, noise, mask, options["maximize"], l2, shrink)


class OptionError(check.InputError, TypeError):
    """An option has a wrong value or type, or is unknown; so it is both a ValueError and a TypeError."""


def check_options(options: Mapping[str, Any], switches: Sequence[str], formulations: Sequence[str]) -> None:
    """Raise, in a whole sentence, for the first option that cannot be; absent ones are not looked at."""
    for name in ("lr", "noise_std", "weight_decay"):
        if name in options:
            check.number(name, options[name], 0, error=OptionError)
    for name in ("beta", "dropout"):
        if name in options:
            check.number(name, options[name], 0, 1, excluding=(1,), error=OptionError)
    check.one_of("formulation", options["formulation"], formulations, error=OptionError)
    check_seed(options.get("seed", 0))
    for name in switches:
        check.boolean(name, options[name], error=OptionError)


def check_seed(seed: Any) -> int:
    """Any whole number, below 0 too."""
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise OptionError(f"got seed={check.short(seed)}; expected a whole number.")
    return seed
