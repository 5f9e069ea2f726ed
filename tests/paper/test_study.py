"""Claims read from the packed runs of a study, on records written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paper.__main__ import main
from paper.ledger import make_claims
from paper.request import PaperError, Request
from paper.study import read_study, study_judgements
from paper.verdict import FAILS, HOLDS

from ..test_studies import ROWS, small_study


def test_a_claim_is_judged_from_the_complete_rows_by_the_interval_that_includes_selection(
    tmp_path: Path,
) -> None:
    folder = small_study(tmp_path, ROWS)  # genie 5 points above adam, 25 above sgd, in every split
    judged = study_judgements(read_study(folder))
    assert set(judged) == {"accuracy"}  # no row with preconditioning alone, no SAM
    numbers, verdict = judged["accuracy"]
    assert numbers["Adam"] == pytest.approx([5.0] * 8)
    assert numbers["SGD"] == pytest.approx([25.0] * 8)
    interval, said = verdict.parts["Adam"]
    assert (interval.value, interval.count, interval.level) == (pytest.approx(5.0), 8, pytest.approx(0.975))
    assert interval.low < 5.0  # draws that validation might have missed
    assert (verdict.part, verdict.verdict) == ("Adam", said)
    assert verdict.parts["SGD"][1] == HOLDS
    worse = small_study(tmp_path / "worse", {**ROWS, "genie": 0.2})
    assert study_judgements(read_study(worse))["accuracy"][1].verdict == FAILS


def test_the_ledger_of_a_study_is_written_with_its_runs(tmp_path: Path) -> None:
    folder = small_study(tmp_path, ROWS)
    result = make_claims(Request("cpu", tmp_path / "out", study=folder))
    assert "4 of 4 rows complete, each with 3 draws for each of 2 trials" in result.text
    whole = json.loads((tmp_path / "out" / "claims.json").read_text())
    assert whole["command"] == f"python -m paper claims --study {folder.as_posix()}"
    assert len(whole["runs"]) == 96
    assert [entry["claim"]["name"] for entry in whole["claims"]] == ["accuracy"]
    with pytest.raises(PaperError, match="too few complete rows for noise-and-mask"):
        make_claims(Request("cpu", tmp_path / "out", study=folder, only=("noise-and-mask",)))


def test_rows_under_way_do_not_count(tmp_path: Path) -> None:
    folder = small_study(tmp_path, {"adam": 0.6, "genie": 0.65}, missing=1)
    with pytest.raises(PaperError, match=r"any claim: ERM \+ adam; run the rest"):
        make_claims(Request("cpu", tmp_path / "out", study=folder))


def test_what_is_not_a_study_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "out")]
    assert main(["claims", "--study", str(tmp_path), *out]) == 2
    assert "has no sweep.toml; a study has sweep.toml, protocol.toml, runs.tar.xz." in capsys.readouterr().err
    assert main(["umap", "--study", str(tmp_path), *out]) == 2
    assert "--study is for claims, and umap has none" in capsys.readouterr().err
