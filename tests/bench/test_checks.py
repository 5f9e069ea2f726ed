"""What cannot be run is refused before anything starts, for whole sweeps in a moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.bench.checks import try_out
from genie_dg.check import InputError
from genie_dg.data.domains import DomainSet
from genie_dg.data.registry import open_data
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.runs.config import RunConfig


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": "ARM", "backbone": "mlp"}, r"^ARM got a network whose first layer is Linear"),
        ({"algorithm": "MixStyle", "backbone": "mlp"}, r"^MixStyle got an activation of shape"),
        ({"algorithm": "CORAL", "batch_size": 1}, r"raise the batch size\.$"),
        ({"algorithm": "SagNet", "algorithm_settings": {"sag_point": "layer1"}}, r"^got sag_point='layer1'"),
        ({"algorithm": "SagNet", "algorithm_settings": {"sag_w_adv": "x"}}, r"^got SagNet\.sag_w_adv='x'"),
        ({"algorithm": "PCGrad", "algorithm_settings": {"surgery": "pcgard"}}, r"did you mean 'pcgrad'\?$"),
        ({"algorithm": "DANN", "algorithm_settings": {"lr_d": -1.0}}, r"^got lr_d=-1\.0; expected a number"),
        ({"optimizer": "adam", "optimizer_settings": {"beta1": 1.5}}, r"^got beta1=1\.5; expected a number"),
        ({"optimizer": "genie", "optimizer_settings": {"beta": 1.0}}, r"^got beta=1\.0; expected a number"),
        (
            {"optimizer": "genie", "optimizer_settings": {"formulation": "relased"}},
            r"did you mean 'released'\?$",
        ),
        (
            {"optimizer": "genie", "optimizer_settings": {"noise": "off"}},
            r"^got genie\.noise='off'; expected true",
        ),
        ({"optimizer": "sam", "optimizer_settings": {"base": "gam"}}, r"^got base='gam', which makes several"),
        ({"optimizer": "sam", "optimizer_settings": {"base": "adem"}}, r"did you mean 'adam'\?$"),
        ({"optimizer": "sam", "optimizer_settings": {"rho": -1.0}}, r"^got rho=-1\.0"),
        ({"backbone": "resnet51"}, r"There is no backbone 'resnet51'"),
        ({"precision": "float16", "optimizer": "adahessian"}, r"choose bfloat16 or float32\.$"),
        ({"precision": "float16", "algorithm": "Fish", "optimizer": "adam"}, r"choose bfloat16 or float32\.$"),
        ({"test_domains": (9,)}, r"^digits has no test domain 9"),
    ],
)
def test_refused_before_anything_starts(digits: DomainSet, changes: dict[str, Any], message: str) -> None:
    good = RunConfig("digits", (0,))
    try_out([good], {"digits": digits})
    with pytest.raises(InputError, match=message):
        try_out([good, replace(good, **changes)], {"digits": digits})


@pytest.mark.parametrize("backbone", ["cnn", "mlp"])
def test_what_can_run_is_not_refused(digits: DomainSet, backbone: str) -> None:
    """Every algorithm and every optimizer, except the one that needs convolutions."""
    usable = [name for name in ALGORITHMS if backbone == "cnn" or name not in ("ARM", "MixStyle")]
    configs = [RunConfig("digits", (0,), algorithm=name, backbone=backbone) for name in usable]
    configs += [RunConfig("digits", (0,), optimizer=name, backbone=backbone) for name in OPTIMIZERS]
    try_out(configs, {"digits": digits})


def test_domains_that_are_too_small_are_refused(digits: DomainSet) -> None:
    small = open_data("worn-digits")
    tiny = replace(small, domains=tuple(_Few(domain) for domain in small.domains))
    with pytest.raises(InputError, match="needs 5 or more"):
        try_out([RunConfig("WornDigits", (0,))], {"WornDigits": tiny})


class _Few:
    """A domain that says that it has three samples."""

    def __init__(self, domain: Any) -> None:
        self.domain, self.name = domain, domain.name

    def __len__(self) -> int:
        return 3

    def read(self, k: int) -> Any:
        return self.domain.read(k)
