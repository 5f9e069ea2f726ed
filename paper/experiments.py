"""The sweeps behind each table of the paper, at each scale, as data.

A file ``experiments/<name>.toml`` is `to_toml` of a sweep at scale ``paper``: what should be done to measure
what the table is about. ``experiments/as-done`` has what the authors did instead, by their logs:

- the table of times: GENIE had, for each domain left out, the draw that was best, with its batch;
- the ablation: the variants of GENIE were run once, with those same draws;
- the figure of p and beta: one run a domain and value. Their trials were 1, 1, 0 and 2 for the four domains;
  the files have 0 for all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from genie_dg.check import one_of
from genie_dg.data.published.catalog import PUBLISHED as SETS
from genie_dg.protocols.genie_paper import GENIE_PAPER
from genie_dg.protocols.sweep import SweepConfig

from .request import SCALES, PaperError, Scale

PROTOCOL = "genie-paper"
EMBEDDED: dict[Scale, str] = {"smoke": "digits", "cpu": "styleshapes"}
"""The set of a scale when the user names none."""

OVERRIDES: dict[Scale, dict[str, Any]] = {
    "smoke": {"backbone": "mlp", "pretrained": False, "batch_size": 8, "steps": 7, "checkpoint_every": 6},
    "cpu": {
        "backbone": "efficientnet_lite0", "pretrained": True, "image_size": 64, "batch_size": 8, "steps": 61,
        "checkpoint_every": 30,
    },
    "paper": {},
}  # fmt: skip
"""What a scale changes of the protocol."""

Settings = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Grid:
    """One sweep of an experiment: its algorithms times its optimizers.

    Args:
        suffix: after the name of the experiment; empty for the first sweep.
        settings: of optimizers, instead of what is drawn.
        row: what its rows are called, by optimizer, where the optimizer's name does not say it.
        scales: where it is run.
        only_on: sets; any when empty.
    """

    suffix: str
    algorithms: tuple[str, ...]
    optimizers: tuple[str, ...]
    settings: Settings = field(default_factory=dict)
    row: Mapping[str, str] = field(default_factory=dict)
    scales: tuple[Scale, ...] = SCALES
    only_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Miniature:
    """What scale ``cpu`` runs of an experiment in place of pictures, for several trials in minutes.

    Args:
        data: an embedded set, on a perceptron from random weights with `DIGITS_RATES`.
        trials: for standard errors.
        steps: with those between evaluations.
        levels: the steps at which results are read; empty for the end.
    """

    data: str
    trials: int
    steps: tuple[int, int]
    levels: tuple[int, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """The sweeps of one table.

    Args:
        name: as the command line calls it.
        about: a sentence for the top of the file.
        datasets: at scale ``paper``.
        draws: by scale; ``None`` is the protocol's 20.
        trials: by scale; ``None`` is the protocol's 3.
        task: which domains are tested on.
        steps: by scale the steps and those between evaluations, where they are not the protocol's.
        levels: by scale the steps at which results are read; empty for the end.
        miniature: what scale ``cpu`` runs unless the user names another set.
    """

    name: str
    about: str
    datasets: tuple[str, ...]
    grids: tuple[Grid, ...]
    draws: Mapping[Scale, int | None]
    trials: Mapping[Scale, int | None]
    task: str = "leave-one-out"
    steps: Mapping[Scale, tuple[int, int]] = field(default_factory=dict)
    levels: Mapping[Scale, tuple[int, ...]] = field(default_factory=dict)
    miniature: Miniature | None = None

    def set_of(self, scale: Scale, data: str = "") -> str:
        """The set that was asked for, or the one of the scale; empty for the published ones."""
        if not data and scale == "cpu" and self.miniature is not None:
            return self.miniature.data
        return data or EMBEDDED.get(scale, "")

    def miniature_of(self, scale: Scale, data: str = "") -> Miniature | None:
        """The miniature where it is what is run."""
        mini = self.miniature
        return mini if mini is not None and scale == "cpu" and data in ("", mini.data) else None

    def levels_of(self, scale: Scale, data: str = "") -> tuple[int, ...]:
        """The steps at which results are read."""
        mini = self.miniature_of(scale, data)
        return self.levels.get(scale, ()) if mini is None else mini.levels


FOUR = ("PACS", "VLCS", "OfficeHome", "TerraIncognita")
TUNED: dict[Scale, int | None] = {"smoke": 1, "cpu": 2, "paper": None}
DEFAULTS: dict[Scale, int | None] = {"smoke": 1, "cpu": 1, "paper": 1}
TRIALS: dict[Scale, int | None] = {"smoke": 1, "cpu": 1, "paper": None}
TWICE: dict[Scale, int | None] = {**TRIALS, "cpu": 2}
"""For a standard error where the miniature can afford one."""
AUTHORS: Settings = {"sgd": {"lr": 5e-5, "momentum": 0.0}, "sam": {"base": "sgd", "lr": 5e-5, "rho": 0.05}}
"""What the authors' runs of SGD and SAM had, in the table of times and with one source."""
AUTHORS_SAM: Settings = {"sam": AUTHORS["sam"]}
OPTIMIZERS = ("adam", "adamw", "sgd", "yogi", "adabelief", "adahessian", "sam", "gam", "fad", "genie")
ALGORITHMS = "ERM IRM GroupDRO Mixup MLDG MMD DANN CDANN MTL SagNet ARM VREx MixStyle MIRO"
P, BETA = (0.0, 0.2, 0.4, 0.6, 0.8), (0.9, 0.95, 0.99, 0.995, 0.999)
"""Around the defaults 0.4 and 0.95. The paper prints no values of its grid; these are those of the logs."""
TINY = (0.0, 0.4, 0.9, 0.95)
"""The values at the scale smoke."""
SMALL_BATCH: dict[str, Any] = {"backbone": "mlp", "pretrained": False, "batch_size": 8}
"""What the miniatures change of the protocol, besides the steps."""
DIGITS_RATES: Settings = {
    "sgd": {"lr": 0.1, "momentum": 0.0},
    "adam": {"lr": 0.001},
    "sam": {"base": "sgd", "lr": 0.1, "rho": 0.05},
    "genie": {"lr": 0.3},
}
"""For small networks from random weights: of five or six on digits, the best that never diverged."""


