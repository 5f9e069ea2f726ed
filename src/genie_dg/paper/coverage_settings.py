"""The settings of the paper as this package has them, spelled as ``published/items.csv`` spells them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from genie_dg.data.published.catalog import PUBLISHED as SETS
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.protocols.draws import LARGE
from genie_dg.protocols.genie_paper import GENIE_PAPER
from genie_dg.results.select import METHODS
from genie_dg.search_space import Choice, LogUniform, Setting

from .experiments import EXPERIMENTS
from .fig_landscape import START, STEPS
from .published import PRINTED


def spelled(setting: Setting) -> str:
    """A default and how values are drawn.

    >>> spelled(Setting(32, LogUniform(3, 5.5, base=2.0, whole=True)))
    '32, 2^U(3, 5.5)'
    >>> spelled(Setting(0.0, Choice((0.0, 0.5))))
    '0.0, one of 0.0 0.5'
    """
    rule = setting.rule
    if isinstance(rule, LogUniform):
        return f"{setting.default}, {rule.base:g}^U({rule.low:g}, {rule.high:g})"
    if isinstance(rule, Choice):
        return f"{setting.default}, one of {' '.join(map(str, rule.values))}"
    return f"{setting.default}, not searched"


def _weight_decay() -> str:
    """GENIE's: a protocol may say that it is not searched."""
    setting = OPTIMIZERS["genie"].space["weight_decay"]
    searched = GENIE_PAPER.search.get("genie.weight_decay", setting.rule)
    return spelled(Setting(setting.default, searched))


def _set(name: str) -> str:
    """Domains, classes and pictures; a set that exists in several versions has several counts."""
    row = SETS[name]
    totals = [count if isinstance(count, int) else sum(count) for count in row.variants.values()]
    pictures = " or ".join(map(str, totals))
    return f"{len(row.domains)} domains, {row.class_count} classes, {pictures} pictures"


def _algorithms() -> str:
    """Those that are run with GENIE inside."""
    grids = EXPERIMENTS["integration"].grids
    inside = [name for grid in grids if "genie" in grid.optimizers for name in grid.algorithms]
    return " ".join(name for name in inside if name != "ERM")


def _optimizers() -> str:
    return " ".join(PRINTED[name] for name in EXPERIMENTS["optimizers"].grids[0].optimizers)


SETTINGS: dict[str, Callable[[], str]] = {
    "datasets": lambda: " ".join(EXPERIMENTS["optimizers"].datasets),
    "steps": lambda: str(GENIE_PAPER.steps_of("PACS") - 1),
    "steps-domainnet": lambda: str(GENIE_PAPER.steps_of("DomainNet") - 1),
    "selection": lambda: METHODS[0],
    "draws": lambda: str(GENIE_PAPER.hparams),
    "trials": lambda: str(GENIE_PAPER.trials),
    "backbone": lambda: GENIE_PAPER.backbone + (", pretrained" if GENIE_PAPER.pretrained else ""),
    "optimizers": _optimizers,
    "algorithms": _algorithms,
    "landscape": lambda: f"{STEPS} from ({START[0]:g} {START[1]:g})",
    "batch": lambda: spelled(LARGE["batch_size"]),
    "lr": lambda: spelled(OPTIMIZERS["genie"].space["lr"]),
    "dropout": lambda: spelled(LARGE["dropout"]),
    "weight-decay": _weight_decay,
    **{name: partial(_set, name) for name in EXPERIMENTS["optimizers"].datasets},
}
"""By the name in the column ``code`` of a setting. Steps are counted from 0, so that 5,001 end at 5,000."""
