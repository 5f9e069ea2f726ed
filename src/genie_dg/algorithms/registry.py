"""The registry of algorithms: one row each, open to the user's own."""

from __future__ import annotations

from genie_dg.registry import Registry

# isort: off
from . import (
    adrmx, adversarial, alignment, arm, cad, eqrm, erm, erm_plus_plus, fish, fishr, groupdro, iga,
    information_bottleneck, masks, miro, mixstyle, mixup, mldg, mtl, pcgrad, rdm, risk_penalties, rsc,
    sagnet, sd, selfreg, transfer, trm, urm,
)  # fmt: skip

# isort: on
from .algorithm import AlgorithmRow

ALGORITHMS = Registry(
    "algorithm",
    [
        erm.ROW, risk_penalties.IRM_ROW, groupdro.ROW, mixup.ROW, mldg.ROW, alignment.MMD_ROW,
        alignment.CORAL_ROW, adversarial.DANN_ROW, adversarial.CDANN_ROW, mtl.ROW, sagnet.ROW, arm.ROW,
        risk_penalties.VREX_ROW, rsc.ROW, mixstyle.ROW, miro.ROW, fish.ROW, fishr.ROW, masks.AND_ROW,
        masks.SAND_ROW, iga.ROW, sd.ROW, selfreg.ROW, trm.ROW, information_bottleneck.IB_ERM_ROW,
        information_bottleneck.IB_IRM_ROW, cad.CAD_ROW, cad.COND_CAD_ROW, transfer.ROW,
        alignment.CAUSIRL_CORAL_ROW, alignment.CAUSIRL_MMD_ROW, eqrm.ROW, rdm.ROW, adrmx.ROW, urm.ROW,
        erm_plus_plus.ROW, pcgrad.ROW, masks.GSNR_DROPOUT_ROW,
    ],
    AlgorithmRow,
    "genie_dg.algorithms",
)  # fmt: skip
"""By name, in the order of listings. ``ALGORITHMS.register(AlgorithmRow(...))`` adds one."""
