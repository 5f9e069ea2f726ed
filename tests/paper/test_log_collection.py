"""A clone as CSV files: exact answers on a small tree, and the committed files from a real clone."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from genie_dg.cli.main import main
from paper.log_collection import collect
from paper.log_files import read_log
from paper.logged import FOLDER, NAMES
from paper.request import PaperError

from .log_trees import Record, commit, write_log

LONG: list[Record] = [(0, 0.1, 0.1, 0.1), (5000, 0.5, 0.4, 0.3), (10000, 0.6, 0.5, 0.4), (15000, 0.4, 0.6, 0.5)]
N = 96


def lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def published(variance: float, n: int) -> float:
    return 1 - variance / (n * variance + 1e-7)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A long run on VLCS with 200 steps of large and 200 of small gradients, and a run with sharpness."""
    root = tmp_path_factory.mktemp("clone")
    long = write_log(root, "VLCS/ERM/[1]/250101_a_sgd", LONG, dataset="VLCS", test=(1,), steps=15000)
    writer = SummaryWriter(str(long.parent))
    for step in range(400):
        writer.add_scalar("te_L/OSGR/OSGR", published(1e-6 if step < 200 else 1e-8, N), step)
        writer.add_scalar("te_L/GSNR/GSNR", 0.0, step)
    writer.close()
    short = [(0, 0.1, 0.1, 0.1), (5000, 0.5, 0.4, 0.3)]
    path = write_log(root, "PACS/ERM/[3]/250202_11-12-13_sgd", short, test=(3,))
    (path.parent / "sharpness_progress").mkdir()
    csv_path = path.parent / "sharpness_progress" / "sharpness_over_time.csv"
    csv_path.write_text("0,0.1,0.2,0.3,0.4,0.5\n200,1,2,3,4,5.1234567\n")
    commit(root)
    return root


def test_the_files_of_a_small_tree(clone: Path) -> None:
    texts = collect(clone)
    assert set(texts) == set(NAMES)
    (source,) = lines(texts["source.csv"])
    assert (source["logs"], source["finished"], len(source["commit"])) == ("2", "2", 40)
    runs = {run["dataset"]: run for run in lines(texts["runs.csv"])}
    wanted = {"domain": "LabelMe", "batch": "32", "pictures": "96", "selected_step": "10000", "selected": "50"}
    assert wanted.items() <= runs["VLCS"].items()
    assert runs["VLCS"]["seconds"] == "300"
    assert (runs["PACS"]["validation"], runs["PACS"]["last"], runs["PACS"]["step_seconds"]) == (
        "50",
        "40",
        "0.5",
    )
    rows = {(one["experiment"], one["row"]): one["value"] for one in lines(texts["averages.csv"])}
    assert rows["iterations", "SGD@15000"] == "50"
    assert rows["optimizers", "SGD, defaults"] == "40"  # of VLCS up to 5,000 steps, and of PACS


def test_the_osgr_is_averaged_over_200_steps_and_tells_the_size_of_gradients(clone: Path) -> None:
    first, second = lines(collect(clone)["osgr.csv"])
    assert (first["step"], second["step"]) == ("99.5", "299.5")
    assert float(first["osgr"]) == pytest.approx(published(1e-6, N), abs=1e-7)
    assert float(second["osgr"]) == pytest.approx(published(1e-8, N), abs=1e-7)
    assert float(first["gradient"]) == pytest.approx(1e-3, rel=0.01)
    assert float(second["gradient"]) == pytest.approx(1e-4, rel=0.01)


def test_the_files_of_sharpness(clone: Path) -> None:
    first, second = lines(collect(clone)["sharpness.csv"])
    assert list(first.values()) == [
        "PACS",
        "Sketch",
        "SGD",
        "250202_11-12-13",
        "0",
        "0.1",
        "0.2",
        "0.3",
        "0.4",
        "0.5",
    ]
    assert second["rho=0.05"] == "5.1235"


def test_a_folder_that_is_not_a_clone_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PaperError, match=r"is not a folder; give a clone of github\.com/00ssum/GENIE\."):
        collect(tmp_path / "nothing")
    with pytest.raises(
        PaperError, match=r"has no logs under train_output, so it is not a clone of the authors'"
    ):
        collect(tmp_path)
    write_log(tmp_path, "PACS/ERM/[0]/250101_a", LONG, steps=15000)
    with pytest.raises(PaperError, match="has no git history, so it is not a clone"):
        collect(tmp_path)
    assert main(["paper", "logged", "--clone", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("genie-dg: ")
    assert said.count("\n") == 1
    assert main(["paper", "umap", "--clone", str(tmp_path)]) == 2
    assert "--clone is for logged, and umap reads no clone" in capsys.readouterr().err


CLONE = os.environ.get("GENIE_DG_AUTHORS", "")


REAL = pytest.mark.skipif(not CLONE, reason="GENIE_DG_AUTHORS does not name a clone of the authors' repository")


@REAL
def test_the_selection_is_what_the_logs_themselves_say() -> None:
    root = Path(CLONE) / "train_output"
    runs = [read_log(path, root) for path in sorted(root.rglob("log.txt"))]
    said = [(run.selected().test, run.printed) for run in runs if run.printed is not None]
    assert len(said) == 494
    assert all(ours == pytest.approx(theirs, abs=6e-4) for ours, theirs in said)


@REAL
@pytest.mark.parametrize("name", NAMES)
def test_the_committed_files_come_from_a_real_clone(name: str) -> None:
    if not TEXTS:
        TEXTS.update(collect(Path(CLONE)))
    assert TEXTS[name] == (FOLDER / name).read_text(encoding="utf-8")


TEXTS: dict[str, str] = {}
"""Read once for all files."""
