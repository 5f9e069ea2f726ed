"""The claims of the ledger: what the paper says, how it is measured here, and what would change the verdict.

Claims about tables and figures are in ``published/claims.csv``, those about the theory and the dynamics of
training in ``theory_claims.csv`` beside this module.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .published import lines_of
from .verdict import Side

About = Literal["theory", "dynamics", "training", "time"]


@dataclass(frozen=True)
class Claim:
    """One claim.

    Args:
        name: short, for the JSON.
        says: what the paper says.
        where: section, table or figure.
        how: how it is measured here.
        side: on which side of the threshold the number must lie.
        threshold: of the claim.
        unit: of the number.
        paper: the command that measures it at the paper's scale.
        change: what would change the verdict, in one line.
        about: theory (exact, or on a toy problem), dynamics (of small networks), training or time (of a step).
    """

    name: str
    says: str
    where: str
    how: str
    side: Side
    threshold: float
    unit: str
    paper: str
    change: str
    about: About


TRAIN = "genie-dg train {data} --root ROOT --test-domain {test} --optimizer {optimizer} --backbone resnet50 \
--pretrained --steps 5001 --every 200 --trial 0"


def _pair(*optimizers: str, data: str = "PACS", test: str = "sketch", more: str = "") -> str:
    """A command for each optimizer; a user repeats them for every test domain and trials 0 to 2."""
    return "\n".join(TRAIN.format(data=data, test=test, optimizer=o) + more for o in optimizers)


FIGURE = "python -m paper {name} --scale paper --root ROOT"
SGD, SAM = "sgd --set lr=5e-5 --set momentum=0", "sam --set base=sgd --set lr=5e-5"
"""As in the authors' logs."""
ALL = (SGD, "adam", SAM, "genie")
FIVE = ("adam", "adamw", SGD, SAM, "genie")
PRE = "genie --set noise=false --set dropout=0.0"
THEORY = "python -m paper claims --scale cpu"

COMMANDS = {
    "accuracy": _pair(*ALL),
    "osgr": FIGURE.format(name="osgr"),
    "osgr-preconditioner": FIGURE.format(name="osgr"),
    "balance": FIGURE.format(name="heatmap"),
    "balance-group": FIGURE.format(name="heatmap"),
    "class-separation": FIGURE.format(name="umap"),
    "cost": _pair(*ALL),
    "preconditioning": _pair("adam", PRE),
    "noise-and-mask": _pair("genie", PRE),
    "robust": _pair(*(f"genie --set dropout={p} --set beta={b}" for p in (0.1, 0.7) for b in (0.9, 0.99))),
    "algorithms": "\n".join(_pair(*FIVE, more=f" --algorithm {name}") for name in ("CORAL", "RSC")),
    "theorem-accuracy": _pair("genie", "adam", "genie --set formulation=theorem --set scale_free=true"),
    "scale-free": _pair("genie", "adam", "genie --set scale_free=true"),
    "one-source": _pair(*FIVE, test="art_painting --test-domain cartoon --test-domain photo"),
}
"""What measures a claim at the paper's scale; for the others, about theory, the scale does not matter."""

REGIME = "Pretrained weights and the published sets: the paper's regime."

CHANGES = {
    "osgr": "More draws or more trials: one step's gain is a small difference of two noisy losses.",
    "osgr-preconditioner": "Longer averages or larger batches, so that the trust is known better.",
    "osgr-always": "Nothing: one counterexample refutes a statement about all gradients.",
    "balance": "A rule that enlarges small gradients, as Adam's division does.",
    "cost": "Another device or network: the update's share of a step shrinks as the network's work grows.",
    "rate": "Another problem, or longer horizons: algorithm1 hardly leaves the start in short runs.",
    "pac-bayes": "Nothing: it is an identity.",
    "pac-bayes-moving": "Nothing: with the next point moving along the gradient is 0.",
    "theorem-osgr": "A network whose weights of high GSNR have low variance.",
    "theorem-balance": "Another network; other moments.",
    "scale-free": "A margin wider than 2 points, or more trials.",
}
"""What would change the verdicts of the claims in ``published/claims.csv``; of the others, `REGIME` would."""


def _own_lines() -> list[dict[str, Any]]:
    text = (Path(__file__).parent / "theory_claims.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def _claim(line: dict[str, Any]) -> Claim:
    name = line["name"]
    values = {"change": CHANGES.get(name, REGIME), **line, "threshold": float(line["threshold"])}
    return Claim(**values, paper=COMMANDS.get(name, THEORY))


CLAIMS = tuple(map(_claim, [*lines_of("claims.csv"), *_own_lines()]))
"""All claims."""
