"""The claims of the paper, each with how it was measured here, the numbers, an interval and a verdict.

The claims are in `claims`, the rule for verdicts is in `verdict`, the measurements are in `measures`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from genie_dg.check import one_of

from .claim_runs import SIZES, ClaimNumbers, ClaimRuns
from .claims import CLAIMS, Claim
from .figure_setup import figure_setup
from .measures import MEASURES
from .request import PaperError, Request, Result
from .study import WOULD_CHANGE, Study, read_study, runs_of_study, study_judgements, study_note
from .verdict import Judgement, judge


@dataclass(frozen=True)
class LedgerEntry:
    """A claim, its numbers and the verdict."""

    claim: Claim
    numbers: ClaimNumbers
    judged: Judgement

    @property
    def result(self) -> str:
        """The number and interval of each part, as a table shows them; the part that decided comes first."""
        ordered = sorted(self.judged.parts.items(), key=lambda item: item[0] != self.judged.part)
        if not ordered:
            return ""
        several, first = len(ordered) > 1, ordered[0][1][0]
        lines = []
        for part, (interval, verdict) in ordered:
            ends = f" [{interval.low:.3g}, {interval.high:.3g}]" if interval.low != interval.high else ", exact"
            lines.append(f"{part}: {interval.value:.3g}{ends}" + (f", {verdict}" if several else ""))
        shown = "" if first.low == first.high else f"; {100 * first.level:.3g} %, n = {first.count}"
        return "<br>".join([*lines, f"({self.claim.unit}{shown})"])


def entries(numbers: Mapping[str, ClaimNumbers]) -> list[LedgerEntry]:
    """Every claim with a verdict; one without numbers is not measured."""
    return [
        LedgerEntry(c, dict(numbers.get(c.name, {})), judge(numbers.get(c.name, {}), c.side, c.threshold))
        for c in CLAIMS
    ]


def markdown(ledger: list[LedgerEntry]) -> str:
    """The ledger as a table, and a sentence that names the claims without a number.

    Its cells are long, so columns are not padded to their widest.
    """
    header = [
        "Claim",
        "In the paper",
        "Measured here",
        "Result",
        "Verdict at this scale",
        "What would change it",
    ]
    rows = [header, ["---"] * len(header)]
    for e in ledger:
        if e.judged.parts:
            how = f"{e.claim.how}; the claim: {e.claim.side} {e.claim.threshold:g}"
            rows.append([e.claim.says, e.claim.where, how, e.result, f"**{e.judged.verdict}**", e.claim.change])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    missing = [e.claim.name for e in ledger if not e.judged.parts]
    if missing:
        lines += ["", f"Not measured in this run: {', '.join(missing)}."]
    return "\n".join(lines)


def measure(runs: ClaimRuns, request: Request) -> dict[str, ClaimNumbers]:
    """The numbers of every claim; runs that are on the disk are not repeated."""
    numbers: dict[str, ClaimNumbers] = {}
    for names, function in MEASURES:
        if runs.sizes.only and not set(names) & set(runs.sizes.only):
            continue
        title = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        request.say(f"claims: {title}")
        numbers |= dict(zip(names, function(runs), strict=True))
    return numbers


def make_claims(request: Request) -> Result:
    """Measure every claim and write the ledger; at the paper's scale say what would measure each."""
    for name in request.only:
        one_of("--only", name, [c.name for c in CLAIMS])
    if request.study is not None:
        return read_from_study(request, request.study)
    if request.scale == "paper":
        return commands_of_claims(request)
    sizes = SIZES[request.scale]
    setup = figure_setup(request, "digits", sizes.steps, "PACS", pretrained=True)
    if setup.config.pretrained:
        sizes = SIZES["pretrained"]
    if request.only:
        sizes = replace(sizes, only=request.only)
    every = max(1, sizes.steps // sizes.evaluations)
    config = replace(setup.config, steps=sizes.steps, checkpoint_every=every, data_digest=setup.data.digest())
    runs = ClaimRuns(
        setup.data, config, sizes, request.out / "runs", {one.label: one for one in setup.optimizers},
        (request.data or "digits", request.root), request.workers,
    )  # fmt: skip
    ledger = entries(measure(runs, request))
    blocks = [_note(runs), markdown(ledger), *runs.notes, *(table.markdown() for table in runs.tables.values())]
    text = "\n\n".join(blocks)
    return Result(text, _write(request, text, ledger, runs))


def commands_of_claims(request: Request) -> Result:
    """What would measure each claim at the paper's scale; ``--study`` reads the runs of a study instead."""
    chosen = [claim for claim in CLAIMS if not request.only or claim.name in request.only]
    commands = "\n\n".join(f"# {claim.says} ({claim.where})\n{claim.paper}" for claim in chosen)
    how = "What would measure the claims (repeat trainings for every test domain and trial):"
    return Result(f"{how}\n\n```\n{commands}\n```")


def study_entries(study: Study) -> list[LedgerEntry]:
    """The claims that a study's complete rows are about."""
    judged = study_judgements(study)
    mine = [replace(claim, change=WOULD_CHANGE) for claim in CLAIMS if claim.name in judged]
    return [LedgerEntry(claim, *judged[claim.name]) for claim in mine]


def read_from_study(request: Request, folder: Path) -> Result:
    """The ledger of a study, from its packed runs."""
    study = read_study(folder)
    ledger = [e for e in study_entries(study) if not request.only or e.claim.name in request.only]
    if not ledger:
        asked, complete = ", ".join(request.only) or "any claim", ", ".join(study.complete) or "none"
        raise PaperError(
            f"The study in {folder} has too few complete rows for {asked}: {complete}; run the rest of it."
        )
    text = f"{study_note(study)}\n\n{markdown(ledger)}"
    whole = {"setting": study_note(study), "pretrained": study.pretrained, "claims": ledger}
    return Result(text, write_ledger(request, text, {**whole, "runs": runs_of_study(study)}))


def _note(runs: ClaimRuns) -> str:
    """What was trained, and where the learning rates are from."""
    sizes, config, rates = runs.sizes, runs.config, "set by hand, not tuned"
    if len(sizes.lr_factors) > 1:
        chosen = ", ".join(
            f"{label} {rate:g}" + (" (the end of its range)" if label in runs.at_edge else "")
            for label, rate in runs.rates.items()
        )
        trials = "another trial" if sizes.tuning == 1 else f"{sizes.tuning} other trials"
        rates = f"the best of {len(sizes.lr_factors)} by validation on {trials}: {chosen}"
    return (
        f"{runs.data.name}, {config.backbone}, {config.steps} steps of {config.batch_size} a domain, "
        f"{sizes.seeds} trials that leave the domains out in turn; learning rates {rates}."
    )


def _write(request: Request, text: str, ledger: list[LedgerEntry], runs: ClaimRuns) -> tuple[Path, ...]:
    """The ledger of a miniature."""
    whole = {
        "setting": _note(runs),
        "data": runs.data.name,
        "pretrained": runs.config.pretrained,
        "seeds": list(runs.seeds),
        "claims": ledger,
        "notes": runs.notes,
        "tables": {name: table.as_json() for name, table in runs.tables.items()},
        "runs": {run: asdict(config) for run, config in runs.configs.items()},
    }
    return write_ledger(request, text, whole)


def write_ledger(request: Request, text: str, whole: Mapping[str, Any]) -> tuple[Path, ...]:
    """The page, and as JSON every number behind it."""
    request.out.mkdir(parents=True, exist_ok=True)
    table, numbers = request.out / "claims.md", request.out / "claims.json"
    table.write_text(text + "\n", encoding="utf-8")
    claims = [asdict(e) | {"result": e.result} for e in whole["claims"]]
    head = {"command": request.command("claims"), "scale": request.scale}
    whole = {**head, "tables": {}, **whole, "claims": claims}
    numbers.write_text(json.dumps(whole, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return table, numbers
