"""The registry of algorithms: one row each, open to the user's own."""

from __future__ import annotations

from importlib import import_module

from genie_dg.registry import Registry

from .algorithm import AlgorithmRow

_MODULES = (
    "erm", "irm", "groupdro", "mixup", "mldg", "mmd", "coral", "dann", "cdann", "mtl", "sagnet", "arm", "vrex",
    "rsc", "mixstyle", "miro", "fish", "fishr", "and_mask", "sand_mask", "iga", "gsnr_dropout",
)  # fmt: skip
"""In the order of listings; each module has a ROW."""

ALGORITHMS = Registry(
    "algorithm",
    [import_module(f"{__package__}.{module}").ROW for module in _MODULES],
    AlgorithmRow,
    "genie_dg.algorithms",
)
"""By name, in the order of listings. ``ALGORITHMS.register(AlgorithmRow(...))`` adds one."""
