"""The page of a study: made from packed records alone, rows only when complete, words by the intervals."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from genie_dg.protocols.registry import find_protocol
from genie_dg.protocols.toml_file import read_toml
from genie_dg.runs.archive import ARCHIVE, pack_runs
from genie_dg.runs.outcome import Ending, Outcome, note_outcome
from genie_dg.runs.seal import seal
from paper.study import read_study, study_judgements

from .data.published.test_mnist import make
from .results.build import record, run, write

ROOT = Path(__file__).parent.parent
STUDIES = ROOT / "studies"
ROWS = {"adam": 0.60, "genie": 0.65, "msvag": 0.50, "sgd": 0.40}
RATES = (1e-4, 3e-4, 1e-3)


def small_study(
    studies: Path,
    rows: dict[str, float],
    missing: int = 0,
    name: str = "mine",
    first_draw: int = 0,
    inside: Mapping[str, int] | None = None,
    diverged: str = "",
) -> Path:
    """Three draws, two trials, four domains; the middle rate is best, and by 4 points.

    The runs of ``diverged`` with the highest rate ended early. ``inside`` has the algorithms of a second sweep
    with Adam and GENIE, and how many runs of each are missing.
    """
    folder = studies / name
    folder.mkdir(parents=True)
    shutil.copy(STUDIES / "pacs" / "page.md.j2", folder)
    names = ", ".join(f'"{name}"' for name in ROWS)
    (folder / "sweep.toml").write_text(
        f'algorithms = ["ERM"]\noptimizers = [{names}]\nhparams = 3\ntrials = 2\n'
    )
    ranges = "\n".join(f'"{name}.lr" = {{ power = [-5, -2] }}' for name in (*ROWS, "genie-wider"))
    (folder / "protocol.toml").write_text(f"[search]\n{ranges}\n")
    _write_runs(folder / "runs", rows, missing, first_draw=first_draw, diverged=diverged)
    if inside:
        names = ", ".join(f'"{name}"' for name in inside)
        (folder / "algorithms.toml").write_text(
            f'algorithms = [{names}]\noptimizers = ["adam", "genie"]\nhparams = 3\ntrials = 2\n'
        )
        for algorithm, less in inside.items():
            own = {row: rows[row] for row in ("adam", "genie")}
            _write_runs(folder / "runs", own, less, algorithm=algorithm)
    times = "optimizer,round,seconds\nadam,0,0.2\nadam,1,0.4\nadam,2,0.3\ngenie,0,0.33\n"
    (folder / "step_times.csv").write_text(times)
    pack_runs(folder / "runs", folder / ARCHIVE)
    shutil.rmtree(folder / "runs")
    return folder


def _write_runs(
    out: Path,
    rows: dict[str, float],
    missing: int,
    first_draw: int = 0,
    algorithm: str = "ERM",
    diverged: str = "",
) -> None:
    places = [(o, d, t, k) for o in rows for d in range(4) for t in range(2) for k in range(3)]
    for optimizer, domain, trial, draw in places[: len(places) - missing]:
        accuracy = rows[optimizer] + 0.01 * domain + 0.002 * trial - 0.04 * abs(draw - 1)
        ended = optimizer == diverged and draw == len(RATES) - 1
        records = [record(0, [0.1] * 4, [0.1] * 4), record(10, [accuracy] * 4, [accuracy] * 4)]
        one = run(
            [domain],
            records[: 1 if ended else 2],
            trial,
            draw + first_draw * optimizer.endswith("-wider"),
            algorithm=algorithm,
            optimizer=optimizer,
            optimizer_settings={"lr": RATES[draw]},
            done=not ended,
        )
        path = write(out, one)
        if ended:
            note_outcome(path, Outcome(Ending.diverged, "The loss of step 3 is nan.", "NotFinite"))
        else:
            seal(path)


def watch_again(folder: Path) -> None:
    """The chosen draws of two rows, trained again and watched at two steps, two domains left out."""
    for optimizer, osgr in {"adam": 0.5, "genie": 0.25}.items():
        for domain in range(2):
            path = write(
                folder / "again", run([domain], [record(10, [0.5] * 4, [0.5] * 4)], optimizer=optimizer)
            )
            lines = [{"step": s, "osgr": osgr + 0.1 * domain + s / 100, "update_gini": 0.8} for s in (5, 10)]
            (path / "watch.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            seal(path)
    (folder / "chosen").mkdir()
    pack_runs(folder / "again", folder / "chosen" / ARCHIVE)
    shutil.rmtree(folder / "again")


def test_curves_of_the_chosen_draws(tmp_path: Path) -> None:
    folder = small_study(tmp_path / "studies", ROWS)
    assert "OSGR and balance" not in page_of(folder)
    watch_again(folder)
    page = page_of(folder)
    assert "measured at 2 steps along the way" in page
    assert "![OSGR and balance over training](figures/watched.png)" in page
    assert re.search(r"\| genie +\| 0\.375 ± 0\.050 +\| 0\.800 ± 0\.000 ", page)
    lines = (folder / "figures" / "watched.csv").read_text().splitlines()
    assert lines[0] == "measure,row,step,mean,standard_error"
    osgr = {tuple(line.split(",")[1:3]): line.split(",")[3:] for line in lines if line.startswith("osgr")}
    assert set(osgr) == {(row, step) for row in ("adam", "genie") for step in ("5", "10")}
    mean, error = map(float, osgr["genie", "10"])
    assert (mean, error) == (pytest.approx(0.40), pytest.approx(0.05))  # of 0.35 and 0.45


def page_of(folder: Path) -> str:
    assert runpy.run_path(str(STUDIES / "page.py"))["main"]([str(folder)]) == 0
    return (folder / "README.md").read_text()


def test_a_finished_study(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- verdict of mine -->\nold\n<!-- end of verdict -->\nafter\n")
    folder = small_study(tmp_path / "studies", ROWS, name="mine")
    page = page_of(folder)
    assert readme.read_text().startswith("before\n<!-- verdict of mine -->\n1. GENIE as published")
    assert readme.read_text().endswith("from Adam.\n<!-- end of verdict -->\nafter\n")
    assert "GENIE as published reaches 66.6 % on the domain left out and tuned Adam 61.6 %" in page
    assert "a difference of +5.00 points" in page
    assert "is worth the change from Adam" in page
    assert "under way" not in page
    assert re.search(r"\| sgd +\| -20\.00 +\| .* \| 0/0/8 .*\| worse", page)
    widths = re.findall(r"\| (\w+) +\| (\d\.\d\d) +\| \d", page)
    assert dict(widths).keys() == ROWS.keys()
    assert len(set(dict(widths).values())) == 1  # all rows have the same curve
    assert "No chosen rate lies within a tenth of a decade" in page
    assert re.search(r"\| genie +\| 0\.330 +\| 1\.10 ", page)
    for name in ("budget", "rates"):
        assert (folder / "figures" / f"{name}.png").stat().st_size > 5000
        assert (folder / "figures" / f"{name}.csv").read_text().count("\n") > 10


def test_draws_of_a_wider_range_are_beside_the_table_and_only_when_complete(tmp_path: Path) -> None:
    """Its best rate is 5 points better: six draws instead of three, and no other number changes."""
    rows = {**ROWS, "genie-wider": 0.70}
    plain = page_of(small_study(tmp_path / "plain", ROWS))
    page = page_of(small_study(tmp_path / "whole", rows, first_draw=3))
    part = page_of(small_study(tmp_path / "part", rows, missing=1, first_draw=3))
    assert part == plain
    before, _, added = page.partition("\nThose ranges were made wider")
    assert plain.startswith(before)
    lines = re.findall(r"\| genie +\| 1e-05 to 0.01 +\| (\d) +\| (\S+) +\| (\S+) .* \| 0 of 8 ", added)
    assert lines == [("3", "66.6", "+5.00"), ("6", "71.6", "+10.00")]


def test_a_run_that_diverged_is_a_draw_that_is_never_chosen(tmp_path: Path) -> None:
    """The third draw of GENIE is 4 points worse than the second, and with a loss that is NaN 55 points."""
    plain = page_of(small_study(tmp_path / "plain", ROWS))
    folder = small_study(tmp_path / "some", ROWS, diverged="genie")
    page = page_of(folder)
    assert "count as draws, with the accuracy of their last record: genie: 8 of 24." in page
    assert "count as draws" not in plain
    assert "under way" not in page
    before, after = (text[text.index("## Accuracy") : text.index("## Differences")] for text in (plain, page))
    assert before == after
    lines = [re.findall(r"\| genie +\| (\S+) +\| \S+ +\| (\S+) +\|\n", text)[0] for text in (plain, page)]
    one = 61.6 + 5 - 8 / 3  # a draw at random: the best, or one of two that are 4 points worse
    assert lines == [(f"{one:.1f}", "66.6"), (f"{one - (62.6 - 10) / 3:.1f}", "66.6")]


def test_optimizers_inside_a_complete_algorithm_are_shown_and_judged(tmp_path: Path) -> None:
    """GENIE is 5 points above Adam inside CORAL; inside RSC a run is missing."""
    plain = page_of(small_study(tmp_path / "plain", ROWS))
    folder = small_study(tmp_path / "whole", ROWS, inside={"CORAL": 0, "RSC": 1})
    page = page_of(folder)
    before, _, added = page.partition("## Inside DG algorithms")
    assert plain.startswith(before.rstrip())
    assert re.search(r"\| CORAL genie +\| \+5\.00 +\| .* \| 8/0/0 ", added)
    assert re.search(r"\| CORAL +\| adam +\|", added)
    assert "RSC + " not in added
    assert "RSC genie" not in added
    judged = study_judgements(read_study(folder))["algorithms"]
    assert judged[0] == {"CORAL against Adam": pytest.approx([5.0] * 8)}


def test_rows_that_are_not_complete_are_named_and_not_judged(tmp_path: Path) -> None:
    page = page_of(small_study(tmp_path / "studies", {"adam": 0.6, "sgd": 0.4, "genie": 0.65}, missing=1))
    assert "71 of 96 runs" in page
    assert "genie (23 of 24), msvag (0 of 24)" in page
    assert "The best of the finished rows is Adam (61.6 %)" in page
    assert not re.search(r"\| genie +\|", page)


def test_with_one_row_nothing_is_compared(tmp_path: Path) -> None:
    page = page_of(small_study(tmp_path / "studies", {"adam": 0.6}))
    assert "Not decided yet: 24 of 96 runs are done" in page
    assert "## Differences" not in page


@pytest.mark.parametrize("study", sorted(path.parent.name for path in STUDIES.glob("*/runs.tar.xz")))
def test_the_committed_page_is_that_of_the_committed_records(study: str, tmp_path: Path) -> None:
    shutil.copytree(STUDIES / study, tmp_path / study)
    assert page_of(tmp_path / study) == (STUDIES / study / "README.md").read_text()


@pytest.mark.parametrize("study", sorted(path.parent.name for path in STUDIES.glob("*/sweep.toml")))
def test_ranges_of_the_learning_rate_are_equally_wide(study: str) -> None:
    protocol = find_protocol(str(STUDIES / study / "protocol.toml"))
    optimizers = read_toml(STUDIES / study / "sweep.toml", ValueError)["optimizers"]
    widths = {protocol.search[f"{name}.lr"].high - protocol.search[f"{name}.lr"].low for name in optimizers}
    assert max(widths) - min(widths) < 0.02


def test_fashion_is_turned_and_recoloured(tmp_path: Path) -> None:
    """In a process of its own, since a plugin changes the registries."""
    make(tmp_path / "FashionMNIST" / "raw")
    program = f"""
import runpy
runpy.run_path({str(STUDIES / "fashion" / "set.py")!r})
from genie_dg.data.registry import open_data
turned = open_data("turned-fashion", {str(tmp_path)!r})
for domain in turned.domains:
    pixels = domain.images
    print(domain.name, len(domain), tuple(pixels.shape[1:]), pixels[:, :, 0, 0].min(0).values.tolist())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line.partition(" 7 ")[0] for line in lines] == [
        "white on black", "orange on violet", "green on blue", "blue on brown"
    ]  # fmt: skip
    assert lines[3].endswith("7 (3, 28, 28) [80, 50, 20]")  # a corner of a picture turned by 45 degrees
