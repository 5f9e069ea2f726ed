"""The pages of the ledger: equal to what the kept numbers give, and refused where a mark is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from paper.claims_pages import KEPT, LEDGER, main, pages, put, with_numbers
from paper.kept_ledgers import read_kept, study_ledger
from paper.request import PaperError

ROOT = Path(__file__).parents[2]


def test_the_committed_pages_are_those_of_the_kept_numbers() -> None:
    made = pages(ROOT)
    assert {path.name for path in made} == {"measured.csv", "coverage.md", "claims.md", "README.md"}
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
    assert main([str(tmp_path)]) == 0
    assert [path.name for path in before if (tmp_path / path).read_text() != before[path]] == [
        *("measured.csv", "coverage.md", "claims.md", "README.md")
    ]


def test_marks_and_files_belong_together() -> None:
    with pytest.raises(PaperError, match=r"page.md must have <!-- x --> once and <!-- end --> after it"):
        put("no marks", "new", "x", "end", Path("page.md"))
    studies = [study_ledger(path.parent) for path in sorted((ROOT / "studies").glob("*/runs.tar.xz"))]
    ledgers = [*read_kept(ROOT / KEPT), *studies]
    text = (ROOT / LEDGER).read_text(encoding="utf-8")
    with pytest.raises(PaperError, match="remove marks without a file"):
        with_numbers(text, ledgers[1:])
    with pytest.raises(PaperError, match=f"must have <!-- numbers of {ledgers[0].file} --> once"):
        with_numbers(text.replace(f"numbers of {ledgers[0].file}", "other"), ledgers)


def test_the_repository_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "Got 0 arguments; expected one" in capsys.readouterr().err
