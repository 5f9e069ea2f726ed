"""The ledger in short, from hand-made measurements and from those that the package carries."""

from __future__ import annotations

from pathlib import Path

import pytest

from genie_dg.cli.main import main
from paper.claims import CLAIMS
from paper.logged import committed
from paper.measured import Measured, carried
from paper.summary import FIRST, accuracy_in_short, answers, counts, summary


def one(
    name: str, verdict: str, regime: str, result: str = "Adam +1.0", data: str = "digits, 3 trials"
) -> Measured:
    return Measured("claim", name, verdict, data, "claims-x.json", regime, result)


MINE = [
    one("accuracy", "does not hold", "random", "Adam -6.5 (-9.4 to -3.5); 95 % interval"),
    one("accuracy", "holds", "pretrained", "Adam +2.0 (+1.0 to +3.0); 95 % interval", "PACS, 12 trials"),
    one("robust", "undecided at this scale", "random"),
    one("preconditioning", "holds", "pretrained", data="PACS, 12 trials"),
    Measured("part", "umap", "", "", "umap.csv"),
]


def test_claims_are_counted_by_regime() -> None:
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in counts(MINE).splitlines()[2:]]
    assert cells[2:4] == [
        ["training from random weights", "digits, 3 trials", "0", "1", "1"],
        ["training from pretrained weights", "PACS, 12 trials", "2", "0", "0"],
    ]
    assert cells[0][1:] == ["nothing yet", "0", "0", "0"]


def test_every_measurement_of_a_first_claim_is_told() -> None:
    first, second = answers(MINE)
    assert first == (
        "- **Accuracy** on the domain left out, in points, GENIE minus Adam -6.5 (-9.4 to -3.5); 95 % interval "
        "(digits, 3 trials, training from random weights). The claim: does not hold."
    )
    assert second.endswith("(PACS, 12 trials, training from pretrained weights). The claim: holds.")
    assert "From pretrained weights (PACS, 12 trials, " in accuracy_in_short(MINE, committed())


def test_first_claims_exist_and_logs_are_quoted_as_averaged() -> None:
    assert set(FIRST) <= {claim.name for claim in CLAIMS}
    cell = committed().cell("optimizers", "PACS", "GENIE, defaults")
    assert f"PACS GENIE {cell.value:.1f}, Adam " in summary([], committed())


def test_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "summary", "--out", str(tmp_path)]) == 0
    assert summary(carried(), committed()) in capsys.readouterr().out
