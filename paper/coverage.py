"""The page of every definition, theorem, table, figure and setting of the paper: command, state, verdict.

``published/items.csv`` lists them: what makes or computes an item, what there is of it, and a verdict where it
does not follow from claims. What was measured of its claims follows from `kept_ledgers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .claims import CLAIMS
from .kept_ledgers import MeasuredClaim, all_ledgers, measured_claims
from .published import lines_of
from .request import Request, Result
from .verdict import NOT_MEASURED

ITEMS = lines_of("items.csv")
"""All of them, in the order of the paper; settings come last."""

HEADER = ("In the paper", "What", "Command or code", "State", "Verdict")


def coverage_row(item: Mapping[str, str], measured: Sequence[MeasuredClaim]) -> tuple[str, ...]:
    """The cells of an item."""
    verdicts = [f"{name}: {_verdicts_of(name, measured)}" for name in item["claims"].split()]
    verdicts += [item["verdict"]] if item["verdict"] else []
    commands = "<br>".join(f"`{command}`" for command in item["commands"].split("; "))
    return item["place"], f"{item['what']} ({item['kind']})", commands, item["state"], "<br>".join(verdicts)


def _verdicts_of(name: str, measured: Sequence[MeasuredClaim]) -> str:
    verdicts = [f"**{one.verdict}** ({one.data})" for one in measured if one.name == name]
    return "; ".join(verdicts) or NOT_MEASURED


def coverage_page(measured: Sequence[MeasuredClaim]) -> str:
    """The page: a summary in numbers, and the table."""
    judged = {one.name for one in measured}
    lines = [
        "# What of the paper is here",
        "",
        "`python -m paper coverage` prints this page: every definition, theorem, table, figure and setting",
        "of the paper, what makes or computes it, what there is of it, and what came out. The list of items is",
        "data; all else follows from the registries of the package and from the numbers that were kept.",
        "",
        f"- {len(ITEMS)} items; {len(CLAIMS)} claims, {len(judged)} of them with a verdict from kept numbers",
        "- *quoted*, *logged*, *measured*: the three origins of a number, see [One command each](paper.md)",
        "- *in miniature*: at scale `cpu`, on embedded sets; it compares optimizers with one another",
        "- a verdict is that of [the claims ledger](claims.md), by its rule, from this many paired trials",
        "- *not measured*: no numbers were kept, or they were measured otherwise than the claim is now",
        "- *contradicted*: by another table, the text or the logs; `published/inconsistencies.csv` says where",
        "",
        f"| {' | '.join(HEADER)} |",
        f"| {' | '.join('---' for _ in HEADER)} |",
        *(f"| {' | '.join(coverage_row(item, measured))} |" for item in ITEMS),
    ]
    return "\n".join(lines)


def make_coverage(request: Request) -> Result:
    """Write the page; the scale does not matter."""
    text = coverage_page(measured_claims(all_ledgers()))
    return Result(text, (request.write("coverage.md", text + "\n"),))
