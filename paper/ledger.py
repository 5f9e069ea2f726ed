"""The claims of the paper, each with how it was measured here, the numbers, an interval and a verdict.

The claims are in `claims`, the rule for verdicts is in `verdict`, the measurements are in `measures`.

Ledgers that were measured and kept, ``claims-*.json``: read back, and judged anew from their numbers.

A kept ledger is what `write_ledger` wrote.
The packed runs of a study (`study`) are a ledger, too; its intervals include the selection of draws.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from genie_dg.check import one_of

from .claim_runs import SIZES, ClaimNumbers, ClaimRuns
from .claims import CLAIMS, Claim
from .figure_setup import figure_setup
from .measures import MEASURES
from .request import ROOT, PaperError, Request, Result
from .study import WOULD_CHANGE, Study, read_study, runs_of_study, study_judgements, study_note
from .verdict import Judgement, NumbersTable, judge


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
    parts = {c: dict(numbers.get(c.name, {})) for c in CLAIMS}
    return [LedgerEntry(c, some, judge(some, c.side, c.threshold)) for c, some in parts.items()]


def markdown(ledger: list[LedgerEntry]) -> str:
    """The ledger as a table, and a sentence that names the claims without a number.

    Its cells are long, so columns are not padded to their widest.
    """
    header = ["Claim", "In the paper", "Measured here", "Result"]
    header += ["Verdict at this scale", "What would change it"]
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
        print(f"claims: {title}", flush=True)
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
        raise PaperError(f"{folder} has too few complete rows for {asked}: {complete}; run the rest of it.")
    text = f"{study_note(study)}\n\n{markdown(ledger)}"
    whole = {"setting": study_note(study), "pretrained": study.pretrained, "claims": ledger}
    return Result(text, write_ledger(request, text, {**whole, "runs": runs_of_study(study)}))


def _note(runs: ClaimRuns) -> str:
    """What was trained, and where the learning rates are from."""
    sizes, config, rates = runs.sizes, runs.config, "set by hand, not tuned"
    if len(sizes.lr_factors) > 1:
        ends = {label: " (the end of its range)" if label in runs.at_edge else "" for label in runs.rates}
        chosen = ", ".join(f"{label} {rate:g}{ends[label]}" for label, rate in runs.rates.items())
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


KEPT = Path("docs", "figures", "paper")
"""Where ledgers and the numbers of figures and tables are kept in a checkout."""

RANDOM, PRETRAINED = "training from random weights", "training from pretrained weights"
REGIMES = {
    "theory": "theory, exact or on a toy problem",
    "dynamics": "dynamics of a small network",
    "random": RANDOM,
    "pretrained": PRETRAINED,
    "time": "time of a step",
}
"""Where a verdict applies, in words. Claims about training have two: the weights that training starts from."""

DIGITS = {"points": 1, "times": 2, "exponent": 2, "log10": 1}
"""Behind the point, by the unit of a claim; 3 for all others."""


@dataclass(frozen=True)
class MeasuredClaim:
    """A claim with numbers that were kept.

    Args:
        name: of the claim.
        verdict: from the numbers.
        data: what it was measured on, and with how many trials.
        regime: where the verdict applies, a name in `REGIMES`.
        result: the number and interval of each part of the claim, in words.
    """

    name: str
    verdict: str
    data: str
    regime: str
    result: str


@dataclass(frozen=True)
class KeptLedger:
    """One file.

    Args:
        file: its name.
        setting: what was trained, in a sentence; may be empty.
        data: the sets.
        pretrained: whether training started from pretrained weights.
        judged: the claims with numbers that are measured so today.
        otherwise: names of those that are measured otherwise today, and so do not count.
        notes: sentences under the table.
        tables: of what was measured along training.
        pairs: what a number is measured in.
    """

    file: str
    setting: str
    data: str
    pretrained: bool
    judged: tuple[LedgerEntry, ...]
    otherwise: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    tables: tuple[NumbersTable, ...] = ()
    pairs: str = "trials"

    def regime(self, entry: LedgerEntry) -> str:
        """A name in `REGIMES`."""
        about = entry.claim.about
        return ("pretrained" if self.pretrained else "random") if about == "training" else about

    def measured_on(self, entry: LedgerEntry) -> str:
        """The data and the number of trials, in words."""
        if all(interval.low == interval.high for interval, _ in entry.judged.parts.values()):
            return "exact"
        count = max(map(len, entry.numbers.values()))
        if entry.claim.about == "time" and not self.pretrained:
            return f"one machine, {count} repeats"
        return f"{'no data' if entry.claim.about == 'theory' else self.data}, {count} {self.pairs}"

    def measured(self) -> list[MeasuredClaim]:
        """The claims that have a verdict."""

        def one(e: LedgerEntry) -> MeasuredClaim:
            where = self.measured_on(e), self.regime(e), result_in_words(e)
            return MeasuredClaim(e.claim.name, e.judged.verdict, *where)

        return [one(entry) for entry in self.judged]

    def markdown(self) -> str:
        """What a page shows of it: a table for each regime, with a heading where there are several."""
        by_regime = {name: [e for e in self.judged if self.regime(e) == name] for name in REGIMES}
        shown = {words: by_regime[name] for name, words in REGIMES.items() if by_regime[name]}
        blocks = [self.setting]
        for words, ledger in shown.items():
            blocks += [f"### Claims about {words}", markdown(ledger)] if len(shown) > 1 else [markdown(ledger)]
        if self.tables and len(shown) > 1:
            blocks.append("### What was measured along training")
        blocks += self.notes
        if self.otherwise:
            names = ", ".join(self.otherwise)
            blocks.append(f"Not shown, as these claims are measured otherwise now: {names}.")
        return "\n\n".join([*filter(None, blocks), *(table.markdown() for table in self.tables)])


def result_in_words(entry: LedgerEntry) -> str:
    """Each part of a claim with its number and interval, in the order in which they were measured.

    >>> accuracy, *_ = entries({"accuracy": {"SGD": [1.0, 2.0], "Adam": [0.5, 0.5]}})
    >>> result_in_words(accuracy)
    'SGD +1.5 (-11.2 to +14.2), Adam +0.5 (exact); 97.5 % intervals'
    """
    digits = DIGITS.get(entry.claim.unit, 3)

    def number(value: float) -> str:
        shown = round(value, digits) + 0.0  # no minus zero
        return f"{shown:.{digits}f}" if entry.claim.unit == "times" else f"{shown:+.{digits}f}"

    parts = []
    for part, (one, _) in entry.judged.parts.items():
        ends = "exact" if one.low == one.high else f"{number(one.low)} to {number(one.high)}"
        parts.append(f"{part} {number(one.value)} ({ends})")
    first, _ = next(iter(entry.judged.parts.values()))
    level = f"; {100 * first.level:.3g} % interval{'s' * (len(parts) > 1)}"
    return ", ".join(parts) + level * any(one.low < one.high for one, _ in entry.judged.parts.values())


def read_kept(folder: Path) -> list[KeptLedger]:
    """All ledgers of a folder, by name."""
    paths = sorted(folder.glob("claims-*.json"))
    if not paths:
        raise PaperError(f"Got {folder}, which has no claims-*.json; name the folder of kept ledgers.")
    return [kept_ledger(path.name, json.loads(path.read_text(encoding="utf-8"))) for path in paths]


def kept_ledger(file: str, whole: Mapping[str, Any]) -> KeptLedger:
    """A ledger from its JSON; verdicts follow from the numbers, not from what the file says about them."""
    how = {claim.name: claim.how for claim in CLAIMS}
    numbered = {row["claim"]["name"]: row for row in whole["claims"] if row["numbers"]}
    current = {name: row["numbers"] for name, row in numbered.items() if how.get(name) == row["claim"]["how"]}
    judged = tuple(entry for entry in entries(current) if entry.judged.parts)
    otherwise = tuple(name for name in numbered if name not in current)
    tables = tuple(map(NumbersTable.from_json, whole["tables"].values()))
    about = whole["setting"], whole["data"], whole["pretrained"]
    return KeptLedger(file, *about, judged, otherwise, tuple(whole["notes"]), tables)


def study_ledger(folder: Path) -> KeptLedger:
    """The ledger of a study, from its packed runs."""
    study = read_study(folder)
    ledger = tuple(study_entries(study))
    none = f"No two rows are complete: {len(study.frame)} of {study.planned * len(study.names)} runs are done."
    setting, data = study_note(study) if ledger else none, str(study.frame["dataset"][0])
    name = f"{folder.parent.name}/{folder.name}"
    return KeptLedger(name, setting, data, study.pretrained, ledger, pairs="splits")


@cache
def all_ledgers(root: Path = ROOT) -> list[KeptLedger]:
    """The kept ledgers of a checkout, then those of its studies."""
    packed = sorted((root / "studies").glob("*/runs.tar.xz"))
    return [*read_kept(root / KEPT), *(study_ledger(path.parent) for path in packed)]


def measured_claims(ledgers: Sequence[KeptLedger]) -> list[MeasuredClaim]:
    """What ledgers measured, in the order of claims."""
    order = {claim.name: at for at, claim in enumerate(CLAIMS)}
    return sorted((one for ledger in ledgers for one in ledger.measured()), key=lambda one: order[one.name])