def _switched(suffix: str, row: str, **settings: Any) -> Grid:
    """GENIE with some of its three parts."""
    return Grid(suffix, ("ERM",), ("genie",), {"genie": settings}, {"genie": row})


def _point(name: str, value: float) -> Grid:
    """GENIE with one of p and beta at a value; the scale smoke has fewer values."""
    settings = {"lr": 0.015, "dropout": 0.4, "beta": 0.95, "dropout" if name == "p" else "beta": value}
    scales = SCALES if value in TINY else SCALES[1:]
    row = {"genie": f"GENIE {name}={value}"}
    return Grid(f"{name}-{value}", ("ERM",), ("genie",), {"genie": settings}, row, scales)


def _cell(p: float, beta: float) -> Grid:
    """GENIE with p and beta off the two lines of the figure; on digits alone, where runs are cheap."""
    settings = {"lr": 0.015, "dropout": p, "beta": beta}
    scales = SCALES[:2] if p in TINY and beta in TINY else SCALES[1:2]
    row = {"genie": f"GENIE p={p} beta={beta}"}
    return Grid(f"p-{p}-beta-{beta}", ("ERM",), ("genie",), {"genie": settings}, row, scales, ("digits",))


EXPERIMENTS: dict[str, Experiment] = {e.name: e for e in (
    Experiment(
        "optimizers",
        "Ten optimizers under ERM (the paper's main table, and its tables for each data set).",
        (*FOUR, "DomainNet"), (Grid("", ("ERM",), OPTIMIZERS),), TUNED, TRIALS,
    ),
    Experiment(
        "iterations",
        "Time and accuracy after 5,000, 10,000 and 15,000 steps of one run with default hyper-parameters.\n"
        "As it should be done: every optimizer has 32 pictures of a domain, or times do not compare.\n"
        "SGD and SAM are set as the authors had them; their GENIE had drawn settings, and batches of\n"
        "13 to 38 (as-done).",
        FOUR[:3], (Grid("", ("ERM",), ("sgd", "adam", "sam", "genie"), AUTHORS),), DEFAULTS, DEFAULTS,
        steps={"smoke": (7, 2), "cpu": (121, 40), "paper": (15001, 200)},
        levels={"smoke": (2, 4, 6), "cpu": (40, 80, 120), "paper": (5000, 10000, 15000)},
        miniature=Miniature("digits", 3, (151, 50), (50, 100, 150)),
    ),
    Experiment(
        "integration",
        "GENIE and other optimizers inside DG algorithms.\n"
        "SAM, which is not in the paper's table, has the base and the rate of the authors' other runs.",
        FOUR,
        (
            Grid("", ("ERM", "RSC", "CORAL"), ("adam", "adamw", "sgd", "genie")),
            Grid("sam", ("RSC", "CORAL"), ("sam",), AUTHORS_SAM, scales=("paper",)),
            Grid("algorithms", tuple(ALGORITHMS.split()), ("adam",), scales=("paper",)),
        ),
        TUNED, TRIALS,
    ),
    Experiment(
        "single-source",
        "Train on one domain, test on the others. CORAL has then nothing to align and equals ERM.\n"
        "SAM has the base and the rate of the authors' runs; AdamW is not in their table.",
        FOUR,
        (
            Grid("", ("ERM", "RSC", "CORAL"), ("adam", "sgd", "genie")),
            Grid("sam", ("ERM",), ("sam",), AUTHORS_SAM, scales=("paper",)),
            Grid("sam", ("ERM",), ("sam",), scales=SCALES[:2]),
            Grid("adamw", ("ERM",), ("adamw",), scales=("paper",)),
        ),
        TUNED, TRIALS, task="single-source",
    ),
    Experiment(
        "ablation",
        "GENIE with preconditioning, noise and mask switched off; without all three the paper takes Adam.\n"
        "As it should be done: every variant is tuned, with three trials. The authors ran each once, with the\n"
        "draws that were best for the full rule (as-done), and took Adam's row from another paper.",
        ("PACS",),
        (
            Grid("", ("ERM",), ("adam", "genie"), {}, {"adam": "none", "genie": "precondition+noise+mask"}),
            _switched("only-precondition", "precondition", noise=False, dropout=0.0),
            _switched("precondition-and-noise", "precondition+noise", noise=True, dropout=0.0),
            _switched("precondition-and-mask", "precondition+mask", noise=False),
            _switched("all-off", "GENIE, all three off", precondition=False, noise=False, dropout=0.0),
        ),
        TUNED, TWICE,
    ),
    Experiment(
        "sensitivity",
        "GENIE's p at beta 0.95 and its beta at p 0.4, all else at the defaults, beside other optimizers.\n"
        "As it should be done: three trials. The authors ran each value once a domain (as-done).\n"
        "SGD and SAM are set as the authors had them.",
        ("OfficeHome",),
        (
            Grid("", ("ERM",), ("sgd", "adam", "sam"), AUTHORS, scales=("paper",)),
            Grid("", ("ERM",), ("sgd", "adam", "sam"), scales=SCALES[:2]),
            *(_point("p", value) for value in P),
            *(_point("beta", value) for value in BETA),
            *(_cell(p, beta) for p in P for beta in BETA if p != 0.4 and beta != 0.95),
        ),
        DEFAULTS, TRIALS, miniature=Miniature("digits", 3, (121, 40)),
    ),
)}  # fmt: skip
"""By name."""


