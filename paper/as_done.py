"""What the authors did, as sweeps: the settings that their logs name, where they are not what should be done.

The files are under ``experiments/as-done``. What these sweeps gave the authors is the origin *logged*
(`paper.logged`); running them again is a replication, while ``experiments/*.toml`` measure what the
tables are about. Three differ:

- the table of times: GENIE had, for each domain left out, the draw that was best, with its batch;
- the ablation: the variants of GENIE were run once, with those same draws;
- the figure of p and beta: one run a domain and value. Their trials were 1, 1, 0 and 2 for the four domains;
  here it is 0 for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from genie_dg.protocols.sweep import SweepConfig

from .experiments import AUTHORS, BETA, PROTOCOL, P, to_toml

FOLDER = "as-done"
LONG = {"steps": 15001, "checkpoint_every": 200}
"""Of the table of times."""


@dataclass(frozen=True)
class BestDraw:
    """The draw with which GENIE's numbers of the table of times and of the ablation were made."""

    dataset: str
    test_domain: int
    trial: int
    draw: int


BEST_DRAWS = tuple(
    BestDraw(dataset, domain, *seeds)
    for dataset, several in {
        "PACS": ((2, 9), (1, 12), (0, 16), (0, 18)),
        "VLCS": ((1, 0), (1, 2), (2, 10), (0, 18)),
        "OfficeHome": ((2, 10), (1, 9), (0, 15), (0, 20)),
    }.items()
    for domain, seeds in enumerate(several)
)
"""By data set and domain left out; ``runs.csv`` of the logs has what they draw."""

VARIANTS: dict[str, dict[str, Any]] = {
    "all-on": {},
    "only-precondition": {"noise": False, "dropout": 0.0},
    "precondition-and-noise": {"noise": True, "dropout": 0.0},
    "precondition-and-mask": {"noise": False},
}
"""Of the ablation."""


def as_done(experiment: str) -> Iterator[SweepConfig]:
    """The sweeps of an experiment as the authors did it; none where that is not known to differ."""
    for sweep in _sweeps(experiment):
        yield replace(sweep, name=f"{FOLDER}-{sweep.name}")  # another than that of what should be done


def _sweeps(experiment: str) -> Iterator[SweepConfig]:
    if experiment == "iterations":
        yield SweepConfig(
            "iterations-others", PROTOCOL, ["PACS", "VLCS", "OfficeHome"], ["ERM"], ["sgd", "adam", "sam"],
            hparams=1, trials=1, overrides=LONG, optimizer_settings=AUTHORS,
        )  # fmt: skip
        for best in BEST_DRAWS:
            yield _with_draw(f"iterations-genie-{best.dataset}-{best.test_domain}", best, LONG, {})
    elif experiment == "ablation":
        for variant, settings in VARIANTS.items():
            for best in BEST_DRAWS[:4]:
                yield _with_draw(f"ablation-{variant}-{best.test_domain}", best, {}, settings)
    elif experiment == "sensitivity":
        for name, values in (("dropout", P), ("beta", BETA)):
            for value in values:
                settings = {"genie": {"lr": 0.015, "dropout": 0.4, "beta": 0.95, name: value}}
                short = "p" if name == "dropout" else name
                yield SweepConfig(
                    f"sensitivity-{short}-{value}", PROTOCOL, ["OfficeHome"], ["ERM"], ["genie"],
                    hparams=1, trials=1, optimizer_settings=settings,
                )  # fmt: skip


def _with_draw(name: str, best: BestDraw, overrides: dict[str, int], settings: dict[str, Any]) -> SweepConfig:
    return SweepConfig(
        name, PROTOCOL, [best.dataset], ["ERM"], ["genie"], [[best.test_domain]], [best.draw], [best.trial],
        overrides, optimizer_settings={"genie": settings} if settings else {},
    )  # fmt: skip


def committed_as_done(experiment: str) -> dict[str, str]:
    """The files of an experiment under ``experiments/as-done``: their names and texts."""
    texts = {}
    for sweep in as_done(experiment):
        name = f"{sweep.name.removeprefix(f'{FOLDER}-')}.toml"
        command = f"genie-dg sweep experiments/{FOLDER}/{name} --root DATA"
        texts[name] = to_toml(sweep, f"As the authors did it, by their logs.\n{command}")
    return texts
