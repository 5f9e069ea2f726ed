"""Every definition, theorem, table, figure and setting of the paper: its command, its state and its verdict.

``published/items.csv`` lists what the paper has; all else follows from the registries (`PAPER`, `CLAIMS`,
`EXPERIMENTS`), from the quoted and logged numbers, and from what was measured (`kept_ledgers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from genie_dg.data.published.catalog import PUBLISHED as SETS
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.protocols.draws import LARGE
from genie_dg.protocols.genie_paper import GENIE_PAPER
from genie_dg.results.select import METHODS
from genie_dg.search_space import Choice, LogUniform, Setting

from .claims import CLAIMS
from .experiments import EXPERIMENTS, runs_of, sweeps
from .fig_landscape import START, STEPS
from .kept_ledgers import KEPT, MeasuredClaim, all_ledgers, measured_claims
from .logged import committed
from .published import INCONSISTENCIES, PRINTED, PUBLISHED, PublishedTable, lines_of
from .request import ROOT, PaperError, Request, Result
from .verdict import NOT_MEASURED


@dataclass(frozen=True)
class Item:
    """Something that the paper has.

    Args:
        kind: definition, theorem, corollary, conjecture, remark, assumption, proof, algorithm, table, figure or
            setting.
        place: its number, or where it stands.
        label: in the LaTeX, several with semicolons between, or empty.
        what: what it is about.
        part: of `PAPER`, that makes it.
        claims: of the ledger, about it.
        code: what computes it, with its module; of a setting, the name in `SETTINGS`.
        printed: the value of a setting.
        reason: why it is not possible here, or only in part.
    """

    kind: str
    place: str
    label: str
    what: str
    part: str
    claims: tuple[str, ...]
    code: str
    printed: str
    reason: str

    @property
    def table(self) -> PublishedTable | None:
        """Its printed numbers, if it is a table of results."""
        tables = (t for t in PUBLISHED.values() if t.place.startswith(f"{self.place} ("))
        return next(tables, None)


def _item(line: dict[str, Any]) -> Item:
    return Item(**{**line, "claims": tuple(line["claims"].split())})


ITEMS = tuple(map(_item, lines_of("items.csv")))
"""All of them, in the order of the paper; settings come last."""


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


def commands(item: Item) -> list[str]:
    """What a user types, or imports, to get it."""
    made = []
    if item.part:
        made.append(f"python -m paper {item.part} --scale cpu")
    if item.claims:
        made.append(f"python -m paper claims --scale cpu{''.join(f' --only {name}' for name in item.claims)}")
    if item.kind == "setting":
        made.append(_command_of_setting(item))
    elif item.code:
        made.append(item.code)
    return made


def _command_of_setting(item: Item) -> str:
    """What shows, or uses, a setting."""
    if not item.code:
        return "genie-dg env"
    if item.code in EXPERIMENTS["optimizers"].datasets:
        return f"genie-dg data verify {item.code} --root DATA"
    part = {"algorithms": "integration", "landscape": "landscape"}.get(item.code, "optimizers")
    return f"python -m paper {part} --scale paper"


def states(item: Item, measured: Sequence[MeasuredClaim], kept: Path) -> Iterator[str]:
    """What there is of it, in the order quoted, logged, measured, in code; then what is missing and why."""
    judged = any(one.name in item.claims for one in measured)
    drawn = item.kind == "figure" or item.part in ("ablation", "iterations")  # measured by test domain as well
    shown = drawn and (kept / f"{item.part}.csv").is_file()
    table = item.table
    if table is not None:
        yield "quoted"
    if _is_logged(item):
        yield "logged"
    if judged or shown:
        yield "measured in miniature" if item.part else "measured"
    elif item.claims:
        yield "can be measured, and was not yet"
    if item.code and item.kind != "setting":
        yield "in code"
    if item.kind == "setting" and item.code:
        yield "set in code"
    if table is not None and item.part in EXPERIMENTS:
        count = sum(runs_of(sweep) for _, sweep in sweeps(EXPERIMENTS[item.part], "paper"))
        yield f"not possible here as printed: {count:,} runs of a ResNet-50, no graphics card"
    if item.reason:
        yield item.reason


def _is_logged(item: Item) -> bool:
    """Whether the authors' logs have numbers of it."""
    table, logs = item.table, committed()
    if table is not None:
        wanted = [table.dataset] if table.dataset else logs.datasets(table.experiment)
        return any(logs.table(table.experiment, dataset) for dataset in wanted)
    return {"sensitivity": bool(logs.datasets("sensitivity")), "osgr": bool(logs.curves)}.get(
        item.part if item.kind == "figure" else "", False
    )