def sweep_name(experiment: Experiment, grid: Grid) -> str:
    """The name of a sweep, and of its file."""
    return f"{experiment.name}-{grid.suffix}" if grid.suffix else experiment.name


def sweeps(
    experiment: Experiment, scale: Scale, data: str = "", domains: int = 0
) -> list[tuple[Grid, SweepConfig]]:
    """The sweeps of an experiment.

    Args:
        experiment: of which.
        scale: how large.
        data: a set or a folder instead of the scale's own.
        domains: how many that set has; scale ``smoke`` tests on the first two only.
    """
    one_of("scale", scale, SCALES, PaperError)
    chosen, mini = experiment.set_of(scale, data), experiment.miniature_of(scale, data)
    datasets = [chosen] if chosen else list(experiment.datasets)
    overrides = dict(OVERRIDES[scale]) if mini is None else dict(SMALL_BATCH)
    steps = experiment.steps.get(scale) if mini is None else mini.steps
    if steps is not None:
        overrides["steps"], overrides["checkpoint_every"] = steps
    task: str | list[list[str | int]] = experiment.task
    if scale == "smoke":
        single = experiment.task == "single-source"
        task = [[k for k in range(domains) if (k == one) != single] for one in (0, 1)]
    draws, trials = experiment.draws[scale], experiment.trials[scale] if mini is None else mini.trials
    return [
        (
            grid,
            SweepConfig(
                sweep_name(experiment, grid), PROTOCOL, datasets, list(grid.algorithms), list(grid.optimizers),
                task, draws, trials, overrides, {}, grid.settings if mini is None else _at_small_rates(grid),
            ),
        )
        for grid in experiment.grids
        if scale in grid.scales and (not grid.only_on or chosen in grid.only_on)
    ]  # fmt: skip


def _at_small_rates(grid: Grid) -> Settings:
    """The settings of a sweep with the rates of the miniatures in place of the published ones."""
    return {name: {**grid.settings.get(name, {}), **DIGITS_RATES[name]} for name in grid.optimizers}


def runs_of(sweep: SweepConfig) -> int:
    """How many runs a sweep of published sets has, from what is known of the sets alone.

    >>> runs_of(sweeps(EXPERIMENTS["optimizers"], "paper")[0][1])
    13200
    """
    unknown = [name for name in sweep.datasets if name not in SETS]
    if unknown:
        raise PaperError(f"Got the data set {unknown[0]!r}; expected a published one: {', '.join(SETS)}.")
    draws = GENIE_PAPER.hparams if sweep.hparams is None else sweep.hparams
    trials = GENIE_PAPER.trials if sweep.trials is None else sweep.trials
    assert isinstance(draws, int)
    assert isinstance(trials, int)
    domains = sum(len(SETS[name].domains) for name in sweep.datasets)
    return domains * len(sweep.algorithms) * len(sweep.optimizers) * draws * trials


KEYS = ("name", "protocol", "datasets", "algorithms", "optimizers", "test_domains", "hparams", "trials")
"""Of a sweep's file, above its sections."""


def to_toml(sweep: SweepConfig, comment: str) -> str:
    """A sweep as the text of a file that `genie-dg sweep` runs."""
    lines = [f"# {line}" for line in comment.splitlines()]
    for key in KEYS:
        value = getattr(sweep, key)
        if value is not None:
            lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    sections = {"overrides": sweep.overrides}
    sections |= {f"optimizer_settings.{name}": settings for name, settings in sweep.optimizer_settings.items()}
    for name, section in sections.items():
        if section:
            lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in section.items())]
    return "\n".join(lines) + "\n"
