"""What a protocol is: one frozen record of the rules that every run of an evaluation shares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any

from genie_dg.arguments import MOST, check_fields, option
from genie_dg.check import InputError, whole_number
from genie_dg.runs.config import EVAL_AUGMENT, ORACLES
from genie_dg.search_space import SearchRule

DRAW_RULES = ("by-name", "in-order")
"""How random hyper-parameters are made; `genie_dg.protocols.draws` says what each means."""

SMALL_IMAGES = ("RotatedMNIST", "ColoredMNIST")
"""DomainBed's own sets of small pictures; the registry of data sets says which others are."""


def check_result_name(what: str, name: str) -> None:
    """Refuse a name that cannot go into results and folders."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name):
        raise InputError(f"{what} has name = {name!r}; use letters, digits, dots, dashes and underscores.")


@dataclass(frozen=True)
class Profile:
    """One protocol.

    Args:
        name: as results carry it.
        summary: one line for listings.
        steps: by data set; ``"small"`` for sets of small pictures and ``"default"`` for all others.
        checkpoint_every: steps between evaluations, in the same way.
        eval_augment: which parts of training domains are evaluated with the training augmentation: ``"train"``
            (both), ``"train-in"`` (the 80 % that trains) or ``"none"``.
        draws: ``"by-name"`` or ``"in-order"``.
        oracle: test-domain validation looks at the ``"last"`` record of a run, or at the ``"best"``.
        backbone, pretrained, freeze_statistics, image_size: of the network, for pictures of the usual size.
        small_images: the sets that use the small-image rows of learning rate, batch size and weight decay.
        small_backbone: their network; it is not pretrained.
        hparams, trials: how many draws and how many trials a full sweep has.
        search: rules that replace those of the tables, ``None`` for "not searched". Keys are
            ``"<algorithm>.<setting>"`` or ``"<optimizer>.<setting>"``, or one of dropout, lr, batch_size and
            weight_decay for what all runs share.
        defaults: the same for default values.
        unused: for an algorithm or optimizer, rules that are drawn before its own and thrown away; they matter
            in order, where each draw moves the next.
    """

    name: str
    summary: str
    steps: Mapping[str, int]
    checkpoint_every: Mapping[str, int]
    eval_augment: str = option(MISSING, choices=EVAL_AUGMENT)
    draws: str = option(MISSING, choices=DRAW_RULES)
    oracle: str = option(MISSING, choices=ORACLES)
    backbone: str = "resnet50"
    pretrained: bool = True
    freeze_statistics: bool = True
    image_size: int = option(224, low=1)
    small_images: tuple[str, ...] = SMALL_IMAGES
    small_backbone: str = "cnn"
    hparams: int = option(20, low=1)
    trials: int = option(3, low=1)
    search: Mapping[str, SearchRule | None] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    unused: Mapping[str, Mapping[str, SearchRule]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_result_name("A protocol", self.name)
        check_fields(self)
        for key in ("steps", "checkpoint_every"):
            by_set: Mapping[str, int] = getattr(self, key)
            if "default" not in by_set:
                raise InputError(f"{self.name} has no {key} for data sets in general; name 'default', too.")
            for name, value in by_set.items():
                whole_number(f"{self.name}.{key}.{name}", value, 1, MOST)

    def is_small(self, dataset: str) -> bool:
        """Whether a set has small pictures."""
        return dataset in self.small_images

    def steps_of(self, dataset: str) -> int:
        """The length of a run on a set."""
        return self._of(self.steps, dataset)

    def checkpoint_every_of(self, dataset: str) -> int:
        """The steps between evaluations on a set."""
        return self._of(self.checkpoint_every, dataset)

    def _of(self, values: Mapping[str, int], dataset: str) -> int:
        usual = values.get("small", values["default"]) if self.is_small(dataset) else values["default"]
        return values.get(dataset, usual)

    def backbone_of(self, dataset: str) -> tuple[str, bool]:
        """The network for a set, and whether it is pretrained."""
        return (self.small_backbone, False) if self.is_small(dataset) else (self.backbone, self.pretrained)
