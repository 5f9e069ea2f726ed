"""The pages of the ledger: equal to what the kept numbers give, and refused where a mark is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from paper.claims import CLAIMS
from paper.ledger import KEPT, MeasuredClaim, all_ledgers
from paper.logged import committed
from paper.pages import FIRST, LEDGER, accuracy_in_short, answers, counts, pages, put, with_numbers, write_pages
from paper.request import PaperError

ROOT = Path(__file__).parents[2]


def test_the_committed_pages_are_those_of_the_kept_numbers() -> None:
    made = pages(ROOT)
    assert {path.name for path in made} == {"coverage.md", "claims.md", "README.md"}
    for path, text in made.items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, f"{path} is old: run make claims-page"


def test_a_changed_number_changes_the_pages(tmp_path: Path) -> None:
    for path in pages(ROOT):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    shutil.copytree(ROOT / KEPT, tmp_path / KEPT)
    shutil.copytree(ROOT / "studies", tmp_path / "studies")
    kept = tmp_path / KEPT / "claims-digits.json"
    kept.write_text(kept.read_text().replace('"released minus SGD": [', '"released minus SGD": [\n    9.0,', 1))
    before = {path: (tmp_path / path).read_text() for path in pages(ROOT)}
    all_ledgers.cache_clear()
    write_pages(tmp_path)
    assert [path.name for path in before if (tmp_path / path).read_text() != before[path]] == [
        *("coverage.md", "claims.md", "README.md")
    ]


def test_marks_and_files_belong_together() -> None:
    with pytest.raises(PaperError, match=r"page.md must have <!-- x --> once and <!-- end --> after it"):
        put("no marks", "new", "x", "end", Path("page.md"))
    ledgers = all_ledgers(ROOT)
    text = (ROOT / LEDGER).read_text(encoding="utf-8")
    with pytest.raises(PaperError, match="remove marks without a file"):
        with_numbers(text, ledgers[1:])
    with pytest.raises(PaperError, match=f"must have <!-- numbers of {ledgers[0].file} --> once"):
        with_numbers(text.replace(f"numbers of {ledgers[0].file}", "other"), ledgers)


def test_summaries_count_claims_by_regime_and_tell_the_first() -> None:
    mine = [
        MeasuredClaim("accuracy", "does not hold", "digits, 3 trials", "random", "Adam -6.5"),
        MeasuredClaim("accuracy", "holds", "PACS, 12 trials", "pretrained", "Adam +2.0"),
        MeasuredClaim("robust", "undecided at this scale", "digits, 3 trials", "random", ""),
    ]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in counts(mine).splitlines()[2:]]
    assert cells[2:4] == [
        ["training from random weights", "digits, 3 trials", "0", "1", "1"],
        ["training from pretrained weights", "PACS, 12 trials", "1", "0", "0"],
    ]
    assert cells[0][1:] == ["nothing yet", "0", "0", "0"]
    first, second = answers(mine)
    assert first.endswith(
        "Adam -6.5 (digits, 3 trials, training from random weights). The claim: does not hold."
    )
    assert second.endswith("(PACS, 12 trials, training from pretrained weights). The claim: holds.")
    assert "From pretrained weights (PACS, 12 trials, " in accuracy_in_short(mine, committed())
    assert set(FIRST) <= {claim.name for claim in CLAIMS}
