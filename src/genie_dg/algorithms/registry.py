"""The table of algorithms: one row each, open to the user's own."""

from __future__ import annotations

from genie_dg.registry import Registry

from . import (
    and_mask,
    arm,
    cdann,
    coral,
    dann,
    erm,
    fish,
    fishr,
    groupdro,
    gsnr_dropout,
    iga,
    irm,
    miro,
    mixstyle,
    mixup,
    mldg,
    mmd,
    mtl,
    rsc,
    sagnet,
    sand_mask,
    vrex,
)
from ._base import AlgorithmRow

_MODULES = (
    erm,
    irm,
    groupdro,
    mixup,
    mldg,
    mmd,
    coral,
    dann,
    cdann,
    mtl,
    sagnet,
    arm,
    vrex,
    rsc,
    mixstyle,
    miro,
    fish,
    fishr,
    and_mask,
    sand_mask,
    iga,
    gsnr_dropout,
)

ALGORITHMS = Registry("algorithm", [module.ROW for module in _MODULES], AlgorithmRow, "genie_dg.algorithms")
"""By name, in the order of listings. ``ALGORITHMS.register(AlgorithmRow(...))`` adds one."""
