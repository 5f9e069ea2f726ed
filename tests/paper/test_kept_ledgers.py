"""Kept ledgers: what is read back counts as it is measured today, and verdicts follow from the numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paper.claims import CLAIMS
from paper.ledger import REGIMES, KeptLedger, kept_ledger
from paper.verdict import NumbersTable

BY_NAME = {claim.name: claim for claim in CLAIMS}


def row(name: str, numbers: list[float], how: str = "") -> dict[str, Any]:
    """What a file says about a claim; its verdict is nonsense, to see that it is not believed."""
    claim = {"name": name, "how": how or BY_NAME[name].how}
    return {"claim": claim, "numbers": {"Adam": numbers}, "judged": {"verdict": "nonsense"}}


def kept(*rows: dict[str, Any], **more: Any) -> KeptLedger:
    about = {"setting": "", "data": "digits", "pretrained": False, "notes": [], "tables": {}}
    return kept_ledger("claims-x.json", {**about, "claims": rows, **more})


def test_verdicts_follow_from_the_numbers() -> None:
    found = kept(row("accuracy", [0.1, 1.1]), row("cost", [1.5, 1.51]), row("one-source", [5.0, 6.0], "so"))
    assert {e.claim.name: e.judged.verdict for e in found.judged} == {
        "accuracy": "undecided at this scale",
        "cost": "does not hold",
    }
    assert found.otherwise == ("one-source",)
    assert "Not shown, as these claims are measured otherwise now: one-source." in found.markdown()
    assert "nonsense" not in found.markdown()


@pytest.mark.parametrize(
    ("name", "more", "regime", "data"),
    [
        ("accuracy", {}, "random", "digits, 2 trials"),
        ("accuracy", {"pretrained": True, "data": "PACS"}, "pretrained", "PACS, 2 trials"),
        ("balance", {}, "dynamics", "digits, 2 trials"),
        ("rate", {}, "theory", "no data, 2 trials"),
        ("cost", {}, "time", "one machine, 2 repeats"),
    ],
)
def test_where_a_verdict_applies(name: str, more: dict[str, Any], regime: str, data: str) -> None:
    ledger = kept(row(name, [0.5, 0.7]), **more)
    (entry,) = ledger.judged
    assert (ledger.regime(entry), ledger.measured_on(entry)) == (regime, data)
    assert regime in REGIMES


def test_an_exact_number_has_no_trials() -> None:
    ledger = kept(row("osgr-always", [-0.5, -0.5]))
    assert ledger.measured_on(ledger.judged[0]) == "exact"


def test_a_table_survives_json() -> None:
    table = NumbersTable("T", ("a", "b"), {"x": [(1.0, 0.1), (float("nan"), float("nan"))]})
    plain = json.loads(json.dumps(table.as_json(), allow_nan=False))
    assert NumbersTable.from_json(plain).markdown() == table.markdown()
    assert NumbersTable.from_json(plain).as_json() == plain
