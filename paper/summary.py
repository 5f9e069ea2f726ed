"""The ledger in short: how many claims hold in each regime, and what a reader asks for first.

Everything follows from kept numbers: `kept_ledgers` for what was measured here, `logged` for the authors' logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from genie_dg.results.render import markdown_table

from .claims import CLAIMS
from .kept_ledgers import PRETRAINED, RANDOM, REGIMES, MeasuredClaim, all_ledgers, measured_claims
from .logged import Logged, committed
from .logged_page import SETS
from .request import Request, Result
from .verdict import FAILS, HOLDS, UNDECIDED

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
