"""``python -m paper all --scale smoke``, as a user types it: every table, every figure and the ledger."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

from paper.fig_landscape import STEPS
from paper.ledger import CLAIMS, kept_ledger
from paper.published import PRINTED
from paper.registry import PAPER
from paper.sourced import MEASURED
from paper.verdict import FAILS, HOLDS, NOT_MEASURED, judge

ROOT = Path(__file__).parents[2]
FIGURES = ("sensitivity", "osgr", "heatmap", "landscape", "umap")


def test_paper_all(tmp_path: Path) -> None:
    done = command("all", tmp_path)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "smoke"
    assert {path.name for path in out.iterdir()} == set(PAPER)
    assert f"Part {len(PAPER)} of {len(PAPER)}" in done.stdout
    told = [line.removeprefix("wrote ") for line in done.stdout.splitlines() if line.startswith("wrote ")]
    assert all(Path(path).stat().st_size > 0 for path in told)
    assert len(told) == len(set(told)) > 30
    for name in FIGURES:
        assert (out / name / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (out / name / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    for check in (tables, osgr, landscape, ledger):
        check(out)


def command(name: str, out: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "paper", name, "--scale", "smoke", "--out", str(out)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=900, cwd=ROOT)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def measured(out: Path, name: str) -> dict[tuple[str, str], str]:
    rows = rows_of(out / name / f"{name}.csv")
    return {(row["row"], row["column"]): row["value"] for row in rows if row["origin"] == MEASURED}


def tables(out: Path) -> None:
    for name in ("optimizers", "iterations", "single-source", "integration", "ablation", "sensitivity"):
        page = (out / name / f"{name}.md").read_text(encoding="utf-8")
        assert f"`python -m paper {name} --scale smoke`" in page
        assert "failed" not in page
    assert {row for row, _ in measured(out, "optimizers")} == set(PRINTED.values())
    assert {row for row, _ in measured(out, "integration")} >= {"RSC+AdamW", "CORAL+GENIE"}
    grid = {"GENIE p=0.0", "GENIE p=0.4", "GENIE beta=0.9", "GENIE beta=0.95", "GENIE p=0.0 beta=0.9"}
    assert {row for row, _ in measured(out, "sensitivity")} == {"SGD", "Adam", "SAM"} | grid
    one_source = measured(out, "single-source")
    assert {row for row, _ in one_source} >= {"Adam", "SAM", "RSC+GENIE", "CORAL+GENIE"}
    assert one_source["CORAL+Adam", "Avg"] == one_source["Adam", "Avg"]  # one source: nothing to align


def osgr(out: Path) -> None:
    cells = rows_of(out / "osgr" / "osgr.csv")
    assert len({(cell["form"], cell["optimizer"]) for cell in cells}) == 3 * 4
    ordered = [float(c["low"]) <= float(c["osgr"]) <= float(c["high"]) for c in cells if c["osgr"] != "nan"]
    assert all(ordered)
    assert len(ordered) > len(cells) / 2


def landscape(out: Path) -> None:
    cells = rows_of(out / "landscape" / "landscape.csv")
    assert [(float(c["x"]), float(c["y"])) for c in cells if c["step"] == "0" and c["x"]] == [(-1.0, 3.0)] * 3
    for name in ("SGD", "Adam", "GENIE"):
        steps = [c["step"] for c in cells if c["label"].startswith(name)]
        assert steps == [str(t) for t in range(STEPS + 1)]
    assert (out / "landscape" / "landscape-large.png").is_file()


def ledger(out: Path) -> None:
    whole = json.loads((out / "claims" / "claims.json").read_text(encoding="utf-8"))
    table = (out / "claims" / "claims.md").read_text(encoding="utf-8")
    verdicts = {row["claim"]["name"]: row["judged"]["verdict"] for row in whole["claims"]}
    assert set(verdicts) == {claim.name for claim in CLAIMS}
    assert NOT_MEASURED not in verdicts.values()
    exact = [verdicts[name] for name in ("pac-bayes", "pac-bayes-moving", "osgr-always")]
    assert exact == [HOLDS, FAILS, FAILS]
    for row in whole["claims"]:  # each verdict follows from the numbers that were written
        claim = row["claim"]
        assert judge(row["numbers"], claim["side"], claim["threshold"]).verdict == row["judged"]["verdict"]
        assert row["judged"]["interval"]["count"] >= 2
        assert all(part in table for part in row["numbers"])
    kept = kept_ledger("claims-smoke.json", whole)
    repeated = ("| Claim |", "| --- |", "### ")  # with every table
    pages = (kept.markdown().splitlines(), table.splitlines())
    again, lines = (sorted(x for x in page if x and not x.startswith(repeated)) for page in pages)
    assert again == lines  # what is kept makes the same page again, a table for each regime
    assert kept.otherwise == ()
    assert whole["seeds"] == [0, 1]
    assert {path.name for path in (out / "claims" / "runs").iterdir()} == set(whole["runs"])
