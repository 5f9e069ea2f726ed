"""The ledger in short: how many claims hold in each regime, and what a reader asks for first.

Everything follows from kept numbers: `kept_ledgers` for what was measured here, `logged` for the authors' logs.

The page of every definition, theorem, table, figure and setting of the paper: command, state, verdict.

``published/items.csv`` lists them: what makes or computes an item, what there is of it, and a verdict where it
does not follow from claims. What was measured of its claims follows from `kept_ledgers`.

The pages that show kept ledgers, made anew: whatever the numbers say, the pages say.

``python -m paper pages``, at the root of a checkout, reads ``docs/figures/paper`` and ``studies`` and writes

- ``docs/coverage.md``,
- in ``docs/claims.md`` what stands between ``<!-- numbers of claims-x.json -->``, or of ``studies/x``, and
  ``<!-- end of numbers -->``,
- in ``README.md`` the summary of the claims and the sentences about accuracy, between marks like these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from genie_dg.results.render import markdown_table

from .claims import CLAIMS
from .ledger import PRETRAINED, RANDOM, REGIMES, KeptLedger, MeasuredClaim, all_ledgers, measured_claims
from .logged import Logged, committed
from .logged_page import SETS
from .published import lines_of
from .request import PaperError, Request, Result
from .verdict import FAILS, HOLDS, NOT_MEASURED, UNDECIDED

FIRST = {
    "accuracy": "**Accuracy** on the domain left out, in points, GENIE minus",
    "osgr": "**OSGR** by its definition, GENIE minus",
    "osgr-preconditioner": "**OSGR** in the theorem's form, GENIE's preconditioner minus that of",
    "osgr-trust": "**OSGR** in the same form, the trust factor alone at measured moments minus",
    "balance": "**Balance**: Gini coefficient of weight changes (0 is even), GENIE minus",
    "cost": "**Cost** of a training step with GENIE, as a multiple of that with",
    "rate": "**Rate** of convergence on a toy problem, exponent of the squared gradient (lower is faster):",
}
"""The claims that are told with their numbers, and the words before these."""


def counts(measured: Sequence[MeasuredClaim]) -> str:
    """A table: by regime, how many claims hold, do not hold and are undecided."""
    rows = []
    for regime, words in REGIMES.items():
        inside = [one for one in measured if one.regime == regime]
        verdicts = Counter(one.verdict for one in inside)
        data = "; ".join(dict.fromkeys(one.data for one in inside)) or "nothing yet"
        rows.append([words, data, *(str(verdicts[said]) for said in (HOLDS, FAILS, UNDECIDED))])
    return markdown_table(["claims about", "measured on", "hold", "do not hold", "undecided"], rows, 2)


def answers(measured: Sequence[MeasuredClaim]) -> Iterator[str]:
    """A line for each measurement of the claims that are asked for first."""
    training = {"random": f", {RANDOM}", "pretrained": f", {PRETRAINED}"}
    for name, words in FIRST.items():
        for one in measured:
            if one.name == name:
                where = f"{one.data}{training.get(one.regime, '')}"
                yield f"- {words} {one.result} ({where}). The claim: {one.verdict}."


def logged_accuracies(logged: Logged) -> str:
    """What the authors' logs have for three sets, with equal batches and default settings."""
    sets = []
    for dataset in SETS:
        cells = {
            label: logged.cell("optimizers", dataset, f"{label}, defaults").value
            for label in ("GENIE", "Adam", "SAM")
        }
        sets.append(f"{dataset} " + ", ".join(f"{label} {value:.1f}" for label, value in cells.items()))
    return "; ".join(sets)


def summary(measured: Sequence[MeasuredClaim], logged: Logged) -> str:
    """The counts, the first answers and the logs, as Markdown."""
    judged = len({one.name for one in measured})
    head = (
        f"{len(CLAIMS)} claims, {judged} of them measured here. One holds, or does not, only if the whole "
        "interval lies on one side; a claim about several opponents is as strong as its weakest part."
    )
    setting = "ResNet-50, equal batches, default settings"
    lines = [*answers(measured), f"- **Logged** by the authors, {setting}: {logged_accuracies(logged)}."]
    return "\n\n".join([head, counts(measured), "\n".join(lines)])


def accuracy_in_short(measured: Sequence[MeasuredClaim], logged: Logged) -> str:
    """Two or three sentences for a reader who asks whether GENIE helps."""
    logs = (
        "The authors' own logs, at equal batches and default settings with a ResNet-50, have these accuracies: "
        f"{logged_accuracies(logged)}."
    )
    start = {"random": "random weights", "pretrained": "pretrained weights"}
    told = [
        f"From {start[one.regime]} ({one.data}, learning rates tuned) GENIE minus others, in points: "
        f"{one.result}."
        for one in measured
        if one.name == "accuracy"
    ]
    return " ".join([logs, *told])


def make_summary(request: Request) -> Result:
    """Write the summary of the kept ledgers; the scale does not matter."""
    text = summary(measured_claims(all_ledgers()), committed())
    return Result(text, (request.write("summary.md", text + "\n"),))


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
        "of the paper, what makes or computes it, what there is of it, and what came out. The items, their",
        "commands and states are data (`published/items.csv`); verdicts follow from the kept numbers.",
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


LEDGER, README = Path("docs", "claims.md"), Path("README.md")


def put(text: str, block: str, begin: str, end: str, file: Path) -> str:
    r"""The text of a file with a block between two marks, in place of what was there.

    >>> put("a\n<!-- x -->\nold\n<!-- end -->\nb", "new", "x", "end", Path("page.md"))
    'a\n<!-- x -->\n\nnew\n\n<!-- end -->\nb'
    """
    first, last = f"<!-- {begin} -->\n", f"<!-- {end} -->"
    before, mark, rest = text.partition(first)
    _, closed, after = rest.partition(last)
    if not mark or not closed or first in after:
        raise PaperError(
            f"{file} must have {first.strip()} once and {last} after it; put them where the block is to stand."
        )
    return f"{before}{first}\n{block}\n\n{last}{after}"


def with_numbers(text: str, ledgers: Sequence[KeptLedger]) -> str:
    """The page of the ledger with the tables of every kept file."""
    for ledger in ledgers:
        text = put(text, ledger.markdown(), f"numbers of {ledger.file}", "end of numbers", LEDGER)
    marked = text.count("<!-- numbers of ")
    if marked != len(ledgers):
        raise PaperError(
            f"{LEDGER} has marks for {marked} ledgers and there are {len(ledgers)}; "
            "remove marks without a file."
        )
    return text


def pages(root: Path) -> dict[Path, str]:
    """By path in a checkout the text that each page should have."""
    ledgers, logged = all_ledgers(root), committed()
    claims = measured_claims(ledgers)
    readme = (root / README).read_text(encoding="utf-8")
    readme = put(readme, summary(claims, logged), "summary of claims", "end of summary", README)
    readme = put(readme, accuracy_in_short(claims, logged), "accuracy in short", "end of accuracy", README)
    return {
        Path("docs", "coverage.md"): coverage_page(claims) + "\n",
        LEDGER: with_numbers((root / LEDGER).read_text(encoding="utf-8"), ledgers),
        README: readme,
    }


def write_pages(root: Path) -> None:
    """Write the pages of a checkout and say which changed."""
    for path, text in pages(root).items():
        changed = (root / path).read_text(encoding="utf-8") != text
        (root / path).write_text(text, encoding="utf-8")
        print(f"{path}: {'made anew' if changed else 'as it was'}")
