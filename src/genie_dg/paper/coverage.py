"""Every definition, theorem, table, figure and setting of the paper: its command, its state and its verdict.

``published/items.csv`` lists what the paper has; all else follows from the registries (`PAPER`, `CLAIMS`,
`EXPERIMENTS`), from the quoted and logged numbers, and from what was measured (`measured`).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .claims import CLAIMS
from .coverage_settings import SETTINGS
from .experiments import EXPERIMENTS, runs_of, sweeps
from .logged import committed
from .measured import Measured, carried
from .published import INCONSISTENCIES, PUBLISHED, PublishedTable, lines_of
from .request import PaperError, Request, Result
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


def resolve(code: str) -> Any:
    """The module, or what is in one, by its dotted name.

    >>> resolve("genie_dg.paper.verdict.judge").__name__
    'judge'
    """
    try:
        return importlib.import_module(code)
    except ModuleNotFoundError:
        module, _, name = code.rpartition(".")
        return getattr(importlib.import_module(module), name)


def commands(item: Item) -> list[str]:
    """What a user types, or imports, to get it."""
    made = []
    if item.part:
        made.append(f"genie-dg paper {item.part} --scale cpu")
    if item.claims:
        made.append(f"genie-dg paper claims --scale cpu{''.join(f' --only {name}' for name in item.claims)}")
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
    return f"genie-dg paper {part} --scale paper"


def states(item: Item, measured: list[Measured]) -> Iterator[str]:
    """What there is of it, in the order quoted, logged, measured, in code; then what is missing and why."""
    judged = [one for one in measured if one.kind == "claim" and one.name in item.claims]
    drawn = item.kind == "figure" or item.part in ("ablation", "iterations")  # measured by test domain as well
    shown = drawn and any(one.kind == "part" and one.name == item.part for one in measured)
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


def verdicts(item: Item, measured: list[Measured]) -> Iterator[str]:
    """What came out: of each claim, of a comparison with the code, or that there is nothing to judge."""
    for name in item.claims:
        found = [one for one in measured if one.kind == "claim" and one.name == name]
        said = "; ".join(f"**{one.verdict}** ({one.data})" for one in found)
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


def rows(measured: list[Measured]) -> list[tuple[str, ...]]:
    """A row for each item; no cell is empty."""
    found: list[tuple[str, ...]] = []
    for item in ITEMS:
        cells = (
            item.place,
            f"{item.what} ({item.kind})",
            "<br>".join(f"`{command}`" for command in commands(item)),
            "; ".join(states(item, measured)),
            "<br>".join(verdicts(item, measured)),
        )
        empty = [name for name, cell in zip(HEADER, cells, strict=True) if not cell]
        if empty:
            raise PaperError(f"{item.place} ({item.what}) has nothing under {empty[0]!r}; complete items.csv.")
        found.append(cells)
    return found


def page(measured: list[Measured]) -> str:
    """The page: a summary in numbers, and the table."""
    table = rows(measured)
    judged = {one.name for one in measured if one.kind == "claim"}
    lines = [
        "# What of the paper is here",
        "",
        "`genie-dg paper coverage` prints this page: every definition, theorem, table, figure and setting",
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
    text = page(carried())
    request.out.mkdir(parents=True, exist_ok=True)
    path = request.out / "coverage.md"
    path.write_text(text + "\n", encoding="utf-8")
    return Result(text, (path,))