def verdicts(item: Item, measured: Sequence[MeasuredClaim]) -> Iterator[str]:
    """What came out: of each claim, of a comparison with the code, or that there is nothing to judge."""
    for name in item.claims:
        said = "; ".join(f"**{one.verdict}** ({one.data})" for one in measured if one.name == name)
        yield f"{name}: {said or NOT_MEASURED}"
    if item.kind == "setting" and item.code:
        here = SETTINGS[item.code]()
        yield f"as printed: {here}" if here == item.printed else f"printed: {item.printed}; here: {here}"
    elif item.table is not None:
        count = sum(one.place == item.place for one in INCONSISTENCIES)
        places = f"{count} place{'s' * (count != 1)}"
        yield f"its numbers are contradicted in {places}" if count else "nothing contradicts its numbers"
    elif not item.claims:
        yield "nothing to judge" if item.reason else "nothing to judge: tests hold the code to the formula"


HEADER = ("In the paper", "What", "Command or code", "State", "Verdict")


def coverage_rows(measured: Sequence[MeasuredClaim], kept: Path) -> list[tuple[str, ...]]:
    """A row for each item; no cell is empty."""
    rows: list[tuple[str, ...]] = []
    for item in ITEMS:
        cells = (
            item.place,
            f"{item.what} ({item.kind})",
            "<br>".join(f"`{command}`" for command in commands(item)),
            "; ".join(states(item, measured, kept)),
            "<br>".join(verdicts(item, measured)),
        )
        empty = [name for name, cell in zip(HEADER, cells, strict=True) if not cell]
        if empty:
            raise PaperError(f"{item.place} ({item.what}) has nothing under {empty[0]!r}; complete items.csv.")
        rows.append(cells)
    return rows


def coverage_page(measured: Sequence[MeasuredClaim], kept: Path) -> str:
    """The page: a summary in numbers, and the table; ``kept`` is the folder of the numbers of figures."""
    table = coverage_rows(measured, kept)
    judged = {one.name for one in measured}
    lines = [
        "# What of the paper is here",
        "",
        "`python -m paper coverage` prints this page: every definition, theorem, table, figure and setting",
        "of the paper, what makes or computes it, what there is of it, and what came out. The list of items is",
        "data; all else follows from the registries of the package and from the numbers that were kept.",
        "",
        f"- {len(table)} items; {len(CLAIMS)} claims, {len(judged)} of them with a verdict from kept numbers",
        "- *quoted*, *logged*, *measured*: the three origins of a number, see [One command each](paper.md)",
        "- *in miniature*: at scale `cpu`, on embedded sets; it compares optimizers with one another",
        "- a verdict is that of [the claims ledger](claims.md), by its rule, from this many paired trials",
        "- *not measured*: no numbers were kept, or they were measured otherwise than the claim is now",
        "- *contradicted*: by another table, the text or the logs; `published/inconsistencies.csv` says where",
        "",
        f"| {' | '.join(HEADER)} |",
        f"| {' | '.join('---' for _ in HEADER)} |",
        *(f"| {' | '.join(cells)} |" for cells in table),
    ]
    return "\n".join(lines)


def make_coverage(request: Request) -> Result:
    """Write the page; the scale does not matter."""
    text = coverage_page(measured_claims(all_ledgers()), ROOT / KEPT)
    return Result(text, (request.write("coverage.md", text + "\n"),))
